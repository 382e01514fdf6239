"""Recorded episodes: those that are evaluated, step by step, in a file that holds data alone."""

import dataclasses
import pickle
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hybrid_env_deploy import Hybrid
from probe_envs import FewAct

import jaxmarl_envs
from jaxmarl_envs.actions import Action
from jaxmarl_ppo.config.policies import PolicySpec, Scripted
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation import (
    evaluate,
    evaluate_policies,
    evaluate_run,
    load_trajectories,
    play_episodes,
    record_episodes,
    recording,
    save_trajectories,
)
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.numbers import scale

EPISODES, KEY = 16, jax.random.key(4)
MLP8 = PolicySpec(network=MLP(hidden_sizes=(8,)))


def make_player(env, params, **config):
    config = TrainConfig(num_envs=2, num_steps=8, default_policy=MLP8, **config)
    learner = make_learner(env, params, config, strict=False)
    return SimpleNamespace(
        learner=learner, population=jax.jit(learner.init_population)(jax.random.key(7))
    )


@pytest.fixture(scope="module")
def player():
    """Two policy groups, one of which has one active row less than slots, and a script."""
    env = FewAct()
    other = PolicySpec(network=MLP(hidden_sizes=(4, 4)))
    return make_player(
        env,
        env.default_params,
        mapping={"a": ["main", "other"], "b": "main", "c": ["main", "dice"]},
        policies={"other": other, "dice": Scripted("random")},
    )


@pytest.fixture(scope="module")
def totals(player):
    return jax.device_get(play_episodes(player.learner, player.population, EPISODES, KEY))


@pytest.fixture(scope="module")
def recorded(player):
    return record_episodes(player.learner, player.population, EPISODES, KEY)


def assert_same(first, second):
    """Two records, or totals, are the same to the bit."""
    for name, value in vars(first).items():
        jax.tree.map(np.testing.assert_array_equal, value, getattr(second, name))


def assert_equal_but_for_rounding(totals, others):
    """Other programs round sums differently; all else is the same to the bit."""
    for name in ("lengths", "lives", "finished", "num_steps"):
        np.testing.assert_array_equal(getattr(totals, name), getattr(others, name))
    np.testing.assert_allclose(totals.returns, others.returns, atol=1e-4)
    for name, metric in totals.metrics.items():
        np.testing.assert_allclose(metric, others.metrics[name], atol=1e-4)


def test_what_is_recorded_is_what_is_evaluated(totals, recorded):
    assert_equal_but_for_rounding(totals, recorded[0])
    games = recorded[1]
    np.testing.assert_array_equal(games.length[games.length.argmax()], totals.num_steps)
    np.testing.assert_array_equal(games.alive.sum(1), totals.lengths)
    np.testing.assert_array_equal((games.terminated | games.truncated).sum(1), totals.lives)
    assert np.ptp(games.length) > 3


def test_rewards_add_up_to_the_returns_exactly(recorded):
    totals = recorded[0]
    returns = np.zeros_like(totals.returns)
    for step in range(recorded[1].reward.shape[1]):
        returns += recorded[1].reward[:, step]
    np.testing.assert_array_equal(returns, totals.returns)
    assert np.unique(returns).size > 20


def test_rules_of_masks_and_lives_hold(recorded):
    games = recorded[1]
    acts, ended = games.agent_mask, games.terminated | games.truncated
    np.testing.assert_array_equal(
        games.valid, np.arange(games.valid.shape[1]) < games.length[:, None]
    )
    for mask in (games.alive, acts, ended, games.is_first, games.action_mask.any(-1)):
        assert not mask[~games.valid].any()
    assert (acts <= games.alive).all()
    assert (ended <= games.alive).all()
    assert not (games.terminated & games.truncated).any()
    assert acts.sum(-1).max() == 2
    np.testing.assert_array_equal(games.player == -1, ~games.alive)
    assert np.take_along_axis(games.action_mask, games.action[..., None], -1)[acts].all()
    assert (games.action[~acts] == 0).all()
    assert games.action[acts].any()
    # A life begins as the episode does, or where there was none or one ended at the step before.
    first = np.ones_like(ended[:, 0]) & games.alive[:, 0]
    np.testing.assert_array_equal(games.is_first[:, 0], first)
    born = games.alive[:, 1:] & (ended | ~games.alive)[:, :-1]
    assert born.any()
    assert games.is_first[:, 1:][born].all()
    # It stays the first until something is decided.
    decided = (games.is_first & acts)[:, :-1] & ~ended[:, :-1]
    assert decided.any()
    assert not games.is_first[:, 1:][decided].any()
    # Whoever was born plays to the end.
    lives_on = (games.alive & ~ended)[:, :-1]
    np.testing.assert_array_equal(games.player[:, 1:][lives_on], games.player[:, :-1][lives_on])


