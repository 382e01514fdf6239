"""Gymnasium's environments of several agents: Tuples of what they see and do, a list of rewards."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_ppo import MLP, PolicySpec, TrainConfig, Trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*is stepped in Python")


class Walkers(gymnasium.Env):
    """Two walkers with steps of their own; each gets where it goes, or all are cut.

    The first walks by 1 or 2, never beyond 4; the second by a number between 0 and 1.
    """

    observation_space = spaces.Tuple([spaces.Box(0, 9, (2,)), spaces.Box(0, 9, (1,))])
    action_space = spaces.Tuple([spaces.Discrete(2, start=1), spaces.Box(0.0, 1.0, (1,))])

    def __init__(self, limit=6, one_flag=False, masked=True):
        self.limit, self.one_flag, self.masked = limit, one_flag, masked

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = [int(self.np_random.integers(0, 3)), 0.0]
        self.steps, self.over = 0, [False, False]
        return self._see(), self._info()

    def step(self, action):
        first, second = action
        assert first in (1, 2)
        assert self.over[0] or self.at[0] + first <= 4 or not self.masked
        self.steps += 1
        rewards = [0.0, 0.0]
        for index, step in enumerate((int(first), float(second[0]))):
            if not self.over[index]:
                self.at[index] = min(self.at[index] + step, 4)
                rewards[index] = step
        self.over = [bool(self.at[0] >= 4), bool(self.at[1] >= 2)]
        cut = self.steps >= self.limit
        if self.one_flag:
            return self._see(), np.array(rewards), bool(all(self.over)) or cut, False, self._info()
        cuts = [cut and not over for over in self.over]
        return self._see(), rewards, list(self.over), np.array(cuts), self._info()

    def _see(self):
        return np.array([self.at[0], self.steps], np.float32), np.array([self.at[1]], np.float32)

    def _info(self):
        first = np.array([1, self.at[0] <= 2], np.int8)
        return {"action_mask": [first, None]} if self.masked else {}


class Lone(Walkers):
    """The same for one agent that has two hands and one reward."""

    def step(self, action):
        seen, rewards, over, _, info = super().step(action)
        return seen, float(sum(rewards)), all(over), self.steps >= self.limit, info


def frames(env, seed, draw):
    """What a game shows before each step, the action, and what came of it."""
    game = env.pool.make_game()
    frame = game.reset(seed)
    while frame.alive.any():
        before = [np.copy(array) for array in frame]
        action = game.layout.pick(draw.random(frame.action_mask.shape), frame.action_mask)
        frame, outcome, _ = game.step(game.layout.pack(action))
        yield before, action, outcome, frame


@pytest.mark.parametrize("seed", range(4))
def test_agents_are_the_parts_of_the_tuples(seed):
    env = from_gymnasium(Walkers, num_workers=0)
    assert env.agents == ("agent_0", "agent_1")
    raw, alive = Walkers(), np.ones(2, bool)
    seen, info = raw.reset(seed=seed)
    for before, action, outcome, after in frames(env, seed, np.random.default_rng(seed)):
        features, legal, lives, acts = before
        np.testing.assert_array_equal(lives, alive)
        np.testing.assert_array_equal(acts, alive)
        np.testing.assert_array_equal(features[0], seen[0])
        assert features[1, 0] == seen[1][0]
        if alive[0]:
            np.testing.assert_array_equal(legal[0, :2], info["action_mask"][0])
        own = int(action.choices[0, 0]) + 1, action.numbers[1]
        seen, rewards, terminated, truncated, info = raw.step(own)
        np.testing.assert_allclose(outcome.reward, rewards, rtol=1e-6)
        np.testing.assert_array_equal(outcome.terminated, np.array(terminated) & alive)
        np.testing.assert_array_equal(outcome.truncated, truncated & alive)
        alive = alive & ~np.array(terminated) & ~truncated
        np.testing.assert_array_equal(after.alive, alive)
    assert not alive.any()


def test_one_flag_is_everybodys():
    env = from_gymnasium(lambda: Walkers(limit=3, one_flag=True), num_workers=0)
    *_, (_, _, outcome, after) = frames(env, 0, np.random.default_rng(0))
    assert outcome.terminated.tolist() == [True, True]
    assert not after.alive.any()


@pytest.mark.parametrize(
    ("reading", "truncated"), [("truncates", True), ("terminates", False), (None, False)]
)
def test_an_end_at_the_limit_is_what_the_user_says(reading, truncated):
    env = from_gymnasium(
        lambda: Walkers(limit=3, one_flag=True), horizon=3, at_time_limit=reading, num_workers=0
    )
    played = list(frames(env, 0, np.random.default_rng(0)))
    assert len(played) == 3
    outcome = played[-1][2]
    assert outcome.truncated.tolist() == [truncated] * 2
    assert outcome.terminated.tolist() == [not truncated] * 2


@pytest.mark.parametrize(("reading", "truncated"), [("terminates", False), (None, True)])
def test_an_episode_that_is_cut_at_the_horizon_ends_as_the_user_says(reading, truncated):
    make_fn = functools.partial(Walkers, limit=5, one_flag=True)
    env = from_gymnasium(make_fn, horizon=2, at_time_limit=reading, num_workers=0)
    outcome = list(frames(env, 0, np.random.default_rng(0)))[-1][2]
    assert outcome.truncated.tolist() == [truncated] * 2
    assert outcome.terminated.tolist() == [not truncated] * 2


def test_an_end_before_the_limit_is_as_it_is_told():
    env = from_gymnasium(Walkers, horizon=6, at_time_limit="truncates", num_workers=0)
    ended = np.zeros(2, bool)
    for seed in range(8):
        for time, (_, _, outcome, _) in enumerate(frames(env, seed, np.random.default_rng(seed))):
            assert not (outcome.terminated if time == 5 else outcome.truncated).any()
            ended |= outcome.terminated.any(), outcome.truncated.any()
    assert ended.all()  # there were ends of both kinds


def test_one_reward_is_one_agents():
    env = from_gymnasium(lambda: Lone(masked=False), num_workers=0)
    assert env.agents == ("agent",)


def test_a_team_keeps_the_contract_and_trains():
    env = from_gymnasium(Walkers, num_workers=0)
    check_env(env, (), num_steps=10, num_envs=2)
    config = TrainConfig(
        num_envs=2,
        num_steps=4,
        total_env_steps=16,
        mapping="per_agent",
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
    )
    assert Trainer(env, (), config, progress=False).train().env_steps == 16


class TooFew(Walkers):
    def step(self, action):
        seen, rewards, *rest = super().step(action)
        return seen, rewards, rest[0][:1], *rest[1:]


@pytest.mark.parametrize(
    ("make_fn", "options", "message"),
    [
        (TooFew, {}, "the environment has 2 agents and returns the terminated [False]"),
        (Walkers, {"at_time_limit": "ends"}, "valid choices are truncates, terminates"),
        (Walkers, {"at_time_limit": "truncates"}, "has no effect: no limit is known"),
        (
            lambda: gymnasium.make_vec("CartPole-v1", num_envs=2),
            {"at_time_limit": "truncates", "horizon": 5},
            "has no effect: a vector tells its lives' limits",
        ),
    ],
)
def test_what_does_not_fit_is_told(make_fn, options, message):
    with pytest.raises(ValueError) as caught:
        from_gymnasium(make_fn, num_workers=0, **options)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*does not do the same for the same seed")
def test_limits_of_published_teams_terminate_unless_the_user_says_otherwise():
    pytest.importorskip("lbforaging")
    pytest.importorskip("rware")
    for reading in (None, "truncates"):
        options = {"at_time_limit": reading, "num_workers": 0}
        foraging, _ = make("gymnasium", env_id="lbforaging:Foraging-8x8-2p-1f-coop-v3", **options)
        assert foraging.horizon(()) == 50
        warehouse, _ = make(
            "gymnasium", env_id="rware:rware-tiny-2ag-v2", horizon=20, max_steps=20, **options
        )
        for env, limit in ((foraging, 50), (warehouse, 20)):
            played = list(frames(env, 2, np.random.default_rng(0)))
            assert len(played) == limit
            outcome = played[-1][2]
            assert outcome.terminated.all() == (reading is None)
            assert outcome.truncated.all() == (reading == "truncates")
