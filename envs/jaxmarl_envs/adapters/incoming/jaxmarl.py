"""JaxMARL's environments: particles (MPE), battles (SMAX), kitchens (Overcooked), Hanabi and more.

>>> env, params = make("jaxmarl", env_id="HeuristicEnemySMAX", scenario="3m")
>>> env = from_jaxmarl(MyEnv())

JaxMARL is an extra, imported when the first such environment is built; its import takes seconds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters.incoming.compiled import check_interface, check_planes, options_of
from jaxmarl_envs.adapters.incoming.jaxmarl_build import build
from jaxmarl_envs.adapters.incoming.jaxmarl_rules import rules_of
from jaxmarl_envs.adapters.incoming.time_limit import check_limits, earliest, read_ends
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.observations import Part, is_image
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space


def from_jaxmarl(
    game: Any,
    planes: bool = False,
    shaped_reward: float | bool = 0.0,
    horizon: int | None = None,
    at_time_limit: str | None = None,
) -> "JaxMARL":
    """Bring in an environment of JaxMARL's interface that is given as an object.

    Rules are those of its class, or of the nearest of its bases that JaxMARL has. Of other classes
    every end is a termination unless `horizon` and `at_time_limit="truncates"` say that the last
    step is one of a time limit, everyone acts until then, and masks are those of
    `get_avail_actions`, if they implement it.

    Args:
        game: stepped by `reset` and `step_env`, so that it does not reset itself.
        planes: as in `JaxMARL`.
        shaped_reward: as in `JaxMARL`.
        horizon: as in `JaxMARL`.
        at_time_limit: as in `JaxMARL`.

    Raises:
        ValueError: one without these methods, one that resets itself within `step_env`
            (`MABraxEnv` without `auto_reset=False`), or for the reasons of `JaxMARL`.
    """
    names = ("agents", "reset", "step_env", "action_space", "observation_space")
    check_interface("from_jaxmarl", game, "JaxMARL", *names)
    if getattr(game, "auto_reset", False):
        raise ValueError(
            f"{type(game).__name__} resets itself, as the trainer does; build it with "
            "auto_reset=False"
        )
    env = JaxMARL.__new__(JaxMARL)
    env._wrap(game, getattr(game, "name", type(game).__name__), planes, shaped_reward)
    env._limit(horizon, at_time_limit)
    return env


@struct.dataclass
class JaxMARLParams:
    """`shaped_reward` is None, and no leaf, where JaxMARL gives no shaped rewards."""

    shaped_reward: float | jax.Array | None


@struct.dataclass
class JaxMARLState:
    """JaxMARL's own state, whether the episode is over, and the step, if that is counted."""

    game: Any
    over: jax.Array  # [] bool
    time: jax.Array | None = None  # [] int


