"""PettingZoo environments on the host, against the raw environments stepped by hand."""

import importlib
import operator
import os
import re
import signal
import subprocess
import sys
import time
import types

import host_envs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from host_envs import Camera, Dozing, Endless, Leavers, Respawning, Rounds
from probe_envs import quick_jit, tiny_learner

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.host import SlowEnvironmentWarning
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.check import EnvContractError
from jaxmarl_envs.wrappers import Grouped, Joined
from jaxmarl_ppo import PPOConfig, Scripted, TrainConfig, Trainer
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies
from jaxmarl_ppo.learner.build import make_learner

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)
CRYPTO, SPREAD = "mpe2.simple_crypto_v3", "mpe2.simple_spread_v3"
TIC_TAC_TOE = "classic/tictactoe_v3"
# JAX hands an error on as one or the other.
ERRORS = (ValueError, jax.errors.JaxRuntimeError)


def here(make_fn, **options):
    """In this process."""
    return from_pettingzoo(make_fn, num_workers=0, **options)


class Play:
    """`E` environments on random legal actions; lists by step of what was there and what came."""

    def __init__(self, env, num_envs, num_steps, seed=0):
        self.env = env
        rng = np.random.default_rng(seed)
        keys = jax.random.split(jax.random.key(seed), (num_steps + 1, num_envs))
        obs, state = quick_jit(jax.vmap(env.reset_env, (0, None)))(keys[0], ())
        step = quick_jit(env.step_batch)
        self.before, self.states, self.actions, self.after = [], [], [], []
        for time_step in range(num_steps):
            self.before.append(jax.device_get(obs))
            self.states.append(state)
            self.actions.append(self._draw(rng, obs))
            obs, state, *rest = step(keys[time_step + 1], state, self.actions[-1], ())
            self.after.append(jax.device_get((obs, *rest)))
        self.state = state

    def _draw(self, rng, obs):
        mask = np.asarray(obs.action_mask)
        return self.env.action_layout(()).pick(rng.random(mask.shape), mask)


def own(env, array, agent):
    """The part of `[A, ...]` that an agent's own space covers."""
    shape = env.observation_space(agent, ()).shape
    return array[(env.agents.index(agent), *map(slice, shape))]


# ---- The same as the raw environment, step for step ----------------------------------------------


@pytest.mark.rare_cases("mpe2.simple_crypto_v3-options3-3", "mpe2.simple_spread_v3-options2-2")
@pytest.mark.parametrize(
    ("env_id", "options", "num_workers"),
    [
        (SPREAD, {"max_cycles": 7}, 0),
        (SPREAD, {"max_cycles": 7}, 1),  # whose answers are overwritten by the next ones
        (SPREAD, {"max_cycles": 7, "continuous_actions": True}, 2),
        (CRYPTO, {"max_cycles": 7}, 3),
    ],
)
def test_a_parallel_environment_is_the_raw_one(env_id, options, num_workers):
    env, _ = make("pettingzoo", env_id=env_id, num_workers=num_workers, **options)
    play = Play(env, num_envs=4, num_steps=17)
    env.close()
    for e in range(4):
        raw = importlib.import_module(env_id).parallel_env(**options)
        assert env.agents == tuple(raw.possible_agents)
        for time_step in range(17):
            before, action = play.before[time_step], play.actions[time_step][e]
            if time_step == 0 or not raw.agents:
                seen, _ = raw.reset(seed=int(play.states[time_step].seed[e]))
                expect_seen(env, before, e, seen)
            seen, *answer = raw.step(
                {
                    agent: int(action[i]) if action.ndim == 1
                    else action[i, : raw.action_space(agent).shape[0]]
                    for i, agent in enumerate(raw.agents)
                }
            )  # fmt: skip
            _, *found, info = play.after[time_step]
            for values, expected in zip(found, answer, strict=False):
                expected = np.array([expected[agent] for agent in env.agents])
                np.testing.assert_array_equal(values[e], expected.astype(values.dtype))
            expect_seen(env, info["final_observation"], e, seen)
            assert info["episode_over"][e] == (not raw.agents)
            np.testing.assert_array_equal(info["final_observation"].alive[e], bool(raw.agents))


