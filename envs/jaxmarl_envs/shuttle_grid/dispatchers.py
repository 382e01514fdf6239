"""Scripted dispatchers for `shuttle_grid`, the baselines that a trained policy is measured against.

A dispatcher is a pure function `(state, obs, params, key) -> action [A]` of one environment;
callers `vmap`. Deliveries per shift of 256 steps with the default layout, over 4,096 shifts (the
last over 8,192):

================ ========== =====================================================
dispatcher       deliveries what it does
================ ========== =====================================================
hold             0          nothing
uniform          1.8        any of the three actions
greedy           19.5       the exit of the shortest time; a quarter end deadlocked
other_exit       23.8       greedy, but the other exit after 8 waits
blocked_penalty  24.2       greedy, with a blocked exit taken to cost 12 steps more
tuned            24.7       greedy by costs that were tuned, see `tuned.py`
================ ========== =====================================================

The last is among `ShuttleGrid.baselines` for six shuttles in the default layout only. Six that are
never in each other's way (each alone on the grid, greedy) make 30.4.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import Observation
from jaxmarl_envs.shuttle_grid.observation import EXIT_FREE
from jaxmarl_envs.shuttle_grid.routes import UNREACHABLE
from jaxmarl_envs.shuttle_grid.state import (
    HOLD,
    LEAVE_BY_COLUMN,
    LEAVE_BY_ROW,
    ShuttleParams,
    ShuttleState,
)

PATIENCE = 8  # waits after which `other_exit` gives up its first choice
BLOCKED_PENALTY = 12  # steps

Dispatcher = Callable[[ShuttleState, Observation, ShuttleParams, jax.Array], jax.Array]


def hold(state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array) -> jax.Array:
    """Keep every shuttle where it is."""
    del obs, params, key
    return jnp.full_like(state.cell, HOLD)


def uniform(
    state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
) -> jax.Array:
    """Draw one of the three actions; asking for an exit off the grid is holding."""
    del obs, params
    return jax.random.randint(key, state.cell.shape, HOLD, LEAVE_BY_COLUMN + 1)


def greedy(
    state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
) -> jax.Array:
    """Choose the exit that serves the target soonest without others in the way; ties by the row."""
    del obs, params, key
    return _quickest(state.exit_times)


def other_exit(
    state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
) -> jax.Array:
    """Choose as `greedy`, but after 8 waits at a blocked exit the other one, if there is one.

    That breaks every deadlock: of shuttles that follow each other round a block, those at its
    corners that have an exit out of it take it.
    """
    del params, key
    by_column = _quickest(state.exit_times) == LEAVE_BY_COLUMN
    blocked = _blocked(obs)
    stuck = (state.wait >= PATIENCE) & jnp.where(by_column, blocked[:, 1], blocked[:, 0])
    legal = state.exit_times < UNREACHABLE
    has_other = jnp.where(by_column, legal[:, 0], legal[:, 1])
    return jnp.where(by_column ^ (stuck & has_other), LEAVE_BY_COLUMN, LEAVE_BY_ROW)


def blocked_penalty(
    state: ShuttleState, obs: Observation, params: ShuttleParams, key: jax.Array
) -> jax.Array:
    """Choose as `greedy`, with 12 steps added where the exit is held by another now."""
    del params, key
    return _quickest(state.exit_times + BLOCKED_PENALTY * _blocked(obs))


DISPATCHERS: dict[str, Dispatcher] = {
    "hold": hold,
    "uniform": uniform,
    "greedy": greedy,
    "other_exit": other_exit,
    "blocked_penalty": blocked_penalty,
}


def _quickest(times: jax.Array) -> jax.Array:
    """Choose the exit of the least of `times [A, 2]`, as actions `[A]`."""
    return jnp.where(times[:, 1] < times[:, 0], LEAVE_BY_COLUMN, LEAVE_BY_ROW)


def _blocked(obs: Observation) -> jax.Array:
    """Return which exits are held by another now, or are none, `[A, 2]` bool."""
    return obs.features[:, EXIT_FREE] == 0
