"""Probe environments against tables by hand, and their documented values against the definition."""

import jax
import numpy as np
import pytest
from toy_play import assert_uniform, compiled, naming, play, table

from jaxmarl_envs import Box, Discrete, check_env
from jaxmarl_envs.toy import DelayedReward, RememberCue, TruncationOnly, ValueOnly

NUM_ENVS = 256
GAMMA = 0.9
VALUE, TRUNCATION, DELAYED, CUE = PROBES = (
    ValueOnly(),
    TruncationOnly(),
    DelayedReward(),
    RememberCue(),
)
right, wrong = naming(2), naming(2, offset=1)


def every_environment(rows):
    """A table `[T, A]` for all environments."""
    rows = np.asarray(rows)
    return rows[:, None].repeat(NUM_ENVS, 1)


def decision_values(acts, reward, discount_by):
    """Values of one agent's decisions from its rewards, step by step, over lists `[T]`.

    By decision, the rewards until the next decision add up and gamma stands between decisions; by
    step, gamma stands between steps.
    """
    values, value = [], 0.0
    for acted, earned in zip(reversed(acts), reversed(reward), strict=True):
        discount = GAMMA if discount_by == "step" else 1.0
        value = earned + discount * value
        if acted:
            values.append(value)
            value *= GAMMA if discount_by == "decision" else 1.0
    return values[::-1]


def test_values_are_those_of_the_definition():
    # Decisions at steps 0 and 2; 1, 2 and 4 earned at steps 0, 1 and 2.
    acts, reward = [1, 0, 1], [1.0, 2.0, 4.0]
    assert decision_values(acts, reward, "decision") == pytest.approx([3 + GAMMA * 4, 4])
    by_step = [1 + GAMMA * 2 + GAMMA**2 * 4, 4]
    assert decision_values(acts, reward, "step") == pytest.approx(by_step)


@pytest.mark.parametrize("env", PROBES, ids=lambda env: env.name)
def test_probes_keep_the_contract(env):
    report = check_env(env)
    assert report.num_episodes >= 4
    assert min(report.num_lives.values()) > 0


@pytest.mark.parametrize("env", PROBES, ids=lambda env: env.name)
def test_spaces_are_those_declared(env):
    params, width = env.default_params, 1 if env in (VALUE, TRUNCATION) else 3
    for agent in env.agents:
        assert env.observation_space(agent, params) == Box(0.0, 1.0, (width,))
        assert env.action_space(agent, params) == Discrete(2)
    assert env.max_actors == 1
    with pytest.raises(ValueError, match="unknown agent 'nobody'"):
        env.observation_space("nobody", params)


def test_value_only_pays_once_and_terminates():
    assert VALUE.horizon(VALUE.default_params) == 1
    for reward in (1.0, -2.5):
        params = VALUE.default_params.replace(reward=reward)
        played = play(VALUE, wrong, NUM_ENVS, params)
        np.testing.assert_array_equal(played.features, 1)
        np.testing.assert_array_equal(played.alive, every_environment([[1], [0]]))
        np.testing.assert_array_equal(played.acts, played.alive)
        np.testing.assert_array_equal(played.reward, every_environment([[reward]]))
        assert played.terminated.all()
        assert not played.truncated.any()


def test_truncation_only_pays_on_every_step_and_is_truncated():
    for reward, max_steps in ((1.0, 10), (0.5, 3)):
        params = TRUNCATION.default_params.replace(reward=reward, max_steps=max_steps)
        assert TRUNCATION.horizon(params) == max_steps
        played = play(TRUNCATION, wrong, NUM_ENVS, params)
        np.testing.assert_array_equal(played.features, 1)
        np.testing.assert_array_equal(played.reward, reward)
        assert played.reward.shape == (max_steps, NUM_ENVS, 1)
        assert played.alive[:-1].all()
        assert not played.alive[-1].any()
        np.testing.assert_array_equal(played.acts, played.alive)
        assert played.truncated[-1].all()
        assert not played.truncated[:-1].any()
        assert not played.terminated.any()
        # The value of the one observation that there is solves V = reward + gamma V.
        value = reward / (1 - GAMMA)
        rewards = played.reward[:, 0, 0].tolist()
        rewards[-1] += GAMMA * value
        values = decision_values([1] * max_steps, rewards, "decision")
        np.testing.assert_allclose(values, value)