def expect_seen(env, obs, e, seen):
    for agent, values in seen.items():
        np.testing.assert_array_equal(own(env, obs.features[e], agent), values)
        assert np.count_nonzero(obs.features[e][env.agents.index(agent)]) == np.count_nonzero(
            values
        )


class Sorted(Leavers):
    """`Leavers` whose dictionaries are in orders of their own, as those of a compiled step are."""

    def step(self, actions):
        return tuple(
            dict(sorted(by_agent.items(), reverse=place % 2 == 0))
            for place, by_agent in enumerate(super().step(actions))
        )


def test_the_order_of_a_dictionary_of_agents_means_nothing():
    plain, other = (Play(here(game), num_envs=2, num_steps=9) for game in (Leavers, Sorted))
    jax.tree.map(np.testing.assert_array_equal, other.after, plain.after)


# ---- Lives, by hand ------------------------------------------------------------------------------


def test_agents_of_a_parallel_environment_come_and_go():
    play = Play(here(Leavers), num_envs=1, num_steps=9)
    alive = [obs.alive[0].tolist() for obs in play.before]
    a_b, all_three, b_c = [True, True, False], [True, True, True], [False, True, True]
    assert alive == [a_b, all_three, b_c, b_c, a_b, all_three, b_c, b_c, a_b]
    for obs in play.before:
        np.testing.assert_array_equal(obs.agent_mask, obs.alive)
    for time_step, (_, reward, terminated, truncated, info) in enumerate(play.after):
        phase = time_step % 4 + 1
        assert terminated[0].tolist() == [phase == 2, False, phase == 4]
        assert truncated[0].tolist() == [False, phase == 4, False]
        assert info["episode_over"][0] == (phase == 4)
        # The third number that all see is the draw that they were paid on top of their actions.
        final = info["final_observation"].features[0]
        lives = play.before[time_step].alive[0]
        expected = play.actions[time_step][0] + [0, 1, 0] + final[1, 2]
        np.testing.assert_allclose(reward[0], np.where(lives, expected, 0), rtol=1e-6)
        np.testing.assert_array_equal(final[lives, 0], phase)
        np.testing.assert_array_equal(final[:, 3], [0, 7, 0])
    # Whoever is gone keeps the row of its end.
    assert play.before[3].features[0, 0, 0] == 2


def test_whoever_lives_and_is_not_observed_waits():
    play = Play(here(Dozing), num_envs=1, num_steps=6)
    for time_step, (obs, (_, reward, *_)) in enumerate(zip(play.before, play.after, strict=True)):
        assert obs.alive[0].all()
        assert obs.agent_mask[0].tolist() == [True, time_step % 2 == 0]
        assert reward[0, 1] >= 1  # paid all the same


def test_masks_come_from_infos():
    play = Play(here(Leavers), num_envs=1, num_steps=4)
    for time_step, obs in enumerate(play.before):
        assert obs.action_mask[0, 1].tolist() == [True, time_step % 2 == 0, True]
        assert obs.action_mask[0, 0].tolist() == [True, True, False]