class JaxMARL(MultiAgentEnv[JaxMARLState, JaxMARLParams]):
    """An environment of JaxMARL (Rutherford et al. 2024), stepped by its `reset` and `step_env`.

    Keys, rewards, ends, names and order of the agents are JaxMARL's own. Agents whose names are
    numbers there are called `agent_0`, `agent_1`, and so on.

    * **Ends.** JaxMARL has one `done`. Where its state tells that only the time was up, all agents
      are truncated, otherwise terminated. Particles, Overcooked, STORM and the coin game end by
      time alone; SMAX, the switch riddle, JaxNav and MABrax have both kinds of end; Hanabi ends by
      its own rules. An end of any other environment counts as a termination. See `horizon` and
      `at_time_limit`.
    * **Lives.** All agents live until the episode is over. A unit of SMAX that is shot, or a robot
      of JaxNav that has crashed, is done in JaxMARL's eyes but still earns with its team: it waits,
      alive, with `agent_mask` False, and what it earns belongs to its last decision.
    * **Turns.** In Hanabi only the player whose turn it is acts.
    * **Masks** are JaxMARL's where it has them. In the switch riddle who is outside the room can
      only do nothing, as no other action of theirs has an effect.
    * **State.** SMAX offers `Observation.state`, its world state, to a centralised critic.
    * **Metrics.** `won` (SMAX), `deliveries` (Overcooked), `arrived` and `crashed` (JaxNav).

    Actions are Discrete, MultiDiscrete or Box, and agents of one environment may differ in that.
    What an agent sees is flattened to float32, and bytes of an image (a space of uint8 from 0 to
    255, at least two axes) become numbers from 0 to 1. Else only the shape of a space and a bound
    that it names for all elements alike are taken from JaxMARL, and the shape from what it really
    returns.

    Args:
        env_id: a JaxMARL id such as "MPE_simple_spread_v3".
        planes: keep observations of planes as `[A, rows, cols, planes]` instead of flat.
        shaped_reward: coefficient at which JaxMARL's shaped rewards (Overcooked) are added; True
            for 1. It becomes a parameter, constant over a run unless you change it.
        horizon: the step at which an episode that goes on is truncated, also where JaxMARL's own
            time limit is later or unknown; None for no limit but JaxMARL's.
        at_time_limit: what an end at the time limit is, "truncates" or "terminates"; None for what
            is said under Ends. In classes that JaxMARL does not have, "truncates" counts every end
            at `horizon` as one by time.
        **options: keyword arguments of the JaxMARL environment. A `scenario` of SMAX and a `layout`
            of Overcooked are named by strings, arrays may be lists.

    Raises:
        ImportError: JaxMARL, or what this environment of it needs, is not installed.
        ValueError: an unknown id or option, or a value that JaxMARL refuses; planes of what is not
            planes, shaped rewards where there are none, `at_time_limit` without a known limit, or
            action spaces of other kinds.
    """

    def __init__(
        self,
        env_id: str,
        planes: bool = False,
        shaped_reward: float | bool = 0.0,
        horizon: int | None = None,
        at_time_limit: str | None = None,
        **options: Any,
    ) -> None:
        self._wrap(build(env_id, options), env_id, planes, shaped_reward)
        self._limit(horizon, at_time_limit)

    def _limit(self, horizon: int | None, at_time_limit: str | None) -> None:
        own = self.rules.horizon()
        check_limits(self.name, horizon, at_time_limit, own is not None)
        self._horizon = earliest(horizon, own)
        self.given_horizon, self.at_time_limit = horizon, at_time_limit

    def _wrap(self, game: Any, name: str, planes: bool, shaped_reward: float | bool) -> None:
        check_planes(planes)
        self.game, self.name, self._planes = game, name, planes
        self.agents = tuple(a if isinstance(a, str) else f"agent_{a}" for a in self.game.agents)
        self.rules = rules_of(self.game)
        has_shaped_reward = self.rules.has_shaped_reward
        if shaped_reward and not has_shaped_reward:
            raise ValueError(
                f"shaped_reward={shaped_reward!r} has no effect: {name!r} gives no shaped rewards"
            )
        self._shaped_reward = float(shaped_reward) if has_shaped_reward else None
        self._spaces = [_action_space(name, self.game.action_space(a)) for a in self.game.agents]
        self._parts = [tuple(_parts(self.game.observation_space(a))) for a in self.game.agents]
        self._shapes, self._state_types = self._look()
        self._shape = tuple(np.max(self._shapes, axis=0).tolist())  # of the widest agent
        self._layout = ActionLayout(dict(zip(self.agents, self._spaces, strict=True)))

    def _look(self) -> tuple[list[tuple[int, ...]], Any]:
        """Trace the shapes of what agents see, and the types of JaxMARL's state after a step."""
        key = jax.random.key(0)
        seen, state = jax.eval_shape(self.game.reset, key)
        zeros = [jnp.zeros(space.shape, space.dtype) for space in self._spaces]
        after = jax.eval_shape(self.game.step_env, key, state, self.rules.actions(zeros))[1]
        shapes = [x.shape for x in jax.eval_shape(self._features, seen)]
        return shapes, jax.tree.map(lambda x: x.dtype, after)

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one in Hanabi, all elsewhere."""
        return self.rules.max_actors or self.num_agents

    @property
    def default_params(self) -> JaxMARLParams:
        """Return the coefficient of shaped rewards, if any."""
        return JaxMARLParams(self._shaped_reward)

    def horizon(self, params: JaxMARLParams) -> int | None:
        """Return JaxMARL's time limit in steps, or an earlier one that was given, if any."""
        return self._horizon

    def observation_space(self, agent: str, params: JaxMARLParams) -> Box:
        """Return a space with the shape of the agent's actual observation."""
        slot = self.agent_index(agent)
        space = self.game.observation_space(self.game.agents[slot])
        low, high = (_one_bound(space, name, infinite) for name, infinite in _BOUNDS)
        divisor = max((part.divisor for part in self._parts[slot] if not part.path), default=1)
        return Box(low / divisor, high / divisor, self._shapes[slot])

    def observation_parts(self, agent: str, params: JaxMARLParams) -> tuple[Part, ...]:
        """Return the parts of an observation with images, which are scaled."""
        parts = self._parts[self.agent_index(agent)]
        has_images = any(part.divisor != 1 for part in parts)
        return parts if has_images else super().observation_parts(agent, params)

    def action_space(self, agent: str, params: JaxMARLParams) -> Space:
        """Return the agent's own action space, flattened."""
        return self._spaces[self.agent_index(agent)]

    def reset_env(self, key: jax.Array, params: JaxMARLParams) -> tuple[Observation, JaxMARLState]:
        """Reset JaxMARL's game with this very key."""
        seen, game = self.game.reset(key)
        time = None if self.given_horizon is None else jnp.int32(0)
        state = JaxMARLState(self._settle(game), jnp.bool_(False), time)
        return self._observe(seen, state), state

    def step_env(
        self, key: jax.Array, state: JaxMARLState, action: jax.Array, params: JaxMARLParams
    ) -> StepResult[JaxMARLState]:
        """Step JaxMARL's game with this very key; for actions see `ActionLayout`."""
        chosen = self._chosen(state, action)
        seen, game, earned, done, info = self.game.step_env(
            key, state.game, self.rules.actions(chosen)
        )
        game = self._settle(game)
        ended = done["__all__"] & ~state.over
        time_is_up = self.rules.time_is_up(state.game, chosen, game)
        time = None if state.time is None else state.time + 1
        terminated, truncated = read_ends(
            terminated=ended & ~time_is_up,
            truncated=ended & time_is_up,
            continues=~ended & ~state.over,
            time=time,
            horizon=self._horizon,
            at_time_limit=self.at_time_limit,
            knows_time=self.rules.knows_time,
        )
        earned = jnp.stack([jnp.float32(r) for r in self.rules.rewards(earned)])
        reward = earned
        if params.shaped_reward is not None:
            shaped = info["shaped_reward"]
            shaped = jnp.stack([jnp.float32(shaped[agent]) for agent in self.game.agents])
            reward = earned + params.shaped_reward * shaped
        metrics = self.rules.metrics(state.game, game, earned)
        # A game that is over continues in JaxMARL.
        reward, metrics = jax.tree.map(lambda x: jnp.where(state.over, 0.0, x), (reward, metrics))
        state = JaxMARLState(game, state.over | terminated | truncated, time)
        terminated, truncated = (jnp.full(self.num_agents, x) for x in (terminated, truncated))
        obs = self._observe(seen, state)
        return obs, state, reward, terminated, truncated, {"metrics": metrics}

    def render(
        self, state: JaxMARLState, params: JaxMARLParams | None = None, last_action: Any = None
    ) -> str | None:
        """Draw particles, battles and kitchens; JaxMARL's own pictures are of matplotlib."""
        del params, last_action
        return self.rules.render(state.game)

    def _chosen(self, state: JaxMARLState, action: Any) -> list[jax.Array]:
        """Return each agent's action in its own space, `[]`, `[C]` int or `[N]` float.

        The idle one, or zeros, where it does not act.
        """
        acts = self.rules.acting(state.game)  # [A]
        if self._layout.is_choice:
            return list(jnp.where(acts, action, self.rules.idle_action).astype(jnp.int32))
        choices, numbers = (
            jnp.where(acts[:, None], part, 0) for part in self._layout.split(action)
        )
        choices = choices.astype(jnp.int32)
        chosen = []
        for slot, (space, own) in enumerate(zip(self._spaces, self._layout.factors, strict=True)):
            if isinstance(space, Discrete):
                chosen.append(jnp.where(acts[slot], choices[slot, 0], self.rules.idle_action))
            elif isinstance(space, MultiDiscrete):
                chosen.append(choices[slot, : len(own.counts)])
            else:
                chosen.append(numbers[slot, : own.low.size])
        return chosen

    def _settle(self, game: Any) -> Any:
        """Cast each part of the state to one type; JaxMARL's resets and steps may differ in it."""
        return jax.tree.map(lambda x, dtype: jnp.asarray(x, dtype), game, self._state_types)

    def _observe(self, seen: Any, state: JaxMARLState) -> Observation:
        alive = jnp.full(self.num_agents, ~state.over)
        legal = self.rules.legal_actions(state.game)
        mask = jnp.asarray(self._layout.exists)
        if legal is not None:
            mask = jnp.stack([_padded(row.astype(bool), mask.shape[1:]) for row in legal])
        return Observation(
            features=jnp.stack([_padded(x, self._shape) for x in self._features(seen)]),
            action_mask=mask,
            alive=alive,
            agent_mask=alive & self.rules.acting(state.game),
            state=self.rules.world_state(state.game),
        )

    def _features(self, seen: Any) -> list[jax.Array]:
        """Write what each agent sees as an array, unpadded."""
        rows = [jax.tree.leaves(x) for x in self.rules.observations(seen)]
        rows = list(map(_scaled, rows, self._parts))
        if not self._planes:
            return [
                jnp.concatenate([jnp.ravel(x) for x in row]).astype(jnp.float32) for row in rows
            ]
        if any(len(row) != 1 or row[0].ndim != 3 for row in rows):
            shapes = [x.shape for x in rows[0]]
            raise ValueError(
                f"planes=True: an agent of {self.name!r} sees arrays of the shapes {shapes}, not "
                "one array [rows, cols, planes]"
            )
        return [row[0].astype(jnp.float32) for row in rows]


