"""Any gymnax environment for any number of agents, each in a separate game.

>>> env, params = make_multi_agent("CartPole-v1", num_agents=4)

gymnax is imported when the first such environment is built, because its import brings plotting
libraries along and takes seconds.
"""

import difflib
import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.registry import make
from jaxmarl_envs.spaces import Box, Discrete, Space, is_known

# Names of our own: a gymnax environment and what is seen of it.
_PARTLY_OBSERVED = {"StatelessCartPole": ("CartPole-v1", (0, 2))}


def make_multi_agent(env_id: str, num_agents: int = 1, **options: Any) -> tuple[MultiAgentEnv, Any]:
    """Build `Lifted(env_id, num_agents, **options)` and its default parameters.

    Short for `make("gymnax", env_id=env_id, num_agents=num_agents, **options)`.
    """
    return make("gymnax", env_id=env_id, num_agents=num_agents, **options)


@struct.dataclass
class LiftedState:
    """The games of all agents."""

    games: Any  # gymnax's own state, [A, ...] in every leaf
    features: jax.Array  # [A, D] float: what each agent sees
    alive: jax.Array  # [A] bool: whose game is in progress


class Lifted(MultiAgentEnv[LiftedState, Any]):
    """`num_agents` independent games of one gymnax environment, side by side.

    The key of a reset or a step is split into one for each agent, in the order of the slots. All
    agents whose game goes on act at every step. A game that gymnax reports as terminated ends its
    agent's life as `terminated`; one that has only reached its time limit ends it as `truncated`.
    From then on the slot is dead and keeps its last features, and the episode is over when no game
    goes on. What an agent sees is flattened to float32; a discrete observation becomes a one-hot
    vector. A few environments of gymnax 1.0 leave the bounds of their own observation space.

    The parameters are gymnax's own, shared by all agents. The horizon is their
    `max_steps_in_episode`, or None where they have no such field.

    Args:
        env_id: a gymnax id such as "CartPole-v1", also one that you registered with gymnax, or
            "StatelessCartPole": CartPole-v1 without its two velocities, which takes memory.
        num_agents: the agents are `agent_0`, `agent_1`, and so on.
        observed: indices of the flattened observation that the agents see; None for all of them.
        **options: keyword arguments of the gymnax environment, such as `num_urchins=3` for
            "Swimmer-misc".

    Raises:
        ValueError: an unknown id or option, fewer than one agent, indices that do not exist, or
            spaces other than Discrete and Box (an action Box must hold floats within finite
            bounds).
    """

    def __init__(
        self,
        env_id: str,
        num_agents: int = 1,
        observed: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(num_agents, int) or num_agents < 1:
            raise ValueError(f"num_agents={num_agents!r}: give an integer of at least 1")
        gymnax_id = env_id
        if isinstance(env_id, str) and env_id in _PARTLY_OBSERVED:
            gymnax_id, indices = _PARTLY_OBSERVED[env_id]
            if observed is not None:
                raise ValueError(
                    f"observed={observed!r}: {env_id!r} stands for {gymnax_id!r} with "
                    f"observed={indices}; to observe anything else, name {gymnax_id!r}"
                )
            observed = indices
        self.name = env_id
        self.agents = tuple(f"agent_{i}" for i in range(num_agents))
        self.game, self._default_params = _make_gymnax(gymnax_id, options)
        # Of the spaces only the bounds depend on the parameters.
        space = self.game.observation_space(self._default_params)
        width = _flat_bounds(env_id, space)[0].size
        self._num_symbols = space.n if _is_discrete(space) else None
        self._seen = slice(None) if observed is None else _indices(observed, width)
        self._action_width = self.action_layout(self._default_params).width
        self._action_shape = self.game.action_space(self._default_params).shape

    @property
    def default_params(self) -> Any:
        """Return the parameters of the gymnax environment."""
        return self._default_params

    def horizon(self, params: Any) -> int | jax.Array | None:
        """Return the time limit of every game in steps, if any."""
        limit = getattr(params, "max_steps_in_episode", None)
        if limit is None or isinstance(limit, int):
            return limit
        return jnp.ceil(limit).astype(jnp.int32)

    def observation_space(self, agent: str, params: Any) -> Box:
        """Return the bounds that gymnax names, flattened, `[D]`."""
        self.agent_index(agent)
        low, high = _flat_bounds(self.name, self.game.observation_space(params))
        low, high = low[self._seen], high[self._seen]
        return Box(low, high, low.shape)

    def action_space(self, agent: str, params: Any) -> Space:
        """Return the action space of one game, flattened."""
        self.agent_index(agent)
        space = self.game.action_space(params)
        if _is_discrete(space):
            return Discrete(space.n)
        low, high = _flat_bounds(self.name, space)
        if is_known(low, high) and not (np.isfinite(low) & np.isfinite(high)).all():
            raise ValueError(f"{self.name!r}: the action space {space} must have finite bounds")
        if not jnp.issubdtype(space.dtype, jnp.floating):
            raise ValueError(f"{self.name!r}: the action space {space} must hold floats")
        return Box(low, high, low.shape)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Observation, LiftedState]:
        """Begin every agent's game."""
        keys = jax.random.split(key, self.num_agents)
        seen, games = jax.vmap(self.game.reset_env, in_axes=(0, None))(keys, params)
        games = jax.tree.map(_strongly_typed, games)
        alive = jnp.ones(self.num_agents, bool)
        state = LiftedState(games, jax.vmap(self._features)(seen), alive)
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: LiftedState, action: jax.Array, params: Any
    ) -> StepResult[LiftedState]:
        """Advance the games in progress; `action` is `[A]` int or `[A, N]` float."""
        keys = jax.random.split(key, self.num_agents)
        step = jax.vmap(self._step_game, in_axes=(0, 0, 0, None))
        state, reward, terminated, truncated = step(keys, state, action, params)
        return self._observe(state), state, reward, terminated, truncated, {}

    def _step_game(
        self, key: jax.Array, state: LiftedState, action: jax.Array, params: Any
    ) -> tuple[LiftedState, jax.Array, jax.Array, jax.Array]:
        """Advance one agent's game by a step; `state` is without the axis `A`."""
        action = action.reshape(self._action_shape)
        seen, game, reward, terminated, _ = self.game.step_env(key, state.games, action, params)
        terminated = state.alive & terminated
        truncated = state.alive & self.game.is_truncated(game, params) & ~terminated
        game, features = jax.tree.map(
            lambda new, old: jnp.where(state.alive, new, old),
            (game, self._features(seen)),
            (state.games, state.features),
        )
        reward = jnp.where(state.alive, reward, 0).astype(jnp.float32)
        alive = state.alive & ~terminated & ~truncated
        return LiftedState(game, features, alive), reward, terminated, truncated

    def _features(self, seen: Any) -> jax.Array:
        """Flatten one agent's observation, `[D]` float32."""
        if self._num_symbols is not None:
            seen = jax.nn.one_hot(seen, self._num_symbols)
        return jnp.ravel(seen).astype(jnp.float32)[self._seen]

    def _observe(self, state: LiftedState) -> Observation:
        action_mask = jnp.ones((self.num_agents, self._action_width), bool)
        return Observation(state.features, action_mask, state.alive, agent_mask=state.alive)


