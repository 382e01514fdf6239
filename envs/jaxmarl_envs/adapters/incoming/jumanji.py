"""Jumanji's environments: warehouses, foraging, routing, packing and puzzles.

>>> env, params = jaxmarl_envs.make("jumanji", env_id="RobotWarehouse-v0")

Jumanji is an extra, imported when the first such environment is built; its import takes seconds.
"""

import copy
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.compiled import (
    NEVER,
    check_interface,
    check_planes,
    strongly_typed,
    unknown_id,
)
from jaxmarl_envs.adapters.incoming.jumanji_views import Team, view_of
from jaxmarl_envs.adapters.incoming.time_limit import check_at_time_limit
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.permission import ask_permission
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space

# Packages of environments that a file may name, see `permission`.
_PACKAGES = ("jumanji",)


def jumanji(
    env_id: str, planes: bool = False, at_time_limit: str | None = None, **options: Any
) -> "Jumanji":
    """Bring in a Jumanji environment by its id.

    Args:
        env_id: a Jumanji id such as "RobotWarehouse-v0", also one that you registered with Jumanji.
        planes: as in `from_jumanji`.
        at_time_limit: as in `from_jumanji`.
        **options: keyword arguments of the Jumanji environment, such as `time_limit=200`. A
            `generator` may be a dict: keyword arguments of the class of the default generator.

    Raises:
        ImportError: Jumanji is not installed.
        ValueError: an unknown id or option, a value that Jumanji rejects, or for the reasons of
            `from_jumanji`.
    """
    game = _make_game(env_id, options)
    return Jumanji(game, env_id, planes, at_time_limit)


def from_jumanji(game: Any, planes: bool = False, at_time_limit: str | None = None) -> "Jumanji":
    """Bring in a Jumanji environment given as an object; not one that resets itself.

    Args:
        game: a `jumanji.Environment`, also a wrapped one or a class of your own.
        planes: features `[A, rows, cols, planes]` instead of flat: grids become planes of their own
            numbers, and single numbers become constant planes.
        at_time_limit: "truncates" or "terminates" overrides what Jumanji's discount says of an end
            by time alone; None leaves it.

    Raises:
        ValueError: no such environment, one that resets itself, actions of another kind, `planes`
            of what is not planes, or `at_time_limit="truncates"` without a time limit.
    """
    names = ("unwrapped", "reset", "step", "action_spec")
    check_interface("from_jumanji", game, "Jumanji", *names)
    return Jumanji(game, type(game.unwrapped).__name__, planes, at_time_limit)


@struct.dataclass
class JumanjiState:
    """Jumanji's own state, whose action counts next, and whether the episode is over."""

    game: Any
    acts: jax.Array  # [A] bool
    over: jax.Array  # [] bool