_BOUNDS = (("low", -np.inf), ("high", np.inf))


def _one_bound(space: Any, name: str, infinite: float) -> float:
    """Read the bound of a JaxMARL space if it is the same for all elements, else infinity."""
    bound = getattr(space, name, infinite)
    return float(bound) if np.ndim(bound) == 0 else infinite


def _parts(space: Any, path: tuple[Any, ...] = ()) -> Iterator[Part]:
    """List the parts of a JaxMARL space in the order of JAX's leaves."""
    inner = getattr(space, "spaces", None)
    if inner is None:
        shape = tuple(np.ravel(getattr(space, "shape", ())).tolist())
        yield Part(path, shape, divisor=255 if is_image(space) else 1)
        return
    for key in sorted(inner) if isinstance(inner, Mapping) else range(len(inner)):
        yield from _parts(inner[key], (*path, key))


def _scaled(row: list[jax.Array], parts: tuple[Part, ...]) -> list[jax.Array]:
    """Scale the images among the arrays that an agent sees."""
    if all(part.divisor == 1 for part in parts):
        return row
    if len(row) != len(parts):
        raise ValueError(
            f"an agent sees {len(row)} arrays, but its observation space has {len(parts)} parts: "
            "let the space have the form of observations, so that its images can be scaled"
        )
    return [x / part.divisor for x, part in zip(row, parts, strict=True)]


def _action_space(name: str, space: Any) -> Discrete | MultiDiscrete | Box:
    """Turn one of JaxMARL's action spaces into ours, flattened.

    Raises:
        ValueError: If it is of another kind.
    """
    if (num_options := options_of(name, space)) is not None:
        return Discrete(num_options)
    if hasattr(space, "num_categories"):
        return MultiDiscrete(np.asarray(space.num_categories).tolist())
    if not hasattr(space, "low"):
        raise ValueError(
            f"the action space {type(space).__name__} of JaxMARL: valid kinds are Discrete, "
            "MultiDiscrete and Box"
        )
    if not jnp.issubdtype(getattr(space, "dtype", jnp.float32), jnp.floating):
        raise ValueError(
            f"{name!r}: the action space {space!r} must hold floats; integers are choices, of a "
            "MultiDiscrete"
        )
    shape = (int(np.prod(space.shape)),)
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape).ravel()
        for bound in (space.low, space.high)
    )
    return Box(low, high, shape)


def _padded(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Pad `x` with zeros behind it to `shape`."""
    return jnp.pad(x, [(0, size - own) for size, own in zip(shape, x.shape, strict=True)])
