"""Shuttles on a grid of one-way streets: cooperation in which only idle shuttles act.

A storage hall is a grid of one-way streets (even rows east, odd rows west, even columns north, odd
columns south). Each shuttle carries one load after another from a storage cell to a port. A cell is
a zone that at most one shuttle may hold, and a moving shuttle holds the cell that it leaves as well
as the one that it enters, as in the zone control of automated guided vehicles. So shuttles block
each other, and four that want to follow each other around a block stay deadlocked unless one of
them takes its other exit. Time advances at every step; a shuttle acts only while it is idle.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import Info, MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.shuttle_grid.dispatchers import DISPATCHERS, Dispatcher
from jaxmarl_envs.shuttle_grid.drawing import draw_shift
from jaxmarl_envs.shuttle_grid.observation import Sight, features, held_by_another
from jaxmarl_envs.shuttle_grid.progress import progress
from jaxmarl_envs.shuttle_grid.routes import (
    COLUMN,
    NO_EXIT,
    ROW,
    UNREACHABLE,
    Guidepath,
    Timings,
    is_int,
)
from jaxmarl_envs.shuttle_grid.state import (
    HOLD,
    LEAVE_BY_COLUMN,
    ShuttleParams,
    ShuttleState,
)
from jaxmarl_envs.shuttle_grid.tuned import tuned_dispatcher
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import fold_in, split, unrolled

MAX_SHUTTLES = 64
PRIORITY_LOADED = 1_000_000
PRIORITY_WAIT = 10  # or `A` where that is more, so that no two shuttles are ever level
MAX_PRIORITY_WAIT = 999
REWARDS = ("team", "own", "progress")


class ShuttleGrid(MultiAgentEnv[ShuttleState, ShuttleParams]):
    """Cooperating shuttles that carry loads from storage cells to ports.

    **Actions** (discrete, 3): 0 hold, 1 leave by the row, 2 leave by the column. Exits off the grid
    are masked; requesting one counts as holding. Shuttles with `busy > 0` do not act.

    **A step.** (1) A request is feasible if the requested cell is neither the position nor the
    reserved cell of any other shuttle. (2) Among feasible requests for one cell the highest
    `1e6 * loaded + max(10, A) * min(wait, 999) + (i + t) mod A` wins. (3) Winners reserve the cell,
    hold both cells until they arrive, and are busy for 2 steps (3 if loaded), and 2 more if the
    axis of travel changes. (4) `busy` counts down. When it reaches 0, a moving shuttle arrives,
    gives up the old cell, and begins handling (4 steps) at once if the new one is its target; a
    handling shuttle has picked up or delivered. `wait` counts the consecutive steps at which a
    shuttle was idle and did not leave, by its own choice or not, and is 0 for all other shuttles.

    **Jobs.** The k-th job of shuttle i is drawn from `fold_in(fold_in(key, i), k)`: a uniform cell
    that is not a port, then a uniform port. So jobs do not depend on any actions. At the start,
    shuttles are on distinct uniform cells, with the axis of their row exit if there is one; a
    shuttle that is on its target begins handling.

    **Reward**: the team's deliveries at the step; with `reward="own"` each shuttle's own; with
    `reward="progress"` how much closer the team came to its deliveries, in units of deliveries (see
    `progress.py`). The metric `deliveries` always counts the team's, and `own_deliveries` each
    shuttle's own.

    **End**: all are *terminated* after `params.max_steps` steps. The observation contains the
    remaining time, so values beyond the end are 0 (Pardo et al., 2018, "Time limits in
    reinforcement learning").

    **Observation**: `[A, 16 + 50 + 10 (A - 1)]`, with `full_view` 3 + 6 (A - 1) more, all in
    [-1, 1]; see `observation.py`.

    Args:
        num_shuttles: `A`, from 1 to 64.
        num_rows: `R`; even, as with an odd number a corner of the grid has no exit.
        num_cols: `C`; even, for the same reason.
        ports: `(row, col)` of each port.
        reward: "team", "own" or "progress".
        move_empty: steps to move one cell without a load.
        move_loaded: steps to move one cell with a load.
        turn: steps added to a move when the axis changes.
        handling: steps to pick up or to deliver.
        max_steps: default of `params.max_steps`.
        full_view: also observe what right of way and the other shuttles' routes depend on.
        half_turn: a shuttle in the lower half of the grid observes the grid rotated by 180 degrees,
            as if it were in the upper half. Streets look the same from there, so a policy need not
            learn everything twice; ports must look the same, too.

    Raises:
        ValueError: an argument is out of range.
    """

    name = "shuttle_grid"

    def __init__(
        self,
        num_shuttles: int = 6,
        num_rows: int = 6,
        num_cols: int = 8,
        ports: Sequence[tuple[int, int]] = ((0, 3), (5, 4)),
        reward: str = "team",
        move_empty: int = 2,
        move_loaded: int = 3,
        turn: int = 2,
        handling: int = 4,
        max_steps: int = 256,
        full_view: bool = False,
        half_turn: bool = False,
    ):
        num_cells = num_rows * num_cols
        timings = Timings(move_empty, move_loaded, turn, handling)
        self.guidepath = Guidepath(num_rows, num_cols, ports, timings)
        if not is_int(num_shuttles) or not 1 <= num_shuttles <= min(num_cells, MAX_SHUTTLES):
            raise ValueError(
                f"num_shuttles={num_shuttles!r}: must be an integer from 1 to "
                f"{min(num_cells, MAX_SHUTTLES)} on {num_cells} cells"
            )
        if reward not in REWARDS:
            valid = ", ".join(map(repr, REWARDS))
            raise ValueError(f"reward={reward!r}: valid choices are {valid}")
        if not is_int(max_steps) or max_steps < 1:
            raise ValueError(f"max_steps={max_steps!r}: must be an integer of at least 1")
        for name, value in (("full_view", full_view), ("half_turn", half_turn)):
            if not isinstance(value, bool):
                raise ValueError(f"{name}={value!r}: valid choices are True and False")
        if half_turn and not self.guidepath.is_symmetric:
            raise ValueError(
                f"half_turn=True: turned by 180 degrees the ports {tuple(ports)} are not the same "
                "cells; valid: ports that are, or half_turn=False"
            )
        self.reward, self.max_steps = reward, max_steps
        self.sight = Sight(full_view, half_turn)
        self.agents = tuple(f"shuttle_{i}" for i in range(num_shuttles))

    @property
    def baselines(self) -> Mapping[str, Dispatcher]:
        """Return the scripted dispatchers by name; `tuned` is for six in the default hall."""
        return self._dispatchers

    @cached_property
    def _dispatchers(self) -> Mapping[str, Dispatcher]:
        tuned = tuned_dispatcher(self.guidepath, self.num_agents)
        return DISPATCHERS if tuned is None else {**DISPATCHERS, "tuned": tuned}

    @property
    def action_names(self) -> tuple[str, ...]:
        """Name the three actions."""
        return ("hold", "by the row", "by the column")

    @property
    def default_params(self) -> ShuttleParams:
        """Set the length of a shift to `max_steps` steps."""
        return ShuttleParams(max_steps=self.max_steps)

    def observation_space(self, agent: str, params: ShuttleParams) -> Box:
        """Return the space of a shuttle's features, the same for all."""
        self.agent_index(agent)
        return Box(-1.0, 1.0, (self.sight.width(self.num_agents),))

    def action_space(self, agent: str, params: ShuttleParams) -> Discrete:
        """Return the three actions: hold, leave by the row, leave by the column."""
        self.agent_index(agent)
        return Discrete(3)

    def horizon(self, params: ShuttleParams) -> int | jax.Array:
        """Return the length of every shift, `params.max_steps` steps."""
        return params.max_steps

    def reset_env(self, key: jax.Array, params: ShuttleParams) -> tuple[Observation, ShuttleState]:
        """Begin a shift: distinct uniform cells, everyone empty, and each with its first job."""
        key_cells, key_jobs = split(key)
        num = self.num_agents
        cell = _distinct_cells(key_cells, num, self.guidepath.num_cells)
        job_keys = jax.vmap(fold_in, in_axes=(None, 0))(key_jobs, jnp.arange(num))
        zeros = jnp.zeros(num, jnp.int32)
        storage, port = jax.vmap(self._draw_job)(job_keys, zeros)
        has_row_exit = jnp.asarray(self.guidepath.exits[:, ROW] != NO_EXIT)[cell]
        state = ShuttleState(
            cell=cell,
            reserved=cell,
            axis=jnp.where(has_row_exit, ROW, COLUMN).astype(jnp.int32),
            loaded=jnp.zeros(num, bool),
            busy=jnp.where(cell == storage, self.guidepath.timings.handling, zeros),
            wait=zeros,
            storage=storage,
            port=port,
            num_delivered=zeros,
            job_keys=job_keys,
            exit_times=jnp.zeros((num, 2), jnp.int32),
            time=jnp.int32(0),
        )
        state = replace(state, exit_times=self.exit_times(state))
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: ShuttleState, action: jax.Array, params: ShuttleParams
    ) -> StepResult[ShuttleState]:
        """Advance one step; `action [A]` counts only where the shuttle is idle."""
        del key
        alive = state.time < params.max_steps
        before = state
        state = self._reserve(state, action)
        state, delivered = self._complete(state)
        state = replace(state, time=state.time + 1)
        state = replace(state, exit_times=self.exit_times(state))
        own = (delivered & alive).astype(jnp.float32)
        team = jnp.broadcast_to(own.sum(), own.shape)
        terminated = jnp.broadcast_to(alive & (state.time >= params.max_steps), own.shape)
        info: Info = {"metrics": {"deliveries": team, "own_deliveries": own}}
        reward = own if self.reward == "own" else team
        if self.reward == "progress":
            time_left = params.max_steps - state.time
            gained = progress(before, state, delivered, time_left, self.guidepath)
            reward = jnp.broadcast_to(jnp.where(alive, gained, 0.0).sum(), own.shape)
        obs = self._observe(state, params)
        return obs, state, reward, terminated, jnp.zeros_like(terminated), info

    @property
    def reference(self) -> str:
        """Name the dispatcher that delivers most."""
        return "tuned" if "tuned" in self.baselines else "blocked_penalty"

    def render(
        self, state: ShuttleState, params: ShuttleParams | None = None, last_action: Any = None
    ) -> str:
        """Draw streets, ports, shuttles with their loads and targets, and the cells they hold."""
        del params, last_action
        return draw_shift(self.guidepath, state)

    def exit_times(self, state: ShuttleState) -> jax.Array:
        """Compute the steps until targets are served via row and column exit, `[A, 2]` int32.

        The sum of what is left of the present operation, the move through that exit, the shortest
        way from there with nobody in the way, and handling. At least `UNREACHABLE` where there is
        no such exit.
        """
        exits = jnp.asarray(self.guidepath.exits)[state.reserved]  # [A, 2]
        axes = jnp.arange(2)
        loaded = state.loaded.astype(jnp.int32)
        travel_times = jnp.asarray(self.guidepath.travel_times)
        travel = travel_times[loaded[:, None], exits, axes, state.target[:, None]]
        move = self._move_steps(state.loaded[:, None], state.axis[:, None] != axes)
        times = state.busy[:, None] + move + travel + self.guidepath.timings.handling
        return jnp.where(exits == NO_EXIT, UNREACHABLE, times)

    def _move_steps(self, loaded: jax.Array, turns: jax.Array) -> jax.Array:
        timings = self.guidepath.timings
        return jnp.where(loaded, timings.move_loaded, timings.move_empty) + timings.turn * turns

    def _reserve(self, state: ShuttleState, action: jax.Array) -> ShuttleState:
        """Make parts 1 to 3 of a step: decide who gets to leave; `action` is `[A]` int."""
        idle = state.busy == 0
        axis = jnp.where(action == LEAVE_BY_COLUMN, COLUMN, ROW).astype(jnp.int32)
        exits = jnp.asarray(self.guidepath.exits)[state.cell]  # [A, 2]
        goal = jnp.where(axis == COLUMN, exits[:, COLUMN], exits[:, ROW])
        requested = idle & (action != HOLD) & (goal != NO_EXIT)
        feasible = requested & ~held_by_another(goal, state)
        priority = self._priority(state)
        rival = feasible & (goal[:, None] == goal)  # [A, A]
        beaten = (rival & (priority[:, None] < priority)).any(axis=1)
        leaves = feasible & ~beaten
        return replace(
            state,
            reserved=jnp.where(leaves, goal, state.reserved),
            busy=jnp.where(leaves, self._move_steps(state.loaded, axis != state.axis), state.busy),
            axis=jnp.where(leaves, axis, state.axis),
            wait=jnp.where(idle & ~leaves, state.wait + 1, 0),
        )

    def _priority(self, state: ShuttleState) -> jax.Array:
        """Rank shuttles, `[A]` int32, without ties: loaded first, then who waited, then in turn."""
        num = self.num_agents
        wait = jnp.minimum(state.wait, MAX_PRIORITY_WAIT)
        turn = (jnp.arange(num) + state.time) % num
        return PRIORITY_LOADED * state.loaded + max(PRIORITY_WAIT, num) * wait + turn

    def _complete(self, state: ShuttleState) -> tuple[ShuttleState, jax.Array]:
        """Make part 4 of a step: let time pass. Returns the state and who delivered, `[A]` bool."""
        finished = state.busy == 1
        arrived = finished & (state.reserved != state.cell)
        handled = finished & ~arrived
        delivered = handled & state.loaded
        num_delivered = state.num_delivered + delivered
        storage, port = jax.vmap(self._draw_job)(state.job_keys, num_delivered)
        state = replace(
            state,
            cell=jnp.where(arrived, state.reserved, state.cell),
            busy=jnp.maximum(state.busy - 1, 0),
            loaded=state.loaded ^ handled,
            num_delivered=num_delivered,
            storage=jnp.where(delivered, storage, state.storage),
            port=jnp.where(delivered, port, state.port),
        )
        # A new target is never the cell on which it was handed out, so arriving is the only way in.
        starts = arrived & (state.cell == state.target)
        busy = jnp.where(starts, self.guidepath.timings.handling, state.busy)
        return replace(state, busy=busy), delivered

    def _draw_job(self, job_key: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw the storage cell and the port of a shuttle's `index`-th job, scalars.

        One word of random bits serves both draws: it leaves the uniform distribution by less than
        one part in 2^32 per combination and costs a fraction of two calls of `randint`.
        """
        storage_cells = jnp.asarray(self.guidepath.storage_cells)
        port_cells = jnp.asarray(self.guidepath.port_cells)
        bits = jax.random.bits(unrolled(fold_in(job_key, index)), dtype=jnp.uint32)
        storage = storage_cells[bits % len(storage_cells)]
        port = port_cells[bits // len(storage_cells) % len(port_cells)]
        return storage, port

    def _observe(self, state: ShuttleState, params: ShuttleParams) -> Observation:
        # Without the barrier XLA computes parts of the state, random bits included, several times.
        state = jax.lax.optimization_barrier(state)
        num = self.num_agents
        alive = jnp.broadcast_to(state.time < params.max_steps, (num,))
        legal = jnp.asarray(self.guidepath.exits)[state.reserved] != NO_EXIT
        return Observation(
            features=features(
                state, self.guidepath, params.max_steps, self._priority(state), self.sight
            ),
            action_mask=jnp.concatenate([jnp.ones((num, 1), bool), legal], axis=1),
            alive=alive,
            agent_mask=alive & (state.busy == 0),
        )


def _distinct_cells(key: jax.Array, num: int, num_cells: int) -> jax.Array:
    """Draw distinct uniform cells, `[num]` int32: `num` steps of a Fisher-Yates shuffle.

    Step m swaps places m and j_m >= m. Instead of moving `num_cells` entries about, what stands at
    place j_i before step i is found by undoing the steps before it: place j_m held what was at m.
    """
    steps = jnp.arange(num)
    bits = jax.random.bits(unrolled(key), (num,), jnp.uint32)
    swapped = steps + (bits % (num_cells - steps).astype(jnp.uint32)).astype(jnp.int32)
    place = swapped
    for m in reversed(range(num - 1)):
        place = jnp.where((steps > m) & (place == swapped[m]), m, place)
    return place
