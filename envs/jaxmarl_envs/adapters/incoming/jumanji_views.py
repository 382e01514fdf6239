"""What each agent sees of an environment of Jumanji, whose observations are of all agents at once.

Letters: `A` agents, `R` rows and `C` columns of a grid.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# How Jumanji calls the number of steps played, which is shown as a part of the time limit.
_CLOCKS = ("step_count", "step")


class OneAgent:
    """Show everything but the mask to the only agent.

    Args:
        game: a Jumanji environment.
    """

    def __init__(self, game: Any) -> None:
        self.game, self.num_agents = game, 1

    def parts(self, seen: Any) -> list[jax.Array]:
        """List the arrays that the agents see, `[A, ...]` each."""
        return [part[None] for _, part in self._named(seen)]

    def _named(self, seen: Any) -> Iterator[tuple[str, jax.Array]]:
        """Yield name and values of all parts of an observation but the mask."""
        limit = getattr(self.game, "time_limit", 1)
        for path, part in jax.tree_util.tree_leaves_with_path(seen):
            name = jax.tree_util.keystr(path[-1:], simple=True)
            if name != "action_mask":
                yield name, jnp.asarray(part) / (limit if name in _CLOCKS else 1)


class Team(OneAgent):
    """Show each agent its own row of what has a row for each of them, and everything else."""

    def __init__(self, game: Any) -> None:
        super().__init__(game)
        self.num_agents = int(game.num_agents)

    def parts(self, seen: Any) -> list[jax.Array]:
        """List the arrays that the agents see, `[A, ...]` each."""
        return [
            part if part.shape[:1] == (self.num_agents,) else self._for_all(part)
            for _, part in self._named(seen)
        ]

    def _for_all(self, part: jax.Array) -> jax.Array:
        return jnp.broadcast_to(part, (self.num_agents, *part.shape))

    def _clock(self, seen: Any) -> jax.Array:
        return self._for_all(dict(self._named(seen))["step_count"])


class LevelBasedForaging(Team):
    """Put the planes of a view last, where a view has planes."""

    def parts(self, seen: Any) -> list[jax.Array]:
        """List the arrays that the agents see, `[A, ...]` each."""
        view, *rest = super().parts(seen)
        return [jnp.moveaxis(view, 1, -1) if view.ndim == 4 else view, *rest]


class Cleaner(Team):
    """Show planes of dirty tiles, walls, the number of agents on each tile, and the own place."""

    def parts(self, seen: Any) -> list[jax.Array]:
        """List planes `[A, R, C, 4]` and the clock `[A]`."""
        row, column = jnp.moveaxis(seen.agents_locations, -1, 0)
        here = jnp.zeros((self.num_agents, *seen.grid.shape))
        here = here.at[jnp.arange(self.num_agents), row, column].set(1.0)
        dirty, wall = (self._for_all(seen.grid == kind) for kind in (0, 2))
        planes = [dirty, wall, self._for_all(here.sum(0)), here]
        return [jnp.stack(planes, axis=-1), self._clock(seen)]


class Connector(Team):
    """Show planes of paths, heads and targets: those of all agents, then the agent's own.

    Jumanji's grid has 1, 2, 3 for these of the first agent, 4, 5, 6 of the second, and so on, the
    same for all agents, so that nobody could tell which of them it is.
    """

    def parts(self, seen: Any) -> list[jax.Array]:
        """List planes `[A, R, C, 6]` and the clock `[A]`."""
        grid = seen.grid[..., None]
        kinds = np.arange(1, 4)  # path, head, target
        of_all = (grid > 0) & ((grid - 1) % 3 + 1 == kinds)
        own = grid[None] == 3 * np.arange(self.num_agents)[:, None, None, None] + kinds
        return [jnp.concatenate([self._for_all(of_all), own], axis=-1), self._clock(seen)]


# One decision for all is what Jumanji asks of MMST: the grid of its labels is of no single agent.
_VIEWS: dict[str, type[OneAgent]] = {
    "Cleaner": Cleaner,
    "Connector": Connector,
    "LevelBasedForaging": LevelBasedForaging,
    "MMST": OneAgent,
}


def view_of(game: Any) -> OneAgent:
    """Choose how an environment is seen, by its class or the nearest of its bases.

    Others are a team if they count their agents and take a row of the action from each.
    """
    for cls in type(game.unwrapped).__mro__:
        if cls.__name__ in _VIEWS:
            return _VIEWS[cls.__name__](game)
    num_agents = getattr(game, "num_agents", None)
    is_team = num_agents is not None and game.action_spec.shape[:1] == (num_agents,)
    return Team(game) if is_team else OneAgent(game)