def test_what_networks_say_is_recorded_where_they_decide(player, recorded):
    games, players = recorded[1], player.learner.players
    by_network = games.agent_mask & (games.player != games.players.index("dice"))
    assert (games.agent_mask & ~by_network).any()
    for said in (games.log_prob, games.value):
        np.testing.assert_array_equal(np.isfinite(said), by_network)
    for name in ("main", "other"):
        number = games.players.index(name)
        assert games.policies[games.policy_of[number]] == name
        group = next(b for b, group in enumerate(players.policy_groups) if number in group.players)
        network = players.policy_groups[group].network
        policy_index = number - players.policy_groups[group].first_player
        params = jax.tree.map(
            lambda x, m=policy_index: x[m], player.population.policy_groups[group].params
        )
        rows = by_network & (games.player == number)
        _, outputs, value = network.module.apply({"params": params}, (), games.features[rows])
        mask = games.action_mask[rows][:, : outputs.shape[-1]]
        log_probs = jax.nn.log_softmax(jnp.where(mask, outputs, -jnp.inf))
        log_prob = np.take_along_axis(np.asarray(log_probs), games.action[rows][:, None], -1)[:, 0]
        np.testing.assert_allclose(games.log_prob[rows], log_prob, atol=1e-5)
        np.testing.assert_allclose(games.value[rows], value, atol=1e-5)
        assert rows.sum() > 10


def test_however_much_lies_on_the_device_at_once(player, recorded, monkeypatch):
    monkeypatch.setattr(recording, "MAX_BYTES_AT_ONCE", 1)
    totals, games = record_episodes(player.learner, player.population, EPISODES, KEY)
    assert_same(totals, recorded[0])
    assert_same(games, recorded[1])


@pytest.mark.rare
def test_continuous_actions_are_as_the_environment_took_them():
    env, params = jaxmarl_envs.make("crypto", continuous_actions=True)
    player = make_player(env, params, mapping="per_agent")
    args = (player.learner, player.population, 4, KEY)
    totals, games = record_episodes(*args)
    assert_equal_but_for_rounding(totals, jax.device_get(play_episodes(*args)))
    for slot, agent in enumerate(env.agents):
        space = env.action_space(agent, params)
        acts, size = games.agent_mask[:, :, slot], space.size
        action = games.action[:, :, slot][acts][:, :size]
        drawn = games.unsquashed_action[:, :, slot][acts][:, :size]
        np.testing.assert_allclose(action, scale(np.tanh(drawn), space.low, space.high), atol=1e-6)
        assert np.isnan(games.unsquashed_action[:, :, slot][~acts]).all()
        assert np.ptp(action) > 0.1


@pytest.fixture(scope="module")
def hybrid():
    """Every kind of action, with a script in one seat now and then."""
    env = Hybrid()
    mapping = {"picker": "main", "mover": "main", "both": "main", "pair": ["main", "dice"]}
    return make_player(env, None, mapping=mapping, policies={"dice": Scripted("random")})


def test_factored_actions_are_those_that_the_environment_received(hybrid, tmp_path):
    env, args = hybrid.learner.env, (hybrid.learner, hybrid.population, 6, KEY)
    totals, games = record_episodes(*args)
    assert_equal_but_for_rounding(totals, jax.device_get(play_episodes(*args)))
    assert games.action is None
    action = Action(jnp.asarray(games.choices), jnp.asarray(games.numbers))
    step = jax.vmap(lambda time, action: env.step_env(None, time, action, None)[2], (0, 0))
    for episode in range(6):
        own = jax.tree.map(lambda x, episode=episode: x[episode], action)
        np.testing.assert_array_equal(step(jnp.arange(5), own), games.reward[episode])
    assert (games.reward > -100).all()
    low, high = env.action_layout(None).bounds
    by_network = np.isfinite(games.log_prob)
    np.testing.assert_allclose(
        games.numbers[by_network],
        np.asarray(scale(np.tanh(games.numbers_as_drawn), low, high))[by_network],
        atol=1e-6,
    )
    assert np.isnan(games.numbers_as_drawn[~by_network]).all()
    assert not by_network.all()
    save_trajectories(tmp_path / "games.npz", games)
    with np.load(tmp_path / "games.npz") as file:
        assert file["format"] == 2
        assert file["choices"].shape == (6, 5, 4, 2)
        assert "action" not in file
    assert_same(load_trajectories(tmp_path / "games.npz"), games)


# --- Reports and files


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("record") / "games.npz"


@pytest.fixture(scope="module")
def report(player, path):
    return evaluate_policies(player.learner, player.population, EPISODES, seed=3, record=path)


def test_a_report_is_that_of_the_recorded_episodes(player, report, path):
    plain = evaluate_policies(player.learner, player.population, EPISODES, seed=3)
    assert plain.keys() == report.keys()
    games = load_trajectories(path)
    for slot, agent in enumerate(games.agents):
        lived = games.alive[:, :, slot].any(1)
        returns = np.add.accumulate(games.reward[:, :, slot], axis=1)[:, -1][lived]
        assert plain["agents"][agent] == pytest.approx(report["agents"][agent], abs=1e-4)
        assert report["agents"][agent]["return_max"] == returns.max()
        assert report["agents"][agent]["return_mean"] == np.mean(returns, dtype=np.float64)


