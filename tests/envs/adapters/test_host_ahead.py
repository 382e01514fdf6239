"""Steps that games begin before they are asked for, which must change nothing but the time."""

import itertools

import jax
import numpy as np
import pytest
from host_envs import Eventful, Leavers, fail_on_seed_8, hang_on_seed_8

from jaxmarl_envs.adapters.incoming import host
from jaxmarl_envs.adapters.incoming.host_patience import GivenUp, HangingEnvironmentWarning
from jaxmarl_envs.adapters.incoming.host_pool import HostPool
from jaxmarl_envs.adapters.incoming.host_rows import RowSpec
from jaxmarl_envs.adapters.incoming.host_steps import Steps
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.user_code import HostEnvironmentError
from jaxmarl_ppo import LSTM, PolicySpec, TrainConfig
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import make_learner

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)
CAPACITY, NUM_STEPS = 8, 11


@pytest.fixture
def pool_of():
    """A function that makes a pool of `Leavers`, or of another class; it ends with the test."""
    pools = []

    def make_pool(num_workers, make_fn=Leavers, **options):
        pools.append(from_pettingzoo(make_fn, num_workers=num_workers, **options).pool)
        return pools[-1]

    yield make_pool
    for pool in pools:
        pool.close()


class Failing:
    """A function that makes games, and whose import fails in a worker."""

    def __reduce__(self):
        return int, ("no such map",)


class Half:
    """Three episodes at places from `first` on, on actions that depend on the step alone."""

    def __init__(self, pool, first, seeds, acting):
        self.pool, self.first, self.seeds, self.acting = pool, first, seeds, acting
        self.times = np.zeros(3, np.int32)
        self.past = np.zeros((3, CAPACITY, acting.shape[1]), np.int32)
        self.step_index = 0

    @property
    def steps(self):
        """What is asked for next."""
        rng = np.random.default_rng([self.first, self.step_index])
        actions = rng.integers(0, 2, self.acting.shape, dtype=np.int32) * self.acting
        fresh = self.seeds + 100
        return Steps(self.seeds, self.times, self.past, actions, fresh, self.first)

    def step(self, ahead):
        """Play a step, and return copies of all that comes."""
        steps = self.steps
        found = self.pool.step(steps, ahead)
        final, outcome, frame = (tuple(map(np.copy, part)) for part in found)
        over = ~final[2].any(axis=1)
        self.past[np.arange(3), self.times] = steps.actions
        self.times = np.where(over, 0, self.times + 1).astype(np.int32)
        self.seeds = np.where(over, steps.reset_seeds, self.seeds)
        self.acting, self.step_index = frame[3], self.step_index + 1
        return final, outcome, frame


def begin(pool, seeds=(0, 1, 2, 30, 31, 32)):
    """Two halves whose episodes have begun."""
    seeds = np.array(seeds, np.uint32)
    acting = pool.reset(seeds).agent_mask.copy()
    return [Half(pool, first, seeds[first:][:3], acting[first:][:3]) for first in (0, 3)]


def others(steps):
    """Steps of the same episodes with other actions."""
    return steps._replace(actions=1 - steps.actions)


def nothing(steps):
    del steps


def play(pool, ahead_of=nothing, between=lambda: None):
    """Play two halves in turn; what comes at every step, as one list of arrays."""
    halves, found = begin(pool), []
    for _ in range(NUM_STEPS):
        for now, then in (halves, halves[::-1]):
            for part in now.step(ahead_of(then.steps)):
                found.extend(part)
            between()
    return found


def expect_same(found, expected):
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.fixture(scope="module")
def expected():
    """What a pool in this process gives, which begins nothing ahead."""
    return play(from_pettingzoo(Leavers, num_workers=0).pool)


@pytest.mark.parametrize("num_workers", [0, 1, 2, 5])
def test_what_begins_ahead_is_what_is_asked_for_later(pool_of, expected, num_workers):
    pool = pool_of(num_workers)
    expect_same(play(pool, lambda steps: steps), expected)
    assert len(pool.pids) == min(num_workers, 5)


def test_what_begins_ahead_does_not_begin_again(pool_of, monkeypatch):
    requests = []
    send = HostPool._begin
    monkeypatch.setattr(HostPool, "_begin", lambda *args: requests.append(args[1]) or send(*args))
    play(pool_of(2), lambda steps: steps)
    # The reset, the first step, and one for each that is asked for later; nothing is replayed.
    assert len(requests) == 1 + 1 + 2 * NUM_STEPS
    assert not any(request.replays for request in requests if request.actions is not None)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_what_is_not_asked_for_after_all_changes_nothing(pool_of, expected, num_workers):
    expect_same(play(pool_of(num_workers), others), expected)