def test_agents_of_a_turn_based_environment_wait_are_paid_and_go():
    env = here(Rounds)
    key = jax.random.key(0)
    obs, state = env.reset_env(key, ())
    step = quick_jit(env.step)
    actors, paid, edges = [], [], []
    for _ in range(6):
        actors.append(np.flatnonzero(obs.agent_mask).tolist())
        obs, state, reward, terminated, truncated, info = step(key, state, jnp.full(3, 2))
        paid.append(reward.tolist())
        edges.append((np.flatnonzero(terminated).tolist(), np.flatnonzero(truncated).tolist()))
    assert actors == [[0], [1], [2], [1], [1], [1]]
    x, y, z = np.array(paid).T
    np.testing.assert_allclose(x, [2, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(y, [0.2, 2, 0.2, 2, 2, 2], rtol=1e-6)
    np.testing.assert_allclose(z, [0.2, 0.2, 2, 0.2, 0, 0], rtol=1e-6)
    assert edges == [([0], []), ([], []), ([], []), ([], [2]), ([], []), ([1], [])]
    assert info["episode_over"]
    # Turns done when each was removed, and who it was.
    assert info["final_observation"].features.tolist() == [[1, 0], [6, 1], [4, 2]]


def test_an_agent_that_comes_back_at_once_leaves_its_last_observation():
    game = here(Respawning).pool.make_game()
    game.reset(0)
    final, outcome, frame = game.step(np.zeros(3, np.int32))
    assert outcome.truncated.tolist() == [True, True, False]
    assert frame.alive.tolist() == [True, False, True]
    # As x sees it before its removal, and as it comes back.
    assert final.features[0].tolist() == [0, 0]
    assert frame.features[0].tolist() == [2, 0]
    check_env(here(Respawning))


def test_the_horizon_truncates_whoever_lives():
    play = Play(here(Leavers, horizon=3), num_envs=1, num_steps=6)
    for time_step, (obs, _, terminated, truncated, info) in enumerate(play.after):
        last = time_step % 3 == 2
        assert truncated[0].tolist() == [False, last, last]
        assert terminated[0].tolist() == [time_step % 3 == 1, False, False]
        assert info["episode_over"][0] == last
        assert obs.alive[0].tolist() == ([True, True, False] if last else obs.alive[0].tolist())


# ---- Spaces --------------------------------------------------------------------------------------


def test_images_become_planes_from_0_to_1_and_actions_keep_their_shape():
    env = here(Camera)
    play = Play(env, num_envs=2, num_steps=6)
    rng = np.random.default_rng(int(play.states[0].seed[0]))
    for time_step in range(5):
        image = rng.integers(256, size=(4, 3, 2), dtype=np.uint8)
        np.testing.assert_array_equal(
            play.before[time_step].features[0, 0], image.astype(np.float32) / np.float32(255)
        )
        played = play.actions[time_step][0, 0].astype(np.float64)
        assert play.after[time_step][1][0, 0] == np.float32(played.sum())
    assert env.action_space("eye", ()).high.tolist() == [2.0, 0.5]


def test_boards_become_vectors_on_request():
    env = here(Camera, flatten=True)
    plain = here(Camera)
    key = jax.random.key(3)
    seen, board = env.reset_env(key, ())[0].features, plain.reset_env(key, ())[0].features
    assert seen.shape == (1, 24)
    np.testing.assert_array_equal(seen, board.reshape(1, 24))


class Spaces(Endless):
    """`Endless` with other spaces; observations are samples of them."""

    def __init__(self, observation, action=None):
        super().__init__()
        self._observation, self._action = observation, action or [spaces.Discrete(2)] * 2

    def observation_space(self, agent):
        return self._observation[agent == "b"]

    def action_space(self, agent):
        return self._action[agent == "b"]

    def _inform(self, agents):
        return {agent: {} for agent in agents}

    def _see(self, agents):
        for agent in agents:
            self.observation_space(agent).seed(1)
        self.seen = {agent: self.observation_space(agent).sample() for agent in agents}
        return self.seen


def test_other_observations_are_flattened():
    parts = spaces.Dict(
        {
            "where": spaces.MultiDiscrete([2, 3]),
            "what": spaces.Discrete(3, start=5),
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
        }
    )
    image = spaces.Box(0, 255, (2, 2), np.uint8)
    raw = Spaces([parts, image])
    env = here(lambda: raw)
    obs, _ = env.reset_env(jax.random.key(0), ())
    assert [env.observation_space(agent, ()).shape for agent in "ab"] == [(8,), (4,)]
    seen = raw.seen["a"]
    expected = [*np.eye(3)[seen["what"] - 5], *np.eye(2)[seen["where"][0]]]
    np.testing.assert_array_equal(obs.features[0], [*expected, *np.eye(3)[seen["where"][1]]])
    np.testing.assert_array_equal(
        obs.features[1, :4], np.float32(raw.seen["b"].ravel()) / np.float32(255)
    )
    assert obs.action_mask[0].tolist() == seen["action_mask"].astype(bool).tolist()


def test_images_within_other_spaces_are_scaled_as_by_themselves():
    image = spaces.Box(0, 255, (2, 2), np.uint8)
    bytes_of_no_image = spaces.Box(0, 255, (3,), np.uint8)
    parts = {"camera": spaces.Tuple((image, spaces.Discrete(2))), "codes": bytes_of_no_image}
    raw = Spaces([spaces.Dict(parts), image])
    env = here(lambda: raw)
    obs, _ = env.reset_env(jax.random.key(0), ())
    picture, symbol = raw.seen["a"]["camera"]
    expected = [*np.float32(picture.ravel()) / np.float32(255), *np.eye(2)[symbol]]
    np.testing.assert_array_equal(obs.features[0], [*expected, *raw.seen["a"]["codes"]])
    space = env.observation_space("a", ())
    assert space.high.tolist() == [1.0] * 6 + [255.0] * 3
    assert env.observation_space("b", ()).high.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([spaces.Text(3)] * 2, "agent 'a' has the action space Text.*Text cannot be played"),
        ([spaces.Box(0, 50_000, (1,), np.int32)] * 2, "more than the 10,000"),
    ],
)
def test_actions_that_cannot_be_played_are_refused(action, message):
    with pytest.raises(ValueError, match=message):
        here(lambda: Spaces([host_envs.flat(1)] * 2, action))


