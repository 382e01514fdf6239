"""Environments in plain Python, stepped on the host while everything else is compiled.

A compiled program calls back for every step. The state of such an environment is the seed of its
episode and all that was played in it, so that its functions are pure like those of any other: they
can be repeated, vmapped, differ in batch size from call to call, and a saved state goes on where it
was. That asks of the environment that the same seed and the same actions lead to the same episode.
Of an episode longer than its state remembers, nothing but the game itself knows how it stands: it
goes on, but where another process takes it up, such as a resumed run, it begins anew.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.actions import take_apart
from jaxmarl_envs.adapters.incoming.host_batch import Batch
from jaxmarl_envs.adapters.incoming.host_call import call_host
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.host_pool import HostPool
from jaxmarl_envs.adapters.incoming.host_rows import ArraySpec, RowSpec
from jaxmarl_envs.adapters.incoming.host_steps import Steps
from jaxmarl_envs.adapters.incoming.host_worker import Game
from jaxmarl_envs.backend import skip_unless, usable_cores
from jaxmarl_envs.core import Ahead, MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.observations import Part
from jaxmarl_envs.spaces import Box, Space

# How many steps of an episode its state remembers, so that it can be played again: where no horizon
# is known, and at most where it is the environment's own.
REMEMBERED, MOST_REMEMBERED = 1_000, 10_000


class SlowEnvironmentWarning(UserWarning):
    """An environment is stepped in Python."""


class Layout(NamedTuple):
    """Static properties of a game: agents, spaces and limits."""

    agents: tuple[str, ...]
    observation_spaces: tuple[Box, ...]  # one per agent, of equal rank
    action_spaces: tuple[Space, ...]  # one per agent
    max_actors: int
    horizon: int | None  # the most steps of an episode, where that is known
    capacity: int  # steps of an episode that its state remembers
    metrics: tuple[str, ...] = ()  # names of the environment's own numbers
    phase_length: int | None = None  # steps that an episode lasts, as far as is known
    # One per agent: how its features are made; `()` where they are an array as it is.
    observation_parts: tuple[tuple[Part, ...], ...] = ()
    # One per agent: from choices and numbers to what the environment takes; `()` for the same.
    own_actions: tuple[Callable[[np.ndarray, np.ndarray], Any], ...] = ()


@struct.dataclass
class HostState:
    """One episode, as far as it has been played."""

    seed: jax.Array  # () uint32: what it was reset with
    time: jax.Array  # () int32: steps done
    agent_mask: jax.Array  # [A] bool: the agents that must act now
    # [capacity, A, ...]: actions as `ActionLayout.pack` has them, up to `time`. Single choices are
    # in as few bytes as hold them: all of it is kept, and accelerators send it at every step.
    past: jax.Array


class HostEnv(MultiAgentEnv[HostState, tuple[()]]):
    """A game in plain Python, many of them at once in worker processes.

    The seed of an episode is drawn from the key of its reset; the key of a step is not used, for
    all later chance is the game's own. `step` and `step_batch` reset on the host, and only what is
    over. Failures arrive as JAX hands them on: a `ValueError` or `jax.errors.JaxRuntimeError` that
    contains the message of a `HostEnvironmentError`; within `user_code.host_errors` as that.

    Args:
        name: of the environment.
        layout: its agents and spaces.
        make_game: makes one game, or a `Batch` of as many as it is given.
        num_workers: processes; None for one per CPU core, 0 to step in this process, one game after
            the other.
        step_timeout: seconds that one game may take for a step or a reset; None for no limit.
        in_batches: whether the games of a process are stepped together, as a `Batch`.

    Warns:
        SlowEnvironmentWarning: always, as everything here is slow.
        HangingEnvironmentWarning: later, by a game that has not returned for long.

    Raises:
        ValueError: a negative number of workers, a `step_timeout` that is none, or spaces that do
            not fit together.
    """

    steps_on_host = True

    def __init__(
        self,
        name: str,
        layout: Layout,
        make_game: Callable[[], Game] | Callable[[int], Batch],
        num_workers: int | None = None,
        step_timeout: float | None = STEP_TIMEOUT_S,
        in_batches: bool = False,
    ) -> None:
        if num_workers is not None and num_workers < 0:
            raise ValueError(f"num_workers={num_workers}: give 0 or more, or None for one per core")
        check_step_timeout(step_timeout)
        self.name, self.agents = name, layout.agents
        self.layout = layout
        num_workers = usable_cores() if num_workers is None else num_workers
        self._actions = self.action_layout(())
        widest = np.max([space.shape for space in layout.observation_spaces], axis=0).tolist()
        features = len(self.agents), *widest
        self._spec = RowSpec(features, self._actions.width, len(layout.metrics))
        self.pool = HostPool(
            name, make_game, self._spec, num_workers, layout.agents, step_timeout, in_batches
        )
        # Where workers leave a core to the policies. Batch simulators step all their games at once.
        self.steps_ahead = not in_batches and 0 < num_workers < usable_cores()
        processes = "process" if num_workers == 1 else "processes"
        warnings.warn(
            f"environment {name!r} is stepped in Python, not compiled: expect thousands of steps a "
            "second, or tens of thousands of a cheap game, a small fraction of what a JAX "
            f"environment allows. It uses {num_workers} worker {processes} and one device",
            SlowEnvironmentWarning,
            stacklevel=2,
        )

    def prepare(self, num_envs: int) -> None:
        """Start the worker processes, which import the game meanwhile."""
        self.pool.start(num_envs)

    def close(self) -> None:
        """End the worker processes; a later call starts them again."""
        self.pool.close()

    @property
    def default_params(self) -> tuple[()]:
        """Return no parameters: settings are arguments of the game."""
        return ()

    @property
    def max_actors(self) -> int:
        """Count who can act at one step."""
        return self.layout.max_actors

    def horizon(self, params: tuple[()]) -> int | None:
        """Return the maximum length of an episode in steps, where known."""
        return self.layout.horizon

    def phase_length(self, params: tuple[()]) -> int | None:
        """Return how many steps an episode lasts, where known."""
        return self.layout.phase_length

    def observation_space(self, agent: str, params: tuple[()]) -> Box:
        """Return the agent's own observation space."""
        return self.layout.observation_spaces[self.agent_index(agent)]

    def observation_parts(self, agent: str, params: tuple[()]) -> tuple[Part, ...]:
        """Return how the agent's features are made of its observation, part by part."""
        slot, parts = self.agent_index(agent), self.layout.observation_parts
        return parts[slot] if parts and parts[slot] else super().observation_parts(agent, params)

    def own_action(self, agent: str, action: Any) -> Any:
        """Turn an action into one of the environment's own space, such as a dictionary."""
        slot = self.agent_index(agent)
        if not self.layout.own_actions:
            return action
        return self.layout.own_actions[slot](*take_apart(self.layout.action_spaces[slot], action))

    def action_space(self, agent: str, params: tuple[()]) -> Space:
        """Return the agent's own action space."""
        return self.layout.action_spaces[self.agent_index(agent)]

    def reset_env(self, key: jax.Array, params: tuple[()]) -> tuple[Observation, HostState]:
        """Begin an episode with a seed from the key."""
        seed = _draw_seed(key)
        obs = Observation(*call_host(self.pool.reset, 0, _shaped(self._spec.frame), seed))
        return obs, self._begun(seed, obs)

    def step_env(
        self, key: jax.Array, state: HostState, action: Any, params: tuple[()]
    ) -> StepResult[HostState]:
        """Advance one step; `action` is as in `MultiAgentEnv.step_env`."""
        played = self._played(state, action)
        final, outcome, obs, metrics = self._call_step(state, played)
        info = {"final_observation": final, **metrics}
        return obs, self._stepped(state, played, obs), *outcome, info

    def step(
        self, key: jax.Array, state: HostState, action: Any, params: tuple[()] | None = None
    ) -> StepResult[HostState]:
        """Advance as `MultiAgentEnv.step` does, in one call to the host."""
        return _with_own_past(self._step_one(key, state, action))

    def step_batch(
        self, keys: jax.Array, state: HostState, action: Any, params: tuple[()]
    ) -> StepResult[HostState]:
        """Advance as `MultiAgentEnv.step_batch` does, in one call to the host."""
        return _with_own_past(jax.vmap(self._step_one)(keys, state, action))

    def step_batch_ahead(
        self,
        keys: jax.Array,
        state: HostState,
        action: Any,
        params: tuple[()],
        ahead: Ahead[HostState],
    ) -> StepResult[HostState]:
        """Advance as `MultiAgentEnv.step_batch_ahead` does, in one call to the host."""
        rows = (jnp.broadcast_to(x, keys.shape) for x in ahead[3:])
        following = Ahead(*ahead[:3], *rows)
        return _with_own_past(jax.vmap(self._step_one)(keys, state, action, following))

    def _step_one(
        self, key: jax.Array, state: HostState, action: Any, ahead: Ahead[HostState] | None = None
    ) -> StepResult[HostState]:
        """Advance as `step` does, but leave the past of an episode that is over to the next."""
        played, seed = self._played(state, action), _draw_reset_seed(key)
        following = ()
        if ahead is not None:
            played_next = self._played(ahead.state, ahead.action)
            asked_next = _packed(ahead.state, played_next, _draw_reset_seed(ahead.keys))
            following = jnp.stack(ahead[3:]).astype(jnp.uint32), asked_next, ahead.state.past
        final, outcome, obs, metrics = self._call_step(state, played, seed, *following)
        over = ~final.alive.any()
        stepped = self._stepped(state, played, obs)
        state = HostState(
            jnp.where(over, seed, stepped.seed),
            jnp.where(over, 0, stepped.time),
            stepped.agent_mask,
            stepped.past,
        )
        return obs, state, *outcome, {"final_observation": final, "episode_over": over, **metrics}

    def _begun(self, seed: jax.Array, obs: Observation) -> HostState:
        past = self._actions.pack(self._actions.zeros(self.layout.capacity))
        if self._actions.is_choice:
            past = past.astype(np.min_scalar_type(self._actions.width - 1))
        return HostState(seed, jnp.zeros((), jnp.int32), obs.agent_mask, past)

    def _played(self, state: HostState, action: Any) -> jax.Array:
        """Keep the actions of those who act, else zeros, so that one episode has one past."""
        packed = self._actions.pack(action)
        acts = state.agent_mask.reshape(-1, *(1,) * (packed.ndim - 1))
        return jnp.where(acts, packed, 0).astype(
            jnp.int32 if self._actions.is_choice else jnp.float32
        )

    def _stepped(self, state: HostState, played: jax.Array, obs: Observation) -> HostState:
        return HostState(
            state.seed,
            time=state.time + 1,
            agent_mask=obs.agent_mask,
            past=state.past.at[state.time].set(played.astype(state.past.dtype), mode="drop"),
        )

    def _metrics(self, values: jax.Array) -> dict[str, Any]:
        """Name metrics `[A, metrics]`, as `info` has them."""
        names = self.layout.metrics
        return {"metrics": {name: values[:, i] for i, name in enumerate(names)}} if names else {}

    def _call_step(
        self,
        state: HostState,
        played: jax.Array,
        seed: jax.Array | None = None,
        *following: jax.Array,
    ) -> tuple[Observation, tuple[jax.Array, jax.Array, jax.Array], Observation, dict[str, Any]]:
        """Call the host for a step.

        Args:
            state: before the step.
            played: the actions of those who act.
            seed: of the episode that begins where this step ends one; None for none to begin.
            following: of the games that will be asked for next, as `_step_games` takes it.

        Returns:
            What is seen after the step; rewards, terminations and truncations; what is seen after
            rebirths and resets; and metrics, as `info` has them.
        """
        spec = self._spec
        results = _shaped((*spec.frame, *spec.outcome, *spec.frame))
        asked = _packed(state, played, *(() if seed is None else (seed,)))
        found = call_host(self._step_games, 1, results, asked, state.past, *following)
        outcome, metrics = (found[4], found[5], found[6]), self._metrics(found[7])
        return Observation(*found[:4]), outcome, Observation(*found[8:]), metrics

    def _step_games(
        self, asked: np.ndarray, past: np.ndarray, *following: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Step games on the host.

        Args:
            asked: what `_packed` has written, `[E, ...]`.
            past: of the games, `[E, capacity, A, ...]`.
            following: the last three of `Ahead`, `[E, 3]`, and of the games that will be asked for
                next the same two; nothing where that is not known.
        """
        steps, ahead = self._unpacked(asked, past), None
        if following:
            which, *of_next = following
            is_wanted, first_next, first = which[0].tolist()
            steps = steps._replace(first=first)
            ahead = self._unpacked(*of_next)._replace(first=first_next) if is_wanted else None
        final, outcome, frame = self.pool.step(steps, ahead)
        return *final, *outcome, *frame

    def _unpacked(self, asked: np.ndarray, past: np.ndarray) -> Steps:
        """Read what `_packed` has written, `[E, ...]`."""
        num_words = math.prod(past.shape[2:])  # of an action
        *seeds, times = asked[:, :-num_words].T
        actions = np.ascontiguousarray(asked[:, -num_words:]).reshape(-1, *past.shape[2:])
        actions = actions.view(np.int32 if self._actions.is_choice else np.float32)
        return Steps(seeds[0], times.view(np.int32), past, actions, *seeds[1:])


def _with_own_past(result: StepResult[HostState]) -> StepResult[HostState]:
    """Begin the past of new episodes with zeros, `[...]` results of `_step_one`."""
    obs, state, reward, terminated, truncated, info = result
    over = info["episode_over"]

    def zeroed() -> jax.Array:
        is_new = over.reshape(over.shape + (1,) * (state.past.ndim - over.ndim))
        return jnp.where(is_new, 0, state.past)

    past = skip_unless(over.any(), zeroed, lambda: state.past)
    state = HostState(state.seed, state.time, state.agent_mask, past)
    return obs, state, reward, terminated, truncated, info


def capacity_of(horizon: int | None, declared: int | None) -> int:
    """Return how many steps a state remembers: all of an episode, where that is known."""
    return horizon or min(declared or REMEMBERED, MOST_REMEMBERED)


def _shaped(specs: Sequence[ArraySpec]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(*spec) for spec in specs)


def _packed(state: HostState, played: jax.Array, *seed: jax.Array) -> jax.Array:
    """Write what a step is asked for with as one array; every array that travels takes time."""
    numbers = jnp.stack([state.seed, *seed, state.time.astype(jnp.uint32)])
    return jnp.concatenate([numbers, jax.lax.bitcast_convert_type(played, jnp.uint32).ravel()])


def _draw_reset_seed(key: jax.Array) -> jax.Array:
    """Draw the seed of the episode that begins where the step with this key ends one."""
    return _draw_seed(jax.random.split(key)[1])


def _draw_seed(key: jax.Array) -> jax.Array:
    """Draw a seed, `[]` uint32, of 31 bits, since many games accept no more."""
    return jax.random.bits(key, dtype=jnp.uint32) >> 1