class Jumanji(MultiAgentEnv[JumanjiState, tuple[()]]):
    """An environment of Jumanji (Bonnet et al. 2024), stepped by its own `reset` and `step`.

    * **Agents.** RobotWarehouse, LevelBasedForaging, Connector, Cleaner and SearchAndRescue have
      `agent_0`, `agent_1`, and so on, and so has any other with `num_agents` and a row of the
      action for each. All others have one agent, `agent`; so has MMST, whose action is one for all.
    * **Randomness.** The key of a reset is Jumanji's key. Jumanji keeps it in its state, so the key
      of a step has no effect.
    * **Rewards** are Jumanji's; one number for a team is paid to each of its agents.
    * **Ends.** Jumanji ends an episode for all at once. A last discount of 0 is a termination, any
      other a truncation, for each agent by its own. RobotWarehouse, Cleaner, SearchAndRescue and
      all single agents thus terminate at their time limit; see `at_time_limit`.
    * **Lives.** All agents live until the episode is over. One whose own discount is 0 before, as
      an agent of Connector that is connected or blocked, waits: `agent_mask` is False, and what it
      still earns belongs to its last decision.
    * **Actions.** Several choices with one mask over their combinations (Tetris, BinPack,
      FlatPack, Minesweeper, Sudoku) are a single choice of all combinations, in the order of
      `numpy.ndindex`; with a mask for each choice (JobShop, MMST, MultiCVRP) or without one
      (RubiksCube) they are a MultiDiscrete. Of a choice with nothing legal, everything is.
    * **Observations** are flattened to float32, without the mask, and clocks as a part of the time
      limit. Of arrays with a row for each agent, agents see their own; see `jumanji_views`.
    * **Metrics** are Jumanji's `extras` that are single numbers, as they are at an episode's end.

    For arguments and errors see `jumanji` and `from_jumanji`.
    """

    def __init__(self, game: Any, name: str, planes: bool, at_time_limit: str | None) -> None:
        check_planes(planes)
        check_at_time_limit(at_time_limit)
        _check_does_not_reset(game)
        self.name, self.game, self._planes = name, game, planes
        self._view = view_of(game)
        self._is_team = isinstance(self._view, Team)
        slots = range(self._view.num_agents)
        self.agents = tuple(f"agent_{i}" for i in slots) if self._is_team else ("agent",)
        self.at_time_limit = at_time_limit
        self._untimed = _without_time_limit(game, name) if at_time_limit == "truncates" else None
        seen = jax.eval_shape(game.reset, jax.random.key(0))[1].observation
        mask = getattr(seen, "action_mask", None)
        self._combinations = None if self._is_team else _combinations(game.action_spec, mask)
        self._spaces = self._own_spaces(mask)
        self._layout = ActionLayout(dict(zip(self.agents, self._spaces, strict=True)))
        self._shape = jax.eval_shape(self._features, seen).shape[1:]

    def _own_spaces(self, mask: Any) -> list[Space]:
        """Turn Jumanji's action space of all agents into one of each."""
        spec = self.game.action_spec
        if self._combinations is not None:
            return [Discrete(math.prod(self._combinations))]
        num_agents = len(self.agents)
        if jnp.issubdtype(spec.dtype, jnp.floating) and hasattr(spec, "minimum"):
            low, high = (
                np.broadcast_to(np.asarray(end, np.float32), spec.shape).reshape(num_agents, -1)
                for end in (spec.minimum, spec.maximum)
            )
            return [Box(*ends, ends[0].shape) for ends in zip(low, high, strict=True)]
        counts = _counts(self.name, spec, mask).reshape(num_agents, -1).tolist()
        is_one_choice = len(spec.shape) == self._is_team
        return [Discrete(own[0]) if is_one_choice else MultiDiscrete(own) for own in counts]

    @property
    def default_params(self) -> tuple[()]:
        """Return an empty tuple, since there are no numeric parameters."""
        return ()

    def horizon(self, params: tuple[()]) -> int | None:
        """Return Jumanji's time limit in steps, if any."""
        limit = getattr(self.game, "time_limit", None)
        return None if limit is None else int(limit)

    def observation_space(self, agent: str, params: tuple[()]) -> Box:
        """Return a space with the shape of an agent's features, without bounds."""
        self.agent_index(agent)
        return Box(-np.inf, np.inf, self._shape)

    def action_space(self, agent: str, params: tuple[()]) -> Space:
        """Return the agent's own action space, flattened."""
        return self._spaces[self.agent_index(agent)]

    def reset_env(self, key: jax.Array, params: tuple[()]) -> tuple[Observation, JumanjiState]:
        """Reset Jumanji's game with this very key."""
        game, timestep = self.game.reset(key)
        acts = jnp.ones(self.num_agents, bool)
        state = JumanjiState(strongly_typed(game), acts, jnp.bool_(False))
        return self._observe(timestep.observation, state), state

    def step_env(
        self, key: jax.Array, state: JumanjiState, action: Any, params: tuple[()]
    ) -> StepResult[JumanjiState]:
        """Step Jumanji's game; the key has no effect."""
        chosen = self._chosen(state, action)
        game, timestep = self.game.step(state.game, chosen)
        continues = self._for_all(timestep.discount) > 0
        ends = timestep.last() & ~state.over
        truncated = ends & self._is_cut_off(state, chosen, continues)
        # A game that is over continues in Jumanji.
        reward = jnp.where(state.over, 0.0, self._for_all(timestep.reward)).astype(jnp.float32)
        metrics = {
            name: jnp.where(ends, self._for_all(value), 0).astype(jnp.float32)
            for name, value in timestep.extras.items()
            if jnp.ndim(value) == 0
        }
        over = state.over | ends
        state = JumanjiState(strongly_typed(game), continues & ~over, over)
        obs = self._observe(timestep.observation, state)
        return obs, state, reward, ends & ~truncated, truncated, {"metrics": metrics}

    def _is_cut_off(
        self, state: JumanjiState, chosen: jax.Array, continues: jax.Array
    ) -> jax.Array:
        """Return for whom an end at this step is a truncation, `[A]` bool.

        `continues` is `[A]` bool: whose discount is not 0.
        """
        if self.at_time_limit == "terminates":
            return jnp.zeros_like(continues)
        if self._untimed is None:
            return continues
        by_itself = self._untimed.step(state.game, chosen)[1].last()
        return jnp.where(continues.any(), continues, ~by_itself)

    def _chosen(self, state: JumanjiState, action: Any) -> jax.Array:
        """Write the actions of all agents as Jumanji's; 0 for those that do not act."""
        spec = self.game.action_spec
        choices, numbers = self._layout.split(action)
        chosen = jnp.where(state.acts[:, None], numbers if choices.size == 0 else choices, 0)
        if self._combinations is not None:
            chosen = jnp.stack(jnp.unravel_index(chosen[0, 0], self._combinations))
        return chosen.reshape(spec.shape).astype(spec.dtype)

    def _for_all(self, x: Any) -> jax.Array:
        """Give one number to each agent; one for each is left as it is, `[A]`."""
        return jnp.broadcast_to(x, (self.num_agents,))

    def _observe(self, seen: Any, state: JumanjiState) -> Observation:
        alive = jnp.full(self.num_agents, ~state.over)
        legal = jnp.asarray(self._layout.exists)
        mask = getattr(seen, "action_mask", None)
        if mask is not None:
            counts = self._layout.counts
            rows = mask.astype(bool).reshape(self.num_agents, len(counts), -1)
            rows = rows | ~rows.any(-1, keepdims=True)
            legal &= jnp.concatenate([rows[:, i, :n] for i, n in enumerate(counts)], axis=-1)
        return Observation(self._features(seen), legal, alive, agent_mask=state.acts)

    def _features(self, seen: Any) -> jax.Array:
        """Write what the agents see as one array, `[A, D]` or `[A, rows, cols, planes]`."""
        parts = [part.astype(jnp.float32) for part in self._view.parts(seen)]
        if not self._planes:
            return jnp.concatenate([part.reshape(self.num_agents, -1) for part in parts], axis=-1)
        grids = {part.shape[1:3] for part in parts if part.ndim in (3, 4)}
        if len(grids) != 1 or any(part.ndim == 2 or part.ndim > 4 for part in parts):
            shapes = ", ".join(str(part.shape[1:]) for part in parts)
            raise ValueError(
                f"planes=True: an agent of {self.name!r} sees arrays of the shapes {shapes}, not "
                "grids of one size and single numbers"
            )
        (grid,) = grids
        planes = [part.reshape(*part.shape[:3], -1) for part in parts if part.ndim > 1]
        numbers = [part[:, None, None, None] for part in parts if part.ndim == 1]
        numbers = [jnp.broadcast_to(x, (self.num_agents, *grid, 1)) for x in numbers]
        return jnp.concatenate([*planes, *numbers], axis=-1)