def test_observations_without_a_size_are_refused():
    with pytest.raises(ValueError, match="has no fixed size; an observation is a Box"):
        here(lambda: Spaces([spaces.Sequence(spaces.Discrete(2))] * 2))


# ---- Pure functions, over games that go on -------------------------------------------------------


@pytest.mark.parametrize(
    ("make_fn", "options"),
    [(Leavers, {"horizon": 4}), (Rounds, {}), (Camera, {"horizon": 3}), (Leavers, {"horizon": 3})],
)
def test_the_contract_is_kept(make_fn, options):
    report = check_env(here(make_fn, **options), num_steps=10, num_envs=2)
    assert report.num_episodes >= 2
    assert min(report.num_lives.values()) > 0


@pytest.mark.rare
def test_the_contract_is_kept_in_other_processes():
    env, params = make("pettingzoo", env_id=TIC_TAC_TOE, num_workers=2)
    assert check_env(env, params, num_steps=12, num_envs=3).num_episodes >= 3
    env.close()


def test_an_environment_that_ignores_its_seed_is_found_out():
    with pytest.warns(UnrepeatableEnvironmentWarning, match="same seed and actions"):
        env = here(lambda: Endless("ignore the seed"))
    with pytest.raises(EnvContractError, match="in one call"):
        check_env(env, num_steps=2)


def test_any_earlier_state_can_be_stepped_again():
    env = here(Leavers)
    play = Play(env, num_envs=2, num_steps=7)
    for time_step in (3, 1, 2, 6):
        key, state, action = one(play, time_step, 1)
        if time_step == 2:
            # Another second step, so that there is a game with this seed, time and another past.
            _, earlier, other = one(play, 1, 1)
            env.step_env(key, earlier, np.array([1 - other[0], other[1], 0]), ())
        if time_step == 6:
            env.close()
        answer = env.step_env(key, state, action, ())
        _, reward, terminated, truncated, info = play.after[time_step]
        found = jax.device_get((answer[2:5], answer[0]))
        expected = ((reward, terminated, truncated), info["final_observation"])
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[1]), found, expected)


def one(play, time_step, e):
    return (
        jax.random.key(0),
        jax.tree.map(lambda x: x[e], play.states[time_step]),
        play.actions[time_step][e],
    )


def test_what_waiting_agents_are_given_changes_nothing():
    env = here(Rounds)
    _, state = env.reset_env(jax.random.key(0), ())
    answers = [
        env.step_env(jax.random.key(0), state, jnp.array([1, other, other]), ()) for other in (0, 3)
    ]
    jax.tree.map(np.testing.assert_array_equal, *answers)


def test_seeds_batch_like_environments():
    env = here(Leavers)
    keys = jax.random.split(jax.random.key(0), (2, 3))
    reset = jax.vmap(jax.vmap(env.reset_env, (0, None)), (0, None))
    _, states = reset(keys, ())
    actions = jnp.zeros((2, 3, 3), jnp.int32)
    both = jax.vmap(env.step_batch, (0, 0, 0, None))(keys, states, actions, ())
    for seed in range(2):
        own, found = jax.tree.map(operator.itemgetter(seed), ((keys, states, actions), both))
        jax.tree.map(np.testing.assert_array_equal, found, env.step_batch(*own, ()))