@pytest.mark.parametrize("delay", [1, 3])
def test_the_reward_of_the_first_comes_on_the_others_last_step(delay):
    params = DELAYED.default_params.replace(delay=delay)
    assert DELAYED.horizon(params) == delay + 1
    played = play(DELAYED, right, NUM_ENVS, params)
    acts = [[1, 0]] + [[0, 1]] * delay
    np.testing.assert_array_equal(played.acts, every_environment([*acts, [0, 0]]))
    alive = [[1, 1]] * (delay + 1) + [[0, 0]]
    np.testing.assert_array_equal(played.alive, every_environment(alive))
    reward = np.array([[0, 0]] + [[0, 1]] * (delay - 1) + [[1, 1]])
    np.testing.assert_array_equal(played.reward, every_environment(reward))
    ends = [[0, 0]] * delay + [[1, 1]]
    np.testing.assert_array_equal(played.terminated, every_environment(ends))
    assert not played.truncated.any()
    left = np.arange(delay + 1, -1, -1) / (delay + 1)
    shares = every_environment(np.column_stack([left, left]))
    np.testing.assert_allclose(played.features[..., 2], shares, rtol=1e-6)
    assert not play(DELAYED, wrong, NUM_ENVS, params).reward.any()

    first, second = np.array(acts).T.tolist(), reward.T.tolist()
    assert decision_values(first[0], second[0], "decision") == [1.0]
    assert decision_values(first[0], second[0], "step") == pytest.approx([GAMMA**delay])
    for discount_by in ("decision", "step"):
        values = decision_values(first[1], second[1], discount_by)
        k = np.arange(delay, 0, -1)
        np.testing.assert_allclose(values, (1 - GAMMA**k) / (1 - GAMMA))


def test_only_the_first_step_counts_for_the_first():
    params = DELAYED.default_params.replace(delay=3)

    def once(features, time_step):
        return right(features, time_step) if time_step == 0 else wrong(features, time_step)

    reward = play(DELAYED, once, NUM_ENVS, params).reward
    np.testing.assert_array_equal(reward.sum(0), np.broadcast_to([1, 0], (NUM_ENVS, 2)))
    played = play(DELAYED, lambda *args: 1 - once(*args), NUM_ENVS, params)
    np.testing.assert_array_equal(played.reward.sum(0), np.broadcast_to([0, 3], (NUM_ENVS, 2)))
    seen = played.features[..., :2].argmax(-1)  # [T + 1, E, A]
    np.testing.assert_array_equal(played.features[..., :2].sum(-1), 1)
    assert_uniform(2 * seen[0] + seen[1], 4)
    assert_uniform(2 * seen[..., 0] + seen[..., 1], 4)


def remember(calls):
    """Names the cue that was seen at step 0, and writes down what it sees."""

    def policy(features, time_step):
        calls.append(features[:, 0])
        return calls[0][:, :2].argmax(-1)[:, None]

    return policy


@pytest.mark.parametrize(
    ("delay", "acts", "seen"),  # o: the cue, x: the other one, -: nothing, ?: the question
    [(0, "110", "o?"), (1, "1010", "ox?"), (2, "10110", "ox-?"), (3, "101010", "ox-x?")],
)
def test_the_cue_is_asked_for_after_the_delay(delay, acts, seen):
    params, calls = CUE.default_params.replace(delay=delay), []
    assert CUE.horizon(params) == delay + 2
    played = play(CUE, remember(calls), NUM_ENVS, params)
    cue = calls[0][:, :2]
    assert_uniform(cue.argmax(-1), 2)
    shown = {"o": cue, "x": 1 - cue, "-": 0 * cue, "?": 0 * cue}
    for features, symbol in zip(calls, seen, strict=True):
        np.testing.assert_array_equal(features[:, :2], shown[symbol])
        np.testing.assert_array_equal(features[:, 2], symbol == "?")
    num_steps = delay + 2
    acts = table(" ".join(acts))
    np.testing.assert_array_equal(played.acts, every_environment(acts))
    alive = every_environment([[1]] * num_steps + [[0]])
    np.testing.assert_array_equal(played.alive, alive)
    last = every_environment([[0]] * (num_steps - 1) + [[1]])
    np.testing.assert_array_equal(played.reward, last)
    np.testing.assert_array_equal(played.terminated, last)
    assert not played.truncated.any()
    assert acts.sum() == delay // 2 + 2

    timeline = acts[:-1, 0].tolist(), last[:, 0, 0].tolist()
    by_decision = decision_values(*timeline, "decision")
    assert by_decision[0] == pytest.approx(GAMMA ** (delay // 2 + 1))
    assert decision_values(*timeline, "step")[0] == pytest.approx(GAMMA ** (delay + 1))
    assert by_decision[-1] == 1


def test_without_memory_half_of_the_cues_are_named():
    for answer in (0, 1):
        reward = play(
            CUE, lambda features, time_step, a=answer: np.full((NUM_ENVS, 1), a), NUM_ENVS
        ).reward
        assert_uniform(reward[-1].astype(int), 2)
        assert not reward[:-1].any()


def test_the_question_looks_the_same_for_both_cues():
    reset, step = compiled(CUE)
    keys = jax.random.split(jax.random.key(0), NUM_ENVS)
    params = CUE.default_params
    obs, state = reset(keys, params)
    for _ in range(4):
        obs, state, *_ = step(keys, state, np.zeros((NUM_ENVS, 1), np.int32), params)
    assert len(np.unique(state.cue)) == 2
    assert len(np.unique(obs.features, axis=0)) == 1
