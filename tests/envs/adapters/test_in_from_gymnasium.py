"""Gymnasium's environments on the host, against the raw environments stepped by hand."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)


class Countdown(gymnasium.Env):
    """Ends when a count that begins anywhere is 0, and is cut after `limit` steps.

    An action takes 1 or 2 off, which is paid.
    """

    observation_space = gymnasium.spaces.Box(-2.0, 9.0, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def __init__(self, limit=3):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.steps = int(self.np_random.integers(3, 8)), 0
        return self._see(), self._info()

    def step(self, action):
        assert self.count > 0
        self.count, self.steps = self.count - int(action), self.steps + 1
        over = self.count <= 0
        return self._see(), float(action), over, self.steps == self.limit and not over, self._info()

    def _see(self):
        return np.array([self.count, self.steps], np.float64)

    def _info(self):
        return {"action_mask": np.array([1, self.count > 1], np.int8)}


def vector(mode):
    return SyncVectorEnv([lambda: Countdown(2), Countdown, Countdown], autoreset_mode=mode)


def walk(env, seed, num_steps):
    """Frames before, what came, and random legal actions, step by step."""
    game = env.pool.make_game()
    rng = np.random.default_rng(0)
    frame = copy.deepcopy(game.reset(seed))
    for _ in range(num_steps):
        noise = rng.random(frame.action_mask.shape)
        action = np.where(frame.action_mask, noise, -1).argmax(-1)
        final, outcome, following = copy.deepcopy(game.step(action))
        yield frame, action, final, outcome, following
        frame = following


def test_a_single_environment_is_the_raw_one():
    env = from_gymnasium(Countdown, num_workers=0)
    assert env.agents == ("agent",)
    raw = Countdown()
    seen, info = raw.reset(seed=5)
    for frame, action, final, outcome, _ in walk(env, 5, 9):
        np.testing.assert_array_equal(frame.features[0], seen)
        np.testing.assert_array_equal(frame.action_mask[0], info["action_mask"])
        seen, reward, terminated, truncated, info = raw.step(action[0] + 1)
        found = (outcome.reward[0], outcome.terminated[0], outcome.truncated[0])
        assert found == (reward, terminated, truncated)
        np.testing.assert_array_equal(final.features[0], seen)
        assert final.alive[0] == (not (terminated or truncated))
        if terminated or truncated:
            break
    assert terminated or truncated


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_environments_of_a_vector_live_side_by_side(mode):
    env = from_gymnasium(lambda: vector(mode), num_workers=0)
    assert env.agents == ("env_0", "env_1", "env_2")
    ends = sum(expect_vector(env, mode, seed) for seed in range(5))
    assert ends >= 12


class Rememberer(gymnasium.vector.VectorEnv):
    """Pays by how much actions differ from those of the step before, which it keeps."""

    num_envs = 2
    single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    single_observation_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))
    action_space, observation_space = (
        gymnasium.vector.utils.batch_space(space, 2)
        for space in (single_action_space, single_observation_space)
    )

    def reset(self, *, seed=None, options=None):
        self.last = np.zeros((2, 1), np.float32)
        return self.last, {}

    def step(self, actions):
        change, self.last = actions - self.last, actions
        return change, change[:, 0], np.zeros(2, bool), np.zeros(2, bool), {}


def test_a_vector_may_keep_the_actions_that_it_is_given():
    game = from_gymnasium(Rememberer, num_workers=0, horizon=9).pool.make_game()
    game.reset(0)
    rewards = [game.step(np.float32([[x], [-x]]))[1].reward.copy() for x in (0.25, 1.0, 0.5)]
    np.testing.assert_array_equal(rewards, [[0.25, -0.25], [0.75, -0.75], [-0.5, 0.5]])


def expect_vector(env, mode, seed):
    """Compare with raw ones until all end at once; return how many did before."""
    raw, ends = [Countdown(limit) for limit in (2, 3, 3)], 0
    for i, one in enumerate(raw):
        one.reset(seed=seed + i)
    for frame, action, final, outcome, following in walk(env, seed, 12):
        for i, one in enumerate(raw):
            if not frame.alive[i]:  # begun anew by this step
                assert mode == AutoresetMode.NEXT_STEP
                np.testing.assert_array_equal(following.features[i], one.reset()[0])
                assert (outcome.reward[i], following.agent_mask[i]) == (0, True)
                continue
            np.testing.assert_array_equal(frame.features[i], one._see())
            seen, reward, *flags, info = one.step(action[i] + 1)
            np.testing.assert_array_equal(final.features[i], seen)
            found = [outcome.reward[i], outcome.terminated[i], outcome.truncated[i]]
            assert found == [reward, *flags]
            ends += any(flags)
            if any(flags) and mode == AutoresetMode.NEXT_STEP:
                assert not following.alive[i]
            elif any(flags):
                seen, info = one.reset()
                np.testing.assert_array_equal(following.features[i], seen)
            if following.alive[i]:
                np.testing.assert_array_equal(following.action_mask[i], info["action_mask"])
        if not following.alive.any():
            return ends
    return ends


@pytest.mark.parametrize("make_fn", [Countdown, lambda: vector(AutoresetMode.SAME_STEP)])
def test_the_contract_is_kept(make_fn):
    report = check_env(from_gymnasium(make_fn, num_workers=0, horizon=7), num_steps=16, num_envs=2)
    assert report.num_episodes >= 4


def test_registered_environments_come_by_their_id():
    env, _ = make("gymnasium", env_id="CartPole-v1", horizon=500, num_workers=0)
    assert env.name == "CartPole-v1"
    assert env.horizon(()) == 500
    assert env.made_as[1]["env_id"] == "CartPole-v1"


def test_what_cannot_come_in_is_refused():
    with pytest.raises(ValueError, match=r"env_id='Carpole-v1' cannot be made with {}"):
        make("gymnasium", env_id="Carpole-v1")
    with pytest.raises(ValueError, match=r"cannot be made with {'wheels': 3}"):
        make("gymnasium", env_id="CartPole-v1", wheels=3)
    with pytest.raises(ValueError, match="expected a function that makes an Env or VectorEnv"):
        from_gymnasium(lambda: 3)
    with pytest.raises(ValueError, match="make_fn=3: give a function"):
        from_gymnasium(3)