def test_games_that_go_on_are_never_played_again():
    """Stepped one by one, and reset only where they are over."""
    counts = []
    env = here(lambda: Endless(counts=counts), horizon=4)
    counts.clear()
    Play(env, num_envs=3, num_steps=10)
    assert {what: counts.count(what) for what in set(counts)} == {
        "made": 3,
        "reset": 3 + 2 * 3,
        "step": 30,
    }


def test_a_reset_leaves_the_games_that_go_on_alone():
    """As in a wrapper that resets all environments to use some."""
    counts = []
    env = here(lambda: Endless(counts=counts))
    play = Play(env, num_envs=2, num_steps=5)
    counts.clear()
    env.reset_env(jax.random.key(1), ())
    keys = jax.random.split(jax.random.key(2))
    env.step_batch(keys, play.state, play.actions[-1], ())
    assert counts == ["made", "reset", "step", "step"]


def test_the_first_episodes_begin_at_different_phases_at_a_bearable_cost():
    counts = []
    env = here(lambda: Endless(counts=counts), horizon=12)
    counts.clear()
    learner = tiny_learner(env, (), num_envs=4, config={"stagger_starts": True})
    state = quick_jit(learner.init)(jax.random.key(0))
    assert state.per_env.rollout.env_state.time.tolist() == [0, 3, 6, 9]
    # Nine steps of four environments: those that are dropped cost one step and one reset each.
    assert counts.count("step") == 36
    assert counts.count("reset") <= 4 + 36


# ---- Training ------------------------------------------------------------------------------------


class Paying(Leavers):
    """`Leavers` that writes down what it pays."""

    def __init__(self, book):
        self.book = book

    def step(self, actions):
        answer = super().step(actions)
        self.book.append(answer[1])
        return answer


@pytest.mark.rare
def test_every_reward_is_accounted_for():
    book = []
    env = here(lambda: Paying(book))
    book.clear()  # of what was paid while it was tried out
    learner = tiny_learner(env, (), num_envs=3, num_steps=3, config={"stagger_starts": False})
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    counted, trained, uncredited = 0.0, 0.0, 0.0
    for _ in range(3):
        state, metrics = step(state)
        counted += np.asarray(metrics.sums.reward)
        trained += np.asarray(metrics.sums.reward_trained)
        uncredited += np.asarray(metrics.sums.reward_uncredited)
    assert len(book) == 27
    paid = [sum(time_step.get(agent, 0.0) for time_step in book) for agent in "abc"]
    np.testing.assert_allclose(counted, paid, rtol=1e-5)
    waiting = np.asarray(state.per_env.policy_groups[0].pending.reward_sum).sum(0)
    np.testing.assert_allclose(trained + uncredited + waiting, paid, rtol=1e-5)


def train(num_workers):
    """Two iterations: what they measured, and the learner after them."""
    env, _ = make("pettingzoo", env_id=CRYPTO, num_workers=num_workers, max_cycles=5)
    learner = tiny_learner(env, (), num_envs=4, num_steps=4)
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    history = []
    for _ in range(2):
        state, metrics = step(state)
        history.append(jax.device_get((metrics, state.population)))
    env.close()
    return history, learner, state


@pytest.mark.rare
def test_a_run_repeats_in_any_number_of_processes():
    (history, *_), (again, learner, state) = train(num_workers=0), train(num_workers=2)
    jax.tree.map(np.testing.assert_array_equal, history, again)
    assert history[1][0].sums.episodes == 4
    report = evaluate_policies(learner, state.population, episodes=6)
    learner.env.close()
    assert report["agents"]["eve_0"]["length_mean"] == 5
    assert report["agents"]["bob_0"]["return_mean"] == report["agents"]["alice_0"]["return_mean"]


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: Grouped(env, {"both": ("a", "b")})])
def test_only_one_device_is_used(wrap):
    env = wrap(here(Leavers))
    config = TrainConfig(num_envs=16, num_steps=4)
    assert make_learner(env, env.default_params, config).num_devices == 1
    two = TrainConfig(num_envs=16, num_steps=4, num_devices=2)
    with pytest.raises(ValueError, match="num_devices=2: an environment that is stepped in Python"):
        make_learner(env, env.default_params, two)


