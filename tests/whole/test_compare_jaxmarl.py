"""The comparison with JaxMARL's own IPPO: its pieces, and a baseline of a few lines beside ours."""

import dataclasses
import json
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.config.jaxmarl_presets import GAMES, KINDS

pytest.importorskip("jaxmarl")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import compare_jaxmarl  # noqa: E402
import jaxmarl_baseline  # noqa: E402

# Stands in for JaxMARL's file: it learns nothing, but counts and returns what that returns.
BASELINE = """
import distrax, jax, jax.numpy as jnp, jaxmarl, optax
import flax.linen as nn
from flax.training.train_state import TrainState

class ActorCritic(nn.Module):
    action_dim: int
    activation: str = "tanh"

    @nn.compact
    def __call__(self, x):
        x = jnp.tanh(nn.Dense(4)(x))
        return distrax.Categorical(logits=nn.Dense(self.action_dim)(x)), nn.Dense(1)(x)[..., 0]

def make_train(config):
    env = jaxmarl.make(config["ENV_NAME"], **config["ENV_KWARGS"])
    config["NUM_UPDATES"] = config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"] // config["NUM_ENVS"]
    first = env.agents[0]
    network = ActorCritic(env.action_space(first).n, config["ACTIVATION"])

    def train(key):
        params = network.init(key, jnp.zeros(env.observation_space(first).shape))
        state = TrainState.create(apply_fn=network.apply, params=params, tx=optax.sgd(1.0))
        return {"runner_state": (state, jnp.zeros(3), key), "metrics": {}}

    return train
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of JaxMARL with the stand-in in the place of its feed-forward baseline."""
    folder = tmp_path / "JaxMARL" / "baselines" / "IPPO"
    (folder / "config").mkdir(parents=True)
    (folder / "ippo_ff_mpe.py").write_text(BASELINE)
    told = {**KINDS["mpe"].theirs, "TOTAL_TIMESTEPS": 1e7, "ENV_KWARGS": {}}
    (folder / "config" / "ippo_ff_mpe.yaml").write_text(json.dumps(told))
    wandb = types.SimpleNamespace(init=lambda **kwargs: None)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return tmp_path / "JaxMARL"


def test_a_baseline_is_told_the_game_and_the_budget():
    kitchen = GAMES["overcooked_coord_ring"]
    told = {"TOTAL_TIMESTEPS": 5e6, "REW_SHAPING_HORIZON": 2.5e6, "LR": 1e-3}
    config = jaxmarl_baseline.configure(told, kitchen)
    assert config["TOTAL_TIMESTEPS"] == kitchen.total_env_steps
    assert config["REW_SHAPING_HORIZON"] == kitchen.total_env_steps / 2
    assert config["LR"] == 1e-3
    assert config["ENV_KWARGS"].keys() == {"layout"}
    assert config["ENV_KWARGS"]["layout"].keys() >= {"wall_idx", "pot_idx"}
    battle = jaxmarl_baseline.configure({"TOTAL_TIMESTEPS": 1e7}, GAMES["smax_2s3z"])
    assert battle["MAP_NAME"] == "2s3z"
    assert battle["ENV_KWARGS"] == {
        "see_enemy_actions": True,
        "walls_cause_death": True,
        "attack_mode": "closest",
    }


def test_another_configuration_than_the_translated_one_is_refused():
    known = {"LR": 1e-3, "NUM_ENVS": 16}
    jaxmarl_baseline.check_translated({**known, "SEED": 1}, known, "ippo")
    with pytest.raises(ValueError, match=r"LR is 0.002 in ippo.yaml of the checkout, but .* 0.001"):
        jaxmarl_baseline.check_translated({**known, "LR": 2e-3}, known, "ippo")
    with pytest.raises(ValueError, match="NUM_ENVS is None"):
        jaxmarl_baseline.check_translated({"LR": 1e-3}, known, "ippo")


def test_rows_of_agents_are_padded_to_the_widest():
    seen = {"b": jnp.ones((2, 3)), "a": 2 * jnp.ones((2, 1))}
    rows = jaxmarl_baseline.pad_and_stack(seen, ["a", "b"], 4)
    np.testing.assert_array_equal(rows, [[2, 0, 0], [2, 0, 0], [1, 1, 1], [1, 1, 1]])
    done = {"b": jnp.array([True, False]), "a": jnp.array([False, False])}
    rows = jaxmarl_baseline.pad_and_stack(done, ["a", "b"], 4)
    np.testing.assert_array_equal(rows, [[False], [False], [True], [False]])


def test_a_folder_without_baselines_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no baselines/IPPO/ippo_ff_mpe\.py"):
        jaxmarl_baseline.load_baseline(tmp_path, "ippo_ff_mpe")


def test_games_of_the_checkout_itself_are_refused(checkout, monkeypatch):
    own = checkout / "jaxmarl" / "__init__.py"
    monkeypatch.setattr(sys.modules["jaxmarl"], "__file__", str(own))
    with pytest.raises(ValueError, match=r"imported from the checkout, .*take .* off PYTHONPATH"):
        jaxmarl_baseline.load_baseline(checkout, "ippo_ff_mpe")


