"""The scripted dispatchers of `shuttle_grid` and the figures that they are known by."""

from dataclasses import replace

import jax
import pytest
from shuttle_oracle import put, trace

from jaxmarl_envs.shuttle_grid import (
    DISPATCHERS,
    LEAVE_BY_COLUMN,
    LEAVE_BY_ROW,
    ShuttleGrid,
    evaluate_dispatcher,
)
from jaxmarl_envs.shuttle_grid.dispatchers import blocked_penalty, greedy, other_exit


@pytest.fixture(scope="module")
def env():
    return ShuttleGrid()


def test_dispatchers_by_hand(env):
    _, start = jax.jit(env.reset_env)(jax.random.key(0), env.default_params)
    observe = jax.jit(env._observe)
    # Shuttle 0 at (2, 2), axis row, wants (2, 4): by row 2 + 2 + 4 = 8, by column a long way round.
    # Shuttle 1 stands on (2, 3), in its way, and wants (4, 0).
    cells = [(2, 2), (2, 3), (4, 0), (4, 2), (4, 4), (4, 6)]
    storage = [20, 32, 46, 46, 46, 46]
    state = put(env, start, cells, storage=storage)
    assert int(state.exit_times[0, 0]) == 8
    assert int(state.exit_times[0, 1]) > 8 + 12
    key, params = jax.random.key(0), env.default_params
    obs = observe(state, params)
    assert int(greedy(state, obs, params, key)[0]) == LEAVE_BY_ROW
    assert int(blocked_penalty(state, obs, params, key)[0]) == LEAVE_BY_ROW
    for wait, expected in ((7, LEAVE_BY_ROW), (8, LEAVE_BY_COLUMN)):
        waiting = replace(state, wait=state.wait + wait)
        assert int(other_exit(waiting, obs, params, key)[0]) == expected
    free = put(env, start, [(2, 2), (5, 3), *cells[2:]], storage=storage, wait=[8] * 6)
    assert int(other_exit(free, observe(free, params), params, key)[0]) == LEAVE_BY_ROW
    # With 12 ticks less between the exits the penalty decides.
    close = replace(state, exit_times=state.exit_times.at[0, 1].set(19))
    assert int(blocked_penalty(close, obs, params, key)[0]) == LEAVE_BY_COLUMN
    tied = replace(state, exit_times=state.exit_times.at[0, 1].set(20))
    assert int(blocked_penalty(tied, obs, params, key)[0]) == LEAVE_BY_ROW


def test_evaluation_on_another_size():
    env = ShuttleGrid(num_shuttles=2, num_rows=4, num_cols=4, ports=((0, 0),), max_steps=100)
    deliveries = evaluate_dispatcher(env, env.default_params, blocked_penalty, jax.random.key(0), 8)
    assert deliveries.shape == (8,)
    assert (deliveries > 0).all()
    with pytest.raises(ValueError, match="num_episodes=0"):
        evaluate_dispatcher(env, env.default_params, blocked_penalty, jax.random.key(0), 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dispatcher", "expected", "tolerance"),
    # Four standard errors of 2,048 shifts, and of the figure where it is a measured one.
    [
        ("hold", 0.0, 0.0),
        ("uniform", 1.8, 0.05 + 4 * 0.027),
        ("greedy", 19.5, 4 * (0.2**2 + 0.17**2) ** 0.5),
        ("other_exit", 23.8, 4 * (0.05**2 + 0.04**2) ** 0.5),
        ("blocked_penalty", 24.2, 4 * (0.08**2 + 0.04**2) ** 0.5),
    ],
)
def test_deliveries_of_each_dispatcher(env, dispatcher, expected, tolerance):
    deliveries = evaluate_dispatcher(
        env, env.default_params, DISPATCHERS[dispatcher], jax.random.key(21), 2048
    )
    assert abs(float(deliveries.mean()) - expected) <= tolerance


def test_deliveries_without_contention():
    env = ShuttleGrid(num_shuttles=1)
    deliveries = 6 * evaluate_dispatcher(env, env.default_params, greedy, jax.random.key(22), 2048)
    assert abs(float(deliveries.mean()) - 30.3) < 0.05 + 4 * 0.08


@pytest.mark.slow
def test_how_often_they_act_and_end_deadlocked(env):
    @jax.jit
    @jax.vmap
    def shift(key):
        _, (_, obs, state, *_) = trace(env, greedy, key, 256)
        return state.wait[-1], obs.agent_mask.mean()

    wait, acting = jax.device_get(shift(jax.random.split(jax.random.key(23), 1024)))
    deadlocked = (wait >= 50).all(axis=1).mean()  # nobody has moved for 50 ticks
    assert abs(deadlocked - 0.235) < 4 * (0.235 * 0.765 / 1024 + 0.235 * 0.765 / 1500) ** 0.5
    assert 0.3 < acting.mean() < 0.52