# ---- What goes wrong -----------------------------------------------------------------------------


def step_three_times(env):
    try:
        Play(env, num_envs=2, num_steps=3)
    finally:
        env.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_an_environment_raises_is_told_with_its_traceback(num_workers):
    env = from_pettingzoo(lambda: Endless("raise"), num_workers=num_workers, name="lanes")
    with pytest.raises(ERRORS) as caught:
        step_three_times(env)
    message = str(caught.value)
    assert "environment 'lanes', number 0 of the batch, step" in message
    assert "raises KeyError: 'no such lane' (" in message
    assert "host_envs.py" in message
    assert message.rstrip().endswith("KeyError: 'no such lane'")


def test_a_process_that_dies_is_told_and_started_again():
    env = from_pettingzoo(lambda: Endless("exit"), num_workers=2)
    with pytest.raises(ERRORS, match="process 0 ended with status 3"):
        step_three_times(env)
    assert env.pool.pids == ()
    Play(env, num_envs=2, num_steps=2)
    assert len(env.pool.pids) == 2
    os.kill(env.pool.pids[1], signal.SIGKILL)
    with pytest.raises(ERRORS, match="process 1 was killed by signal 9"):
        step_three_times(env)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("leave", "agent 'b' left the environment and is neither terminated nor truncated"),
    ],
)
def test_what_pettingzoo_does_not_allow_is_told(event, message):
    with pytest.raises(ERRORS, match=message):
        step_three_times(here(lambda: Endless(event)))


def test_what_an_environment_prints_does_not_get_in_the_way(capfd):
    step_three_times(from_pettingzoo(lambda: Endless("print"), num_workers=1))
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "a line of its own\n" * 2


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="horizon=0"):
        here(Leavers, horizon=0)
    with pytest.raises(ValueError, match="num_workers=-1"):
        from_pettingzoo(Leavers, num_workers=-1)
    with pytest.raises(ValueError, match="ParallelEnv or AECEnv, but it made"):
        here(lambda: 3)
    with pytest.raises(
        ValueError, match=r"make_fn='mpe2\.x': give a function that makes .* lambda"
    ):
        here("mpe2.x")
    with pytest.raises(ValueError, match=r"unknown env_id 'mpe2\.chess'"):
        make("pettingzoo", env_id="mpe2.chess")
    with pytest.raises(ValueError, match="no parallel or aec environment 'classic/tictactoe_v2'"):
        make("pettingzoo", env_id="classic/tictactoe_v2")
    with pytest.raises(ValueError, match="valid choices are parallel, aec"):
        make("pettingzoo", env_id=SPREAD, api="turns")
    with pytest.raises(ValueError, match="no parallel environment"):
        make("pettingzoo", env_id=TIC_TAC_TOE, api="parallel")
    with pytest.raises(ValueError, match=r"does not take \{'players': 3\}"):
        make("pettingzoo", env_id=SPREAD, players=3)
    with pytest.raises(ValueError, match="needs the option env_id"):
        make("pettingzoo")


@pytest.mark.parametrize("env_id", ["", ".", "..", ".x", "x.", "mpe2..x", None, 3, ["mpe2"]])
def test_what_cannot_be_a_name_of_an_environment_is_refused(env_id):
    message = (
        rf"env_id={re.escape(repr(env_id))}: give .* such as 'mpe2\.simple_spread_v3', or an id"
    )
    with pytest.raises(ValueError, match=message):
        make("pettingzoo", env_id=env_id)


@pytest.mark.parametrize("env_id", [":", "mpe2:", "mpe2:x", "no.such.module"])
def test_a_module_that_does_not_exist_is_named_with_an_example(env_id):
    message = f"unknown env_id {env_id!r} .* such as 'mpe2.simple_spread_v3', or an id"
    with pytest.raises(ValueError, match=message):
        make("pettingzoo", env_id=env_id)


@pytest.mark.parametrize("env_id", ["math", "/", "classic/", "maker_of_none"])
def test_a_name_of_something_else_is_told_with_an_example(env_id, monkeypatch):
    module = types.ModuleType("maker_of_none")
    module.env = module.parallel_env = 3
    monkeypatch.setitem(sys.modules, "maker_of_none", module)
    message = f"no parallel or aec environment {env_id!r}: .* such as 'mpe2.simple_spread_v3', or"
    with pytest.raises(ValueError, match=message):
        make("pettingzoo", env_id=env_id)


