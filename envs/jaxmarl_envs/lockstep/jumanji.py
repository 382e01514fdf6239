"""Environments of Jumanji, stepped by their own `reset` and `step`."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.lockstep.original import Chosen, Original, Reported


class JumanjiOriginal(Original):
    """An environment of Jumanji; an agent whose discount is 0 acts no more.

    Args:
        env: what the adapter made of it.
        params: of `env`.
    """

    def __init__(self, env: Any, params: Any) -> None:
        self.game, self.agents = env.game, env.agents
        self.at_time_limit = env.at_time_limit
        self._reset, self._step = jax.jit(self.game.reset), jax.jit(self.game.step)

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin an episode."""
        self._state, timestep = self._reset(key)
        self._earned = np.zeros(len(self.agents))
        return self._see(timestep)

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Step with 0 for those who do not act."""
        spec, rows = self.game.action_spec, []
        for agent in self.agents:
            choices, numbers = chosen.get(agent, (np.zeros(0), np.zeros(0)))
            row = np.concatenate([choices, numbers])
            rows.append(row if row.size else np.zeros(max(spec.shape[1:], default=1)))
        action = np.concatenate(rows)
        if action.size < np.prod(spec.shape):  # one choice over combinations
            action = np.unravel_index(int(action[0]), spec.num_values)
        action = np.reshape(action, spec.shape).astype(spec.dtype)
        self._state, timestep = self._step(self._state, jnp.asarray(action))
        return self._see(timestep)

    def _see(self, timestep: Any) -> Reported:
        over = bool(timestep.last())
        self._earned += np.broadcast_to(timestep.reward, len(self.agents))
        discounts = np.broadcast_to(timestep.discount, len(self.agents))
        continues = dict(zip(self.agents, discounts > 0, strict=True))
        kinds = {a: "truncated" if on else "terminated" for a, on in continues.items()}
        acts = [agent for agent, on in continues.items() if on and not over]
        seen, mask = timestep.observation, getattr(timestep.observation, "action_mask", None)
        rows = [] if mask is None else np.asarray(mask, bool).reshape(len(self.agents), -1)
        return Reported(
            observations={
                agent: self._numbers(seen, slot) for slot, agent in enumerate(self.agents)
            },
            acting=acts,
            action_masks={a: row for a, row in zip(self.agents, rows, strict=False) if a in acts},
            returns=dict(zip(self.agents, self._earned.tolist(), strict=True)),
            ends=kinds if over else {},
            is_over=over,
        )

    def _numbers(self, seen: Any, slot: int) -> np.ndarray:
        """Write what an agent sees as a row, as docs/environments.md says."""
        limit = getattr(self.game, "time_limit", 1)
        kind = next((k for k in _TEAMS if k in _bases(self.game)), None)
        parts = _TEAMS[kind](seen, slot) if kind else _all_parts(seen)
        rows = [np.ravel(np.asarray(part) / (limit if is_clock else 1)) for part, is_clock in parts]
        return np.concatenate(rows).astype(np.float32)


def _bases(game: Any) -> list[str]:
    return [cls.__name__ for cls in type(game.unwrapped).__mro__]


def _all_parts(seen: Any) -> list[tuple[Any, bool]]:
    """List all parts but the mask, with whether each is the number of steps."""
    named = [
        (jax.tree_util.keystr(path[-1:], simple=True), part)
        for path, part in jax.tree_util.tree_leaves_with_path(seen)
    ]
    return [(part, name == "step_count") for name, part in named if name != "action_mask"]


def _connector(seen: Any, slot: int) -> list[tuple[Any, bool]]:
    grid = np.asarray(seen.grid)
    planes = np.zeros((*grid.shape, 6))
    for place, value in np.ndenumerate(grid):
        if value:
            owner, kind = divmod(int(value) - 1, 3)
            planes[(*place, kind)] = 1
            planes[(*place, 3 + kind)] = owner == slot
    return [(planes, False), (seen.step_count, True)]


def _cleaner(seen: Any, slot: int) -> list[tuple[Any, bool]]:
    planes = np.zeros((*seen.grid.shape, 4))
    planes[..., 0], planes[..., 1] = seen.grid == 0, seen.grid == 2
    for other, place in enumerate(np.asarray(seen.agents_locations)):
        planes[(*place, 2)] += 1
        planes[(*place, 3)] += other == slot
    return [(planes, False), (seen.step_count, True)]


def _own_view(seen: Any, slot: int) -> list[tuple[Any, bool]]:
    return [(seen.agents_view[slot], False), (seen.step_count, True)]


def _searchers(seen: Any, slot: int) -> list[tuple[Any, bool]]:
    views, left, step, positions = seen
    return [(views[slot], False), (left, False), (step, True), (positions[slot], False)]


_TEAMS = {
    "Cleaner": _cleaner,
    "Connector": _connector,
    "LevelBasedForaging": _own_view,
    "RobotWarehouse": _own_view,
    "SearchAndRescue": _searchers,
}