def test_resets_in_between_change_nothing(pool_of, expected):
    pool = pool_of(2)
    seeds = np.arange(4, dtype=np.uint32)
    expect_same(play(pool, lambda steps: steps, lambda: pool.reset(seeds)), expected)


def test_pools_that_close_forget_what_they_have_begun(pool_of, expected, capfd):
    pool, turns = pool_of(2), itertools.count()

    def close():
        if next(turns) % 9 == 0:  # once behind each half: processes take a second to start anew
            pool.close()

    expect_same(play(pool, lambda steps: steps, close), expected)
    pool.close()
    assert "Traceback" not in capfd.readouterr().err


def at_seed_8(pool):
    """Two halves, the second of which has the seed 8 at place 4, played up to its step 3."""
    halves = begin(pool, (0, 1, 2, 7, 8, 9))
    for _ in range(2):
        halves[0].step(halves[1].steps)
        halves[1].step(halves[0].steps)
    halves[0].step(halves[1].steps)
    return halves[1]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_failure_of_what_began_ahead_names_its_game(pool_of, num_workers):
    pool = pool_of(num_workers, lambda: Eventful(fail_on_seed_8))
    half = at_seed_8(pool)
    with pytest.raises(HostEnvironmentError, match=r"number 4 of the batch, step 3 .* no fuel"):
        half.step(None)
    assert not pool.pids


def test_a_game_that_hangs_in_what_began_ahead_is_named(pool_of):
    half = at_seed_8(pool_of(1, lambda: Eventful(hang_on_seed_8), step_timeout=2.0))
    game = "number 4 of the batch, step 3 of the episode of seed 8"
    with (
        pytest.warns(HangingEnvironmentWarning, match=game),
        pytest.raises(GivenUp, match=game),
    ):
        half.step(None)


def test_processes_that_start_early_play_as_others_do(pool_of, expected):
    pool = pool_of(3)
    pool.start(2)
    early = pool.pids
    pool.start(2)
    assert pool.pids == early
    assert len(early) == 2
    expect_same(play(pool, lambda steps: steps), expected)
    assert pool.pids[:2] == early
    assert len(pool.pids) == 3


def test_an_import_that_fails_early_is_told_at_the_first_request():
    pool = HostPool("maps", Failing(), RowSpec((1, 1), 1, 0), num_workers=1)
    pool.start(1)
    with pytest.raises(HostEnvironmentError, match=r"'maps', ValueError: .*no such map"):
        pool.reset(np.arange(1))
    assert not pool.pids


def test_training_starts_processes_before_it_compiles(monkeypatch):
    env = from_pettingzoo(Leavers, num_workers=2)
    learner = make_learner(env, (), TrainConfig(num_envs=4, num_steps=2, mapping="per_agent"))
    monkeypatch.setattr(Devices, "jit", lambda *_, **__: pytest.fail(str(len(env.pool.pids))))
    with pytest.raises(pytest.fail.Exception, match=r"^2$"):
        CompiledRuns(learner).compile()
    env.close()


@pytest.mark.parametrize(
    ("num_workers", "expected"), [(0, False), (1, True), (2, True), (3, False)]
)
def test_steps_begin_ahead_where_a_core_is_left(monkeypatch, num_workers, expected):
    monkeypatch.setattr(host, "usable_cores", lambda: 3)
    assert from_pettingzoo(Leavers, num_workers=num_workers).steps_ahead == expected


def test_a_rollout_is_the_same_whoever_steps_its_games():
    """Without processes, with one, and with as many as make shares of different sizes."""
    env = from_pettingzoo(Leavers, num_workers=0)
    env.steps_ahead = True
    network = LSTM(hidden_sizes=(4,), lstm_size=3)
    config = TrainConfig(
        num_envs=6, num_steps=5, default_policy=PolicySpec(network=network), mapping="per_agent"
    )
    learner = make_learner(env, (), config)
    state = learner.init(jax.random.key(0))
    play_on = jax.jit(learner.play)
    expected = jax.device_get(play_on(state, jax.random.key(1)))
    for num_workers in (1, 2, 4):
        env.pool = from_pettingzoo(Leavers, num_workers=num_workers).pool
        found = jax.device_get(play_on(state, jax.random.key(1)))
        assert env.pool._ahead is None
        env.pool.close()
        expect_same(jax.tree.leaves(found), jax.tree.leaves(expected))