def test_both_apis_can_be_asked_for():
    assert make("pettingzoo", env_id=CRYPTO, num_workers=0)[0].max_actors == 3
    assert make("pettingzoo", env_id=CRYPTO, num_workers=0, api="aec")[0].max_actors == 1


def test_it_says_that_it_is_slow():
    with pytest.warns(SlowEnvironmentWarning, match="'leavers' is stepped in Python"):
        here(Leavers)


# ---- Processes -----------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
import jax
from host_envs import Leavers
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
env = from_pettingzoo(lambda: Leavers(), num_workers=2)
keys = jax.random.split(jax.random.key(0))
jax.vmap(env.reset_env, (0, None))(keys, ())
print(*env.pool.pids, flush=True)
"""


def is_gone(pid, patience_s=20.0):
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.rare
def test_processes_end_with_the_program():
    """Which needs no guard for its main module, and leaves nothing even when it is killed."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM + end],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for end in ("", "raise SystemExit(1)", "time.sleep(60)")
    ]
    pids = [list(map(int, program.stdout.readline().split())) for program in programs]
    programs[2].kill()
    for program in programs:
        program.communicate(timeout=30)
    assert [program.returncode for program in programs] == [0, 1, -signal.SIGKILL]
    assert list(map(len, pids)) == [2, 2, 2]
    assert all(is_gone(pid) for own in pids for pid in own)


@pytest.mark.rare
def test_processes_end_with_close_and_with_their_pool():
    pool = from_pettingzoo(Leavers, num_workers=2).pool
    pool.reset(np.arange(1))
    (pid,) = pool.pids
    pool.close()
    assert is_gone(pid, patience_s=0.1)
    pool.reset(np.arange(3))
    pids = pool.pids
    del pool
    assert len(pids) == 2
    assert all(is_gone(pid, patience_s=0.1) for pid in pids)


@pytest.mark.parametrize("wrap", [Grouped, Joined])
def test_environments_around_others_close_them(wrap):
    inner = from_pettingzoo(Leavers, num_workers=1)
    env = wrap(inner, {"pair": ("a", "c")})
    env.prepare(1)
    (pid,) = inner.pool.pids
    env.close()
    assert is_gone(pid)
    assert not inner.pool.pids
    make("tic_tac_toe")[0].close()  # where there is nothing to end


def test_as_many_workers_as_cores_keep_to_one_each(monkeypatch):
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("there is one core")
    pool = from_pettingzoo(Leavers, num_workers=2).pool
    two = sorted(cores)[:2]
    for allowed, expected in ((two, [{two[0]}, {two[1]}]), ([*two, 999], [cores, cores])):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, allowed=allowed: set(allowed))
        pool.reset(np.arange(2))
        assert [_cores_of(pid) for pid in pool.pids] == expected
        pool.close()


def _cores_of(pid):
    with open(f"/proc/{pid}/status") as file:
        (found,) = re.findall(r"Cpus_allowed_list:\s*(\S+)", file.read())
    spans = [list(map(int, span.split("-"))) for span in found.split(",")]
    return {core for span in spans for core in range(span[0], span[-1] + 1)}


# ---- Learning ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tic_tac_toe_of_pettingzoo_is_learnt_against_a_random_player(tmp_path):
    """Two random players win 58.5 and 28.8 games of 100, the first to move more."""
    env, params = make("pettingzoo", env_id=TIC_TAC_TOE, flatten=True, horizon=9)
    config = TrainConfig(
        total_env_steps=80_000,
        num_envs=16,
        mapping={"player_1": "learner", "player_2": "random"},
        policies={"random": Scripted("random")},
        default_ppo=PPOConfig(learning_rate=2e-3, entropy_coef=0.02),
    )
    trainer = Trainer(env, params, config, tmp_path / "run", progress=False)
    result = trainer.train()
    first = result.history[0]["agents"]["player_1"]["return_mean"]
    report = evaluate_policies(trainer.learner, result.population, greedy=True)
    env.close()
    assert first < 0.5
    assert report["agents"]["player_1"]["return_mean"] > 0.85
