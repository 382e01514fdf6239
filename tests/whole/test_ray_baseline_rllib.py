"""The Ray baseline itself: RLlib trains on the twins, and gets from them what it needs."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray.rllib")
pytest.importorskip("torch")

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import compare_ray  # noqa: E402
from ray_baseline.our_side import make_run  # noqa: E402
from ray_baseline.processes import run_side  # noqa: E402
from ray_baseline.report import SIDES  # noqa: E402
from ray_baseline.rllib_config import DECISIONS, make_config  # noqa: E402
from ray_baseline.rllib_env import TwinEnv  # noqa: E402
from ray_baseline.rllib_former import NoteReturns  # noqa: E402
from ray_baseline.rllib_side import NewResults  # noqa: E402
from ray_baseline.scenarios import SCENARIOS  # noqa: E402

from jaxmarl_ppo.config.presets import SLOW_ENV, preset  # noqa: E402

SMALL = {
    "tic_tac_toe": {"num_envs": 8, "batch_steps": 1024},
    "crypto": {"num_envs": 8, "batch_steps": 1024},
    "shuttle_grid": {"num_envs": 4, "batch_steps": 1024},
    "noise": {"num_envs": 6, "batch_steps": 1200},
}


def make_env(name, **changes):
    masked = SCENARIOS[name].action_mask
    return TwinEnv({"game": name, "action_mask": masked, "all_observe": False, **changes})


@pytest.mark.parametrize("name", SCENARIOS)
def test_observations_lie_in_their_spaces(name):
    env, rng = make_env(name), np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    for _ in range(300):
        for agent, seen in obs.items():
            assert env.observation_spaces[agent].contains(seen)
        actions = {agent: int(rng.integers(env.action_spaces[agent].n)) for agent in obs}
        obs, reward, terminated, truncated, _ = env.step(actions)
        assert set(reward) == set(env.possible_agents)
        if terminated["__all__"] or truncated["__all__"]:
            assert set(obs) == set(env.possible_agents)
            obs, _ = env.reset()


def test_the_mover_alone_observes_until_the_game_ends():
    env = make_env("tic_tac_toe")
    obs, _ = env.reset()
    for cell, mover, waiting in ((0, "x", "o"), (3, "o", "x"), (1, "x", "o"), (4, "o", "x")):
        assert set(obs) == {mover}
        assert obs[mover]["action_mask"][cell] == 1.0
        obs, reward, terminated, _, _ = env.step({mover: cell})
        assert obs[waiting]["action_mask"][cell] == 0.0
        assert reward == {"x": 0.0, "o": 0.0}
        assert not terminated["__all__"]
    obs, reward, terminated, truncated, _ = env.step({"x": 2})
    assert set(obs) == {"x", "o"}
    assert reward == {"x": 1.0, "o": -1.0}
    assert (terminated["__all__"], truncated["__all__"]) == (True, False)


def test_everybody_can_be_made_to_observe():
    env = make_env("shuttle_grid", all_observe=True)
    obs, _ = env.reset(seed=0)
    assert set(obs) == set(env.possible_agents)
    moving = dict.fromkeys(obs, 1)
    obs, *_ = env.step(moving)
    assert set(obs) == set(env.possible_agents)
    assert len(env.twin.acting()) < 6


def test_a_seed_tells_all_episodes():
    def episodes(env, seed):
        first = env.reset(seed=seed)[0]
        return [first, env.reset()[0]]

    env = make_env("shuttle_grid")
    a, b, c = (episodes(env, seed) for seed in (1, 1, 2))
    np.testing.assert_equal(a, b)
    for other in (a[1], c[0]):
        with pytest.raises(AssertionError):
            np.testing.assert_equal(a[0], other)


class Episode:
    def __init__(self, id_):
        self.id_ = id_


def test_policies_are_drawn_per_episode_for_all_agents_together():
    draw = make_config(SCENARIOS["tic_tac_toe"], 0).policy_mapping_fn
    drawn = [(draw("x", Episode(f"e{i}")), draw("o", Episode(f"e{i}"))) for i in range(4000)]
    shares = {pair: drawn.count(pair) / 4000 for pair in set(drawn)}
    assert set(shares) == {("p1", "p2"), ("p3", "p2"), ("p1", "p4")}
    assert abs(shares["p1", "p2"] - 0.6) < 0.04
    assert abs(shares["p3", "p2"] - 0.2) < 0.04


def test_ensembles_are_drawn_per_episode_and_agent():
    draw = make_config(SCENARIOS["crypto"], 0).policy_mapping_fn
    agents = SCENARIOS["crypto"].agents
    drawn = [tuple(draw(agent, Episode(f"e{i}")) for agent in agents) for i in range(5400)]
    assert len(set(drawn)) == 27
    assert all(abs(drawn.count(triple) - 200) < 75 for triple in set(drawn))
    assert draw("bob_0", Episode("e1")) == draw("bob_0", Episode("e1"))


@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
@pytest.mark.parametrize("name", SCENARIOS)
def test_ours_trains_on_the_class_that_rllib_steps(name):
    scenario = SCENARIOS[name]
    env, params, config = make_run(scenario, seed=3, side="twins")
    own, own_params, usual = make_run(scenario, seed=3)
    assert (env.name, env.steps_on_host, own.steps_on_host) == (TwinEnv.__name__, True, False)
    assert env.agents == own.agents
    assert env.horizon(params) == own.horizon(own_params) == scenario.episode_steps
    assert env.max_actors == own.max_actors
    for agent in env.agents:
        seen, shown = env.observation_space(agent, params), own.observation_space(agent, own_params)
        assert seen.shape == shown.shape
        assert (np.all(seen.low == shown.low), np.all(seen.high == shown.high)) == (True, True)
        assert env.action_space(agent, params) == own.action_space(agent, own_params)
    equal = dataclasses.replace(config.default_ppo, num_minibatches=scenario.ours.num_minibatches)
    assert equal == usual.default_ppo
    assert (config.default_policy, config.mapping) == (usual.default_policy, usual.mapping)
    _, _, advised = make_run(scenario, seed=3, side="slow_env")
    assert advised.default_ppo == preset(name, SLOW_ENV).config.default_ppo
    assert advised.default_policy.network == usual.default_policy.network
    assert (advised.policies, advised.mapping) == (usual.policies, usual.mapping)
    # What the preset leaves as it is, is the same on all sides.
    for field in ("gamma", "gae_lambda", "entropy_coef", "clip_eps", "value_coef", "max_grad_norm"):
        assert getattr(advised.default_ppo, field) == getattr(usual.default_ppo, field)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_ours_trains_a_window_on_the_twins(name):
    found = run_side("twins", name, seconds=200.0, command=one_window())
    assert found["error"] is None
    window, settings = found["windows"][0], SCENARIOS[name].twins
    assert window["env_steps"] == settings.num_envs * settings.num_steps
    rows = window["trained_rows"] / window["optimiser_steps"]
    assert 0.85 < rows / SCENARIOS[name].minibatch_rows < 1.6  # untrained shuttles act more often


@pytest.mark.slow
def test_the_comparison_is_measured_recorded_and_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("ray_baseline.processes.GRACE_S", 120.0)
    monkeypatch.setenv("COLUMNS", "200")
    paths = tmp_path / "found.json", tmp_path / "curves.png"
    recorded = ["--json", str(paths[0]), "--plot", str(paths[1])]
    compare_ray.main(["crypto", "--rounds", "1", "--minutes", "0.5", *recorded])
    found = json.loads(paths[0].read_text())["scenarios"]["crypto"]
    for side in SIDES:
        assert found[side]["error"] is None
        assert found[side]["figures"]["env_steps_per_s"]["median"] > 0
        assert found[side]["figures"]["last bob's accuracy"]["median"] > 0
    shares = [found["rllib"]["figures"][f"{part}_share"] for part in ("sampling", "learning")]
    assert 0.5 < sum(share["median"] for share in shares) <= 1.0
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    assert "of its time: sampling" in capsys.readouterr().out


FORMER, LEARNER = {"api_stack": "former"}, {"num_learners": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in SCENARIOS for kind in ({}, FORMER)] + [("crypto", LEARNER)],
)
def test_rllib_trains_an_iteration(name, kind):
    settings = {**SMALL[name], "num_runners": 0, "torch_threads": 1, **kind}
    found = run_side("rllib", name, seconds=150.0, rllib=settings, command=one_window())
    assert found["error"] is None
    window = found["windows"][0]
    assert window["env_steps"] >= settings["batch_steps"]
    assert window["trained_rows"] >= 4 * 0.4 * window["decisions"]
    for measure in SCENARIOS[name].measures:
        assert set(measure.returns_of) <= set(window["returns"])
    assert 0 < window["sampling_s"] + window["learning_s"] <= window["seconds"]


def one_window():
    """The child process, whose time is up after its first iteration."""
    code = (
        "import json, sys; from ray_baseline.child import main; "
        "main(json.dumps({**json.loads(sys.argv[1]), 'seconds': 0}))"
    )
    return (sys.executable, "-c", code)


@pytest.mark.parametrize("kind", [FORMER, LEARNER], ids=str)
def test_both_stacks_are_told_the_same(kind):
    for scenario in SCENARIOS.values():
        settings = dataclasses.replace(scenario.rllib, **kind)
        config = make_config(dataclasses.replace(scenario, rllib=settings), 7)
        usual = make_config(scenario, 7)
        assert set(config.policies) == set(usual.policies)
        assert config.enable_rl_module_and_learner == (kind != FORMER)
        assert config.enable_env_runner_and_connector_v2 == (kind != FORMER)
        assert config.num_learners == kind.get("num_learners", 0)
        assert config.total_train_batch_size == usual.total_train_batch_size
        for key in ("lr", "gamma", "lambda_", "minibatch_size", "num_epochs", "vf_loss_coeff"):
            assert getattr(config, key) == getattr(usual, key)


def test_agents_returns_are_noted_where_rllib_tells_of_policies_only():
    episode = Episode("e")
    episode.agent_rewards = {("eve_0", "eve_0_2"): -7.0, ("bob_0", "bob_0_1"): 3.0}
    episode.custom_metrics = {}
    NoteReturns().on_episode_end(episode=episode, worker=None)
    assert episode.custom_metrics == {"eve_0": -7.0, "bob_0": 3.0}


def test_the_latest_iteration_is_found_in_moving_averages():
    results = NewResults()
    played = {"num_env_steps_sampled": 5, DECISIONS: 5}
    learners = {"__all_modules__": {"num_module_steps_trained": 5}}
    average, seen = 8.0, []
    for sampling in (8.0, 2.0, 3.0):
        average += 0.01 * (sampling - average)
        timers = {"env_runner_sampling_timer": average, "learner_update_timer": 1.0}
        result = {"env_runners": played, "learners": learners, "timers": timers}
        seen.append(results.read(result)["sampling_s"])
    assert seen == pytest.approx([8.0, 2.0, 3.0])


def test_the_baseline_is_told_all_constants():
    for name, scenario in SCENARIOS.items():
        config = make_config(dataclasses.replace(scenario, gamma=0.5), 7)
        assert (config.gamma, config.seed, config.num_epochs) == (0.5, 7, scenario.num_epochs)
        assert config.minibatch_size == scenario.minibatch_rows
        modules = config.rl_module_spec.rl_module_specs
        assert set(config.policies_to_train) == set(modules) - set(scenario.frozen), name