def test_a_file_holds_every_field_and_is_read_by_numpy_alone(recorded, tmp_path):
    games = recorded[1]
    save_trajectories(tmp_path / "games.npz", games)
    with np.load(tmp_path / "games.npz", allow_pickle=False) as file:
        assert file["format"] == 1
        assert file["reward"].shape == (EPISODES, games.length.max(), 3)
        assert file["players"].tolist() == list(games.players)
        fields = {field.name for field in dataclasses.fields(games)}
        others = {"unsquashed_action", "choices", "numbers", "numbers_as_drawn"}
        assert set(file.files) == fields - others | {"format"}
    again = load_trajectories(tmp_path / "games.npz")
    assert_same(again, games)
    assert type(again.env) is str
    assert type(again.greedy) is bool
    assert [type(name) for name in again.agents] == [str] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["games.npz"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("there.npz", r"there\.npz' exists; choose another name or remove it"),
        ("games.npy", r"record must be the path of a new \.npz file, got '.*games\.npy'"),
        ("absent/games.npz", r"folder '.*absent' does not exist, so games\.npz cannot lie in it"),
        ("there.npz/games.npz", "does not exist"),
        (None, "record must be a path, got 5"),
    ],
)
def test_a_path_is_refused_before_anything_is_played(player, tmp_path, monkeypatch, name, message):
    monkeypatch.setattr(evaluate, "record_episodes", lambda *_, **__: pytest.fail("it plays"))
    (tmp_path / "there.npz").write_bytes(b"mine")
    record = 5 if name is None else tmp_path / name
    with pytest.raises(ValueError, match=message):
        evaluate_policies(player.learner, player.population, 4, record=record)
    with pytest.raises(ValueError, match=message):
        evaluate_run(tmp_path / "no_run", record=record)
    assert (tmp_path / "there.npz").read_bytes() == b"mine"


def test_a_record_has_bounds(player, monkeypatch):
    args = (player.learner, player.population, EPISODES, KEY)
    monkeypatch.setattr(recording, "MAX_BYTES", 8_000)
    with pytest.raises(ValueError, match=r"the record of 16 episodes takes 0\.0 MB a step and is"):
        record_episodes(*args)
    monkeypatch.setattr(recording, "MAX_BYTES", 10)
    monkeypatch.setattr(recording, "_begin", lambda *_: pytest.fail("it plays"))
    with pytest.raises(ValueError, match="after 1; record fewer episodes at a time"):
        record_episodes(*args)


def rewrite(path, to, **changes):
    """A copy of a record in which arrays are others, or None for none."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays |= changes
    np.savez(to, **{name: array for name, array in arrays.items() if array is not None})
    return to


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "has format 3; this version reads 1 and 2"),
        ({"format": 2}, "it lacks choices, numbers, numbers_as_drawn"),
        ({"format": None}, "has format None; this version reads 1 and 2"),
        ({"choices": np.zeros((EPISODES, 2, 3, 1), int)}, "it has unknown choices"),
        ({"reward": None}, "is damaged or no record of episodes: it lacks reward"),
        ({"more": np.zeros(3)}, "is damaged or no record of episodes: it has unknown more"),
        ({"value": np.zeros((EPISODES, 2))}, r"value is float64\[16, 2\]"),
        ({"value": np.zeros((EPISODES, 2, 3))}, r"has shape \[16, 2, 3\], which fits no other"),
        ({"alive": np.zeros(3)}, r"alive is float64\[3\]"),
        ({"length": np.zeros(EPISODES, int)}, "valid and length contradict each other"),
        ({"policy_of": np.array([0, 1, 9])}, "policy_of has a number that is not from -1 to 2"),
        ({"env": np.array([object()])}, "is damaged or no record of episodes"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(report, path, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load_trajectories(rewrite(path, tmp_path / "other.npz", **changes))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was executed",))


def test_damaged_files_are_refused_and_nothing_executes(report, path, tmp_path):
    content = path.read_bytes()
    damaged = {
        "absent": None,
        "empty": b"",
        "words": b"not an archive",
        "pickle": pickle.dumps(Bomb()),
        "cut": content[: len(content) // 2],
        "one byte": content[:2000] + bytes([content[2000] ^ 255]) + content[2001:],
    }
    for name, data in damaged.items():
        file = tmp_path / f"{name}.npz"
        if data is not None:
            file.write_bytes(data)
        with pytest.raises(
            ValueError, match=f"{name}.npz' (does not exist|is damaged or)"
        ) as caught:
            load_trajectories(file)
        assert "\n" not in str(caught.value)