def _strongly_typed(x: jax.Array) -> jax.Array:
    """Cast Python numbers, such as gymnax's clocks, to the type that a step returns."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x.astype(x.dtype)


def _make_gymnax(env_id: str, options: dict[str, Any]) -> tuple[Any, Any]:
    gymnax = import_extra("gymnax", "gymnax")
    if env_id not in gymnax.registered_envs:
        valid = (*gymnax.registered_envs, *_PARTLY_OBSERVED)
        close = difflib.get_close_matches(str(env_id), valid, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown env_id {env_id!r}; {hint}valid ids: {', '.join(valid)}")
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


def _is_discrete(space: Any) -> bool:
    spaces = import_extra("gymnax.environments.spaces", "gymnax")
    return isinstance(space, spaces.Discrete)


def _flat_bounds(env_id: str, space: Any) -> tuple[Any, Any]:
    """Return the lowest and highest elements of a gymnax space as vectors, `[D]` each."""
    spaces = import_extra("gymnax.environments.spaces", "gymnax")
    if isinstance(space, spaces.Discrete):
        return np.zeros(space.n), np.ones(space.n)
    if not isinstance(space, spaces.Box):
        raise ValueError(f"{env_id!r}: the space {space} must be a Discrete or a Box")
    # Bounds may depend on the parameters, as those of Pendulum do on the greatest torque.
    xp = np if is_known(space.low, space.high) else jnp
    low, high = (
        xp.broadcast_to(xp.asarray(bound, np.float32), space.shape).ravel()
        for bound in (space.low, space.high)
    )
    return low, high