def _combinations(spec: Any, mask: Any) -> tuple[int, ...] | None:
    """Return the options of each of several choices that share a mask, or None."""
    counts = np.asarray(getattr(spec, "num_values", 0))
    if mask is None or counts.ndim != 1 or mask.shape != tuple(counts.tolist()):
        return None
    return mask.shape


def _counts(name: str, spec: Any, mask: Any) -> np.ndarray:
    """Return how many options each integer of an action has; the mask's, as it may have fewer."""
    if hasattr(spec, "num_values"):
        return np.asarray(spec.num_values)
    if mask is not None and mask.shape[:-1] == spec.shape and not np.any(spec.minimum):
        return np.full(spec.shape, mask.shape[-1])
    raise ValueError(
        f"{name!r}: the action {spec}: valid kinds are DiscreteArray, MultiDiscreteArray, a "
        "BoundedArray of floats, and one of integers from 0 that have a mask each"
    )


def _check_does_not_reset(game: Any) -> None:
    """Raise an error for wrappers that reset or batch a game, which the trainer does itself."""
    wrappers = import_extra("jumanji.wrappers", "jumanji")
    while isinstance(game, wrappers.Wrapper):
        names = ("AutoResetWrapper", "VmapAutoResetWrapper", "VmapWrapper")
        if isinstance(game, tuple(getattr(wrappers, name) for name in names)):
            raise ValueError(
                f"{type(game).__name__} resets or batches the environment, as the trainer does; "
                "give what it wraps"
            )
        game = game._env


def _without_time_limit(game: Any, name: str) -> Any:
    """Copy a game without its time limit, to learn whether it would have ended without it."""
    if "time_limit" not in vars(game):
        raise ValueError(
            f"at_time_limit='truncates': the class {type(game).__name__} of {name!r} has no time "
            "limit of its own"
        )
    untimed = copy.copy(game)
    untimed.time_limit = NEVER
    return untimed


def _make_game(env_id: str, options: dict[str, Any]) -> Any:
    library = import_extra("jumanji", "jumanji")
    registry = library.registration._REGISTRY
    if not isinstance(env_id, str) or env_id not in registry:
        raise unknown_id(env_id, sorted(registry))
    place = registry[env_id].entry_point
    ask_permission(env_id, place, _PACKAGES)
    parameters = inspect.signature(library.registration.load(place)).parameters
    for name in options:
        if name not in parameters:
            raise ValueError(
                f"Jumanji environment {env_id!r} takes no option {name!r}; valid options: "
                f"{', '.join(parameters)}"
            )
    try:
        if isinstance(options.get("generator"), dict):
            options = {**options, "generator": _generator(library.make(env_id), options)}
        return library.make(env_id, **options)
    except (TypeError, ValueError, AssertionError, AttributeError) as error:
        raise ValueError(
            f"Jumanji environment {env_id!r} cannot be built with the options {options}: {error}"
        ) from error


def _generator(game: Any, options: dict[str, Any]) -> Any:
    """Build a generator of the class that a game has by default."""
    own = getattr(game, "generator", None) or game._generator
    return type(own)(**options["generator"])
