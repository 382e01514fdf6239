"""Any gymnax environment for any number of agents, each in a separate game.

>>> env, params = make_multi_agent("CartPole-v1", num_agents=4)
>>> env = from_gymnax(CraftaxSymbolicEnv())

gymnax is imported when the first such environment is built, because its import brings plotting
libraries along and takes seconds.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.compiled import (
    NEVER,
    check_interface,
    options_of,
    strongly_typed,
    unknown_id,
)
from jaxmarl_envs.adapters.incoming.time_limit import check_limits, earliest, read_ends
from jaxmarl_envs.core import MEASURES, MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.observations import Part, is_image
from jaxmarl_envs.registry import make
from jaxmarl_envs.spaces import Box, Discrete, Space, is_known

# Names of our own: a gymnax environment and what is seen of it.
_PARTLY_OBSERVED = {"StatelessCartPole": ("CartPole-v1", (0, 2))}
# Environments of Craftax, which has gymnax's interface, without its pictures.
_CRAFTAX = ("Craftax-Classic-Symbolic-v1", "Craftax-Symbolic-v1")
# What `info` holds that is no metric: a discount, Craftax's score of one episode, whose mean is not
# Crafter's score, and what has the name of a measure of every log.
_NO_METRICS = {"discount", "score", *MEASURES}
# How parameters call a time limit: in gymnax, and in Craftax.
_LIMITS = ("max_steps_in_episode", "max_timesteps")


def make_multi_agent(env_id: str, num_agents: int = 1, **options: Any) -> tuple[MultiAgentEnv, Any]:
    """Build `Lifted(env_id, num_agents, **options)` and its default parameters.

    Short for `make("gymnax", env_id=env_id, num_agents=num_agents, **options)`.
    """
    return make("gymnax", env_id=env_id, num_agents=num_agents, **options)


def from_gymnax(
    game: Any,
    params: Any = None,
    num_agents: int = 1,
    observed: Sequence[int] | None = None,
    horizon: int | None = None,
    at_time_limit: str | None = None,
) -> "Lifted":
    """Bring in an environment of gymnax's interface that is given as an object.

    It needs the methods of gymnax's classes, not the classes themselves: `reset_env` and
    `step_env`, which returns five values and does not reset. Spaces need `n`, or `low`, `high` and
    `shape`. Without `is_truncated`, as in Craftax and before gymnax 1.0, an end is a truncation if
    `is_terminal` would be False without the time limit of the parameters, `max_steps_in_episode`
    or `max_timesteps`.

    Args:
        game: such as `CraftaxSymbolicEnv()` of Craftax, or a class of your own.
        params: the default parameters; None for the `default_params` of the game.
        num_agents: as in `Lifted`.
        observed: as in `Lifted`.
        horizon: as in `Lifted`.
        at_time_limit: as in `Lifted`.

    Raises:
        ValueError: if it lacks one of these methods, or for the reasons of `Lifted`.
    """
    names = ("reset_env", "step_env", "observation_space", "action_space")
    check_interface("from_gymnax", game, "gymnax", *names)
    if params is None:
        check_interface("from_gymnax without params", game, "gymnax", "default_params")
    env = Lifted.__new__(Lifted)
    params = game.default_params if params is None else params
    env._lift(getattr(game, "name", type(game).__name__), game, params, num_agents, observed)
    env._limit(horizon, at_time_limit)
    return env


@struct.dataclass
class LiftedState:
    """The games of all agents."""

    games: Any  # gymnax's own state, [A, ...] in every leaf
    features: jax.Array  # [A, D] float: what each agent sees
    alive: jax.Array  # [A] bool: whose game is in progress
    time: jax.Array | None = None  # [] int: steps played, where they are counted


class Lifted(MultiAgentEnv[LiftedState, Any]):
    """`num_agents` independent games of one gymnax environment, side by side.

    The key of a reset or a step is split into one for each agent, in the order of the slots. All
    agents whose game goes on act at every step. A game that gymnax reports as terminated ends its
    agent's life as `terminated`; one that has only reached its time limit ends it as `truncated`.
    From then on the slot is dead and keeps its last features, and the episode is over when no game
    goes on. What an agent sees is flattened to float32; a discrete observation becomes a one-hot
    vector, and bytes of an image (a space of uint8 from 0 to 255, at least two axes) numbers from 0
    to 1. A few environments of gymnax 1.0 leave the bounds of their own observation space.
    Numbers in `info` are metrics, except "discount", "score" and names in `core.MEASURES`.

    The parameters are gymnax's own, shared by all agents. The horizon is their
    `max_steps_in_episode`, or None where they have no such field, unless `horizon` is earlier.

    Args:
        env_id: a gymnax id such as "CartPole-v1", also one that you registered with gymnax;
            "StatelessCartPole": CartPole-v1 without its two velocities, which takes memory; or
            "Craftax-Classic-Symbolic-v1" or "Craftax-Symbolic-v1" of Craftax.
        num_agents: the agents are `agent_0`, `agent_1`, and so on.
        observed: indices of the flattened observation that the agents see; None for all of them.
        horizon: the step at which games that go on are truncated; None for no limit but that of the
            parameters.
        at_time_limit: what an end at the time limit is, "truncates" or "terminates"; None for what
            gymnax reports. Where nothing tells an end by time from others, "truncates" counts every
            end at the horizon as one.
        **options: keyword arguments of the gymnax environment, such as `num_urchins=3` for
            "Swimmer-misc".

    Raises:
        ValueError: an unknown id or option, fewer than one agent, indices that do not exist,
            `at_time_limit` without a known limit, or spaces other than Discrete and Box (an action
            Box must hold floats).
    """

    def __init__(
        self,
        env_id: str,
        num_agents: int = 1,
        observed: Sequence[int] | None = None,
        horizon: int | None = None,
        at_time_limit: str | None = None,
        **options: Any,
    ) -> None:
        gymnax_id = env_id
        if isinstance(env_id, str) and env_id in _PARTLY_OBSERVED:
            gymnax_id, indices = _PARTLY_OBSERVED[env_id]
            if observed is not None:
                raise ValueError(
                    f"observed={observed!r}: {env_id!r} stands for {gymnax_id!r} with "
                    f"observed={indices}; to observe anything else, name {gymnax_id!r}"
                )
            observed = indices
        self._lift(env_id, *_make_game(gymnax_id, options), num_agents, observed)
        self._limit(horizon, at_time_limit)

    def _limit(self, horizon: int | None, at_time_limit: str | None) -> None:
        limits = _limits(self._default_params)
        check_limits(self.name, horizon, at_time_limit, bool(limits))
        self.given_horizon, self.at_time_limit = horizon, at_time_limit
        knows_time = hasattr(self.game, "is_truncated") or (
            limits and hasattr(self.game, "is_terminal")
        )
        self._knows_time = bool(knows_time)
        self._counts = horizon is not None or (at_time_limit == "truncates" and not knows_time)

    def _lift(
        self,
        name: str,
        game: Any,
        params: Any,
        num_agents: int,
        observed: Sequence[int] | None,
    ) -> None:
        if not isinstance(num_agents, int) or num_agents < 1:
            raise ValueError(f"num_agents={num_agents!r}: give an integer of at least 1")
        self.name, self.game, self._default_params = name, game, params
        self.agents = tuple(f"agent_{i}" for i in range(num_agents))
        # Of the spaces only the bounds depend on the parameters.
        space = self.game.observation_space(self._default_params)
        width = _flat_bounds(name, space)[0].size
        self._num_symbols = options_of(name, space)
        self._divisor = 255 if is_image(space) else 1
        self.seen = slice(None) if observed is None else _indices(observed, width)
        self._action_width = self.action_layout(self._default_params).width
        self._action_shape = self.game.action_space(self._default_params).shape

    @property
    def default_params(self) -> Any:
        """Return the parameters of the gymnax environment."""
        return self._default_params

    def horizon(self, params: Any) -> int | jax.Array | None:
        """Return the time limit of every game in steps, if any."""
        limit = next(iter(_limits(params).values()), None)
        if limit is None or isinstance(limit, int):
            return earliest(limit, self.given_horizon)
        limit = jnp.ceil(limit).astype(jnp.int32)
        return limit if self.given_horizon is None else jnp.minimum(limit, self.given_horizon)

    def observation_space(self, agent: str, params: Any) -> Box:
        """Return the bounds that gymnax names, flattened, `[D]`."""
        self.agent_index(agent)
        low, high = _flat_bounds(self.name, self.game.observation_space(params))
        low, high = (bound[self.seen] / self._divisor for bound in (low, high))
        return Box(low, high, low.shape)

    def observation_parts(self, agent: str, params: Any) -> tuple[Part, ...]:
        """Return how the agent's features are made: a discrete observation is a symbol."""
        if self._num_symbols is None or not isinstance(self.seen, slice):
            parts = super().observation_parts(agent, params)
            return tuple(part._replace(divisor=self._divisor) for part in parts)
        return (Part(options=(self._num_symbols,), first=(0,)),)

    def action_space(self, agent: str, params: Any) -> Space:
        """Return the action space of one game, flattened."""
        self.agent_index(agent)
        space = self.game.action_space(params)
        if (num_options := options_of(self.name, space)) is not None:
            return Discrete(num_options)
        low, high = _flat_bounds(self.name, space)
        if not jnp.issubdtype(space.dtype, jnp.floating):
            raise ValueError(f"{self.name!r}: the action space {space} must hold floats")
        return Box(low, high, low.shape)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Observation, LiftedState]:
        """Begin every agent's game."""
        keys = jax.random.split(key, self.num_agents)
        seen, games = jax.vmap(self.game.reset_env, in_axes=(0, None))(keys, params)
        games = strongly_typed(games)
        alive = jnp.ones(self.num_agents, bool)
        time = jnp.int32(0) if self._counts else None
        state = LiftedState(games, jax.vmap(self._features)(seen), alive, time)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: LiftedState, action: jax.Array, params: Any
    ) -> StepResult[LiftedState]:
        """Advance the games in progress; `action` is `[A]` int or `[A, N]` float."""
        keys = jax.random.split(key, self.num_agents)
        time = None if state.time is None else state.time + 1
        step = jax.vmap(self._step_game, in_axes=(0, 0, 0, None))
        before = LiftedState(state.games, state.features, state.alive)
        after, reward, terminated, truncated, metrics = step(keys, before, action, params)
        terminated, truncated = read_ends(
            terminated,
            truncated,
            continues=after.alive,
            time=time,
            horizon=self.horizon(params),
            at_time_limit=self.at_time_limit,
            knows_time=self._knows_time,
        )
        alive = after.alive & ~terminated & ~truncated
        state = LiftedState(after.games, after.features, alive, time)
        info = {"metrics": metrics} if metrics else {}
        return self._observe(state), state, reward, terminated, truncated, info

    def _step_game(
        self, key: jax.Array, state: LiftedState, action: jax.Array, params: Any
    ) -> tuple[LiftedState, jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
        """Advance one agent's game by a step; `state` is without the axis `A`."""
        action = action.reshape(self._action_shape)
        seen, game, reward, ended, info = self.game.step_env(key, state.games, action, params)
        terminated, truncated = (state.alive & end for end in self._ends(game, ended, params))
        game, features = jax.tree.map(
            lambda new, old: jnp.where(state.alive, new, old),
            (game, self._features(seen)),
            (state.games, state.features),
        )
        reward = jnp.where(state.alive, reward, 0).astype(jnp.float32)
        alive = state.alive & ~terminated & ~truncated
        metrics = {
            name: jnp.where(state.alive, value, 0).astype(jnp.float32)
            for name, value in _numbers(info)
        }
        return LiftedState(game, features, alive), reward, terminated, truncated, metrics

    def _ends(self, game: Any, ended: Any, params: Any) -> tuple[jax.Array, jax.Array]:
        """Return whether a game is terminated and whether it is truncated, `[]` bool each.

        `ended` is what its step said.
        """
        ended = jnp.asarray(ended, bool)
        if hasattr(self.game, "is_truncated"):
            return ended, self.game.is_truncated(game, params) & ~ended
        limits = dict.fromkeys(_limits(params), NEVER)
        if not limits or not hasattr(self.game, "is_terminal"):
            return ended, jnp.zeros_like(ended)
        untimed = dataclasses.replace(params, **limits)
        with_limit, without = (self.game.is_terminal(game, p) for p in (params, untimed))
        late = ended & with_limit & ~without
        return ended & ~late, late

    def _features(self, seen: Any) -> jax.Array:
        """Flatten one agent's observation, `[D]` float32."""
        if self._num_symbols is not None:
            seen = jax.nn.one_hot(seen, self._num_symbols)
        features = jnp.ravel(seen).astype(jnp.float32)[self.seen]
        return features if self._divisor == 1 else features / self._divisor

    def _observe(self, state: LiftedState) -> Observation:
        action_mask = jnp.ones((self.num_agents, self._action_width), bool)
        return Observation(state.features, action_mask, state.alive, agent_mask=state.alive)


def _numbers(info: Any) -> Iterator[tuple[str, Any]]:
    """List the numbers in a step's `info` that can be metrics, by name."""
    for name, value in info.items() if isinstance(info, Mapping) else ():
        if not isinstance(name, str) or not name or name in _NO_METRICS:
            continue
        if isinstance(value, bool | int | float | np.generic | np.ndarray | jax.Array):
            dtype = jnp.result_type(value)
            is_real = any(jnp.issubdtype(dtype, x) for x in (jnp.bool, jnp.integer, jnp.floating))
            if is_real and jnp.ndim(value) == 0:
                yield name, value


def _make_game(env_id: str, options: dict[str, Any]) -> tuple[Any, Any]:
    if env_id in _CRAFTAX:
        if options:
            raise ValueError(f"{env_id!r} has no options; got {options}")
        craftax = import_extra("craftax.craftax_env", "craftax")
        game = craftax.make_craftax_env_from_name(env_id, auto_reset=False)
        return game, game.default_params
    gymnax = import_extra("gymnax", "gymnax")
    if env_id not in gymnax.registered_envs:
        raise unknown_id(env_id, (*gymnax.registered_envs, *_PARTLY_OBSERVED, *_CRAFTAX))
    try:
        return gymnax.make(env_id, **options)
    except TypeError as error:
        if not options:
            raise
        valid = inspect.signature(type(gymnax.make(env_id)[0])).parameters
        raise ValueError(
            f"gymnax environment {env_id!r} does not take the options {options} ({error}); "
            f"valid options: {', '.join(valid) or 'none'}"
        ) from error


def _indices(observed: Sequence[int], width: int) -> np.ndarray:
    """Check `observed` and turn it into an array, `[D]` int."""
    valid = len(observed) > 0 and all(isinstance(i, int) and 0 <= i < width for i in observed)
    if not valid or len(set(observed)) < len(observed):
        raise ValueError(
            f"observed={observed!r}: give different indices from 0 to {width - 1}, at least one"
        )
    return np.asarray(observed)


def _limits(params: Any) -> dict[str, Any]:
    """Return the time limits among parameters, by their names."""
    return {name: getattr(params, name) for name in _LIMITS if hasattr(params, name)}


def _flat_bounds(name: str, space: Any) -> tuple[Any, Any]:
    """Return the lowest and highest elements of a gymnax space as vectors, `[D]` each."""
    if (num_options := options_of(name, space)) is not None:
        return np.zeros(num_options), np.ones(num_options)
    if not hasattr(space, "low") or not hasattr(space, "high"):
        raise ValueError(f"{name!r}: the space {space} must be a Discrete or a Box")
    # Bounds may depend on the parameters, as those of Pendulum do on the greatest torque.
    xp = np if is_known(space.low, space.high) else jnp
    low, high = (
        xp.broadcast_to(xp.asarray(bound, np.float32), space.shape).ravel()
        for bound in (space.low, space.high)
    )
    return low, high