def test_the_baseline_s_policy_plays_as_it_was_trained(checkout):
    game = dataclasses.replace(GAMES["mpe_tag"], total_env_steps=3 * 16 * 128 + 5)
    trained = jaxmarl_baseline.train(checkout, game, seed=1)
    assert trained.env_steps == 3 * 16 * 128
    learner, population = jaxmarl_baseline.as_players(trained, game)
    policy = jaxmarl_baseline.take_policy(learner, population, "shared")
    np.testing.assert_array_equal(
        policy.params["inner"]["Dense_0"]["kernel"], trained.params["Dense_0"]["kernel"]
    )
    # The prey sees less than the predators; what it sees is padded, as there.
    seen = jax.random.normal(jax.random.key(0), (5, 14))
    _, outputs, value = trained.network.clone(num_outputs=5).apply(
        {"params": {"inner": trained.params}}, (), seen
    )
    module, config = jaxmarl_baseline.load_baseline(checkout, "ippo_ff_mpe")
    padded = np.pad(seen, [(0, 0), (0, 2)])
    pi, expected = module.ActorCritic(5, config["ACTIVATION"]).apply(
        {"params": trained.params}, padded
    )
    np.testing.assert_allclose(outputs, pi.logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
    wrong = policy.replace(params={"inner": {"Dense_0": policy.params["inner"]["Dense_0"]}})
    with pytest.raises(ValueError, match="policy 'shared' has the shapes"):
        jaxmarl_baseline.put_policy(learner, population, "shared", wrong)


def test_a_time_limit_can_be_the_end_of_a_game():
    env = compare_jaxmarl.EndsForGood("MPE_simple_spread_v3", max_steps=1)
    params, step = env.default_params, jax.jit(env.step_env)
    _, state = env.reset_env(jax.random.key(0), params)
    for expected in (False, True):
        result = step(jax.random.key(1), state, jnp.zeros(3, int), params)
        state, terminated, truncated = result[1], result[3], result[4]
        assert (terminated == expected).all()
        assert not truncated.any()


@pytest.mark.slow
def test_all_sides_are_trained_evaluated_and_recorded(checkout, tmp_path, capsys):
    record = tmp_path / "record.json"
    compare_jaxmarl.compare(["mpe_tag"], [0], compare_jaxmarl.SIDES, checkout, 2 * 4096, record)
    runs = json.loads(record.read_text())["runs"]
    assert [run["side"] for run in runs] == ["ours", "ours_at_theirs", "play_off", "theirs"]
    for run in runs:
        if run["side"] != "play_off":
            assert run["env_steps"] == 2 * 4096
            assert run["agents"].keys() == {*(f"adversary_{i}" for i in range(3)), "agent_0"}
            assert run["seconds"].keys() == {"compiling", "training"}
    found = runs[2]["found"]
    assert found["columns"]["players"] == ["ours/prey", "ours_at_theirs/shared", "theirs/shared"]
    assert "mpe_tag, seed 0, theirs" in capsys.readouterr().out
    # A budget that is no whole iterations of all is no comparison.
    with pytest.raises(ValueError, match=r"ours_at_theirs trained for .* environment steps"):
        compare_jaxmarl.compare(["mpe_spread"], [0], ["ours_at_theirs"], None, 2049, None)


def run_of(game, side, seed, result):
    return {
        "game": game,
        "side": side,
        "seed": seed,
        "env_steps": 2_097_152,
        "result": result,
        "agents": {"a": {"won": result} if "smax" in game else {}},
        "seconds": {"compiling": 10.04, "training": 100.0},
        "cpu_seconds": 50.0,
        "env_steps_per_cpu_s": 41943.04,
    }


def test_a_record_has_each_run_once_and_makes_a_table(tmp_path):
    path = tmp_path / "record.json"
    compare_jaxmarl.enter(path, run_of("smax_3m", "theirs", 0, 0.5))
    compare_jaxmarl.enter(path, run_of("mpe_spread", "ours", 1, -14.0))
    compare_jaxmarl.enter(path, run_of("mpe_spread", "ours", 0, -13.0))
    compare_jaxmarl.enter(path, run_of("mpe_spread", "ours", 1, -12.123456))
    runs = json.loads(path.read_text())["runs"]
    assert [(run["game"], run["seed"], run["result"]) for run in runs] == [
        ("mpe_spread", 0, -13.0),
        ("mpe_spread", 1, -12.123),
        ("smax_3m", 0, 0.5),
    ]
    lines = compare_jaxmarl.table(path).splitlines()
    assert lines[2] == (
        "| `mpe_spread`, return | 2.1 M, 0, 1 | -13.0 / -12.1; 50 s (100 + 10), 41,943/s "
        "| not run yet | not run yet |"
    )
    assert lines[3].startswith("| `smax_3m`, battles won | 2.1 M, 0 | not run yet | not run yet |")


def test_of_many_seeds_a_table_has_the_mean_and_its_standard_error(tmp_path):
    path = tmp_path / "record.json"
    compare_jaxmarl.enter(path, run_of("mpe_spread", "ours", 0, -13.0))
    for seed in range(5):
        compare_jaxmarl.enter(path, run_of("mpe_spread", "theirs", seed, float(seed)))
    assert compare_jaxmarl.table(path).splitlines()[2] == (
        "| `mpe_spread`, return | 2.1 M, 0 | -13.0 (seed 0); 50 s (100 + 10), 41,943/s "
        "| not run yet | 2.0 ± 0.7 (seeds 0 to 4); 50 s (100 + 10), 41,943/s |"
    )


def test_the_document_shows_what_is_recorded():
    text = (ROOT / "docs" / "learning.md").read_text()
    assert compare_jaxmarl.table(compare_jaxmarl.RECORD) in text
