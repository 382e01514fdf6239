"""The contract of an environment: pure functions over a fixed axis of agent slots.

An environment is a set of pure functions over a fixed axis of agent slots. Who acts, who lives and
which actions are legal are masks on that axis, so turn-taking, partial actions, death and late
joining need no dynamic shapes. Letters: `A` agent slots, `W` width of an action mask, `G` numbers
of a state for critics, `E` parallel environments; `actions.py` has those of actions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import numpy as np
from flax import struct

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.drawing.svg import agent_sign
from jaxmarl_envs.observations import Part
from jaxmarl_envs.resets import reset_where, select
from jaxmarl_envs.spaces import Box, Space
from jaxmarl_envs.threefry import split

State = TypeVar("State")
Params = TypeVar("Params")
Info = dict[str, Any]

# Measures of lives and of policies that logs and evaluations have of every environment.
MEASURES = frozenset([
    "episodes", "lives_mean", "return_mean", "return_se", "return_min", "return_max", "length_mean",
    "decisions", "trained_decisions", "optimiser_steps", "skipped_steps",
    "policy_loss", "value_loss", "imitation_loss", "entropy", "entropy_before_clipping", "kl",
    "clip_fraction", "explained_variance", "grad_norm", "learning_rate", "entropy_coef", "kl_coef",
])  # fmt: skip


@struct.dataclass
class Observation:
    """Observation of every slot at this step, whether its agent acts or waits."""

    features: jax.Array  # [A, ...] float, zero-padded to the widest agent
    # [A, W] bool: every choice of every slot has a legal option; see `ActionLayout`.
    action_mask: jax.Array
    alive: jax.Array  # [A] bool: the slot holds an agent
    agent_mask: jax.Array  # [A] bool: must act on this observation; a subset of `alive`
    state: jax.Array | None = None  # [G] float: what a centralised critic may see; optional


class Ahead(NamedTuple, Generic[State]):
    """The step of other environments of a batch, which will be asked for next."""

    keys: jax.Array  # [E], as `step_batch` will be given them, and so are the next two
    state: State  # [E, ...]
    action: Any  # [E, ...]
    is_wanted: jax.Array  # () bool; False for nothing to begin
    first: jax.Array  # () int: the place of the first of them in the batch
    first_now: jax.Array  # () int: that of those which are stepped now


StepResult = tuple[Observation, State, jax.Array, jax.Array, jax.Array, Info]


class MultiAgentEnv(Generic[State, Params]):
    """A multi-agent environment as pure functions of one environment; callers `vmap`.

    A subclass sets `name` and `agents` and implements `default_params`, `reset_env`, `step_env`,
    `observation_space`, `action_space` and, if the length of episodes is bounded, `horizon`. It
    must keep this contract:

    * `action` has an entry for every slot. Entries of slots whose `agent_mask` was False are to be
      ignored.
    * `reward [A]` is the reward of each agent at this step, whether it acted or not. It is exactly
      0 for a slot that held no agent before the step.
    * `terminated [A]` and `truncated [A]` are True only at the step at which that agent's life
      ends. If both are True, the life is terminated.
    * The episode is over exactly when no agent is alive after the step.
    * An agent that may still receive rewards stays alive, and waits.

    `check_env` checks an environment against this contract.
    """

    name: str
    agents: tuple[str, ...]
    # Name and keyword arguments, where `make` built the environment: how to build it again.
    made_as: tuple[str, dict[str, Any]] | None = None
    # By which names `make` imported code that the user has to name again where a file names it.
    imports: tuple[str, ...] = ()
    # Whether steps are played in Python, by calls out of the compiled program, on one device.
    steps_on_host: bool = False
    # Whether `step_batch_ahead` is there and worth it: other processes step while policies act.
    steps_ahead: bool = False

    # How many stones in a row win, where `cells` is the board of such a game; pages draw the line.
    stones_in_a_row: int | None = None

    @property
    def num_agents(self) -> int:
        """Count the agent slots, `A`."""
        return len(self.agents)

    @property
    def max_actors(self) -> int:
        """Bound the slots with `agent_mask` True at one step; override where it is below `A`."""
        return self.num_agents

    @property
    def baselines(self) -> Mapping[str, Callable[[State, Observation, Params, jax.Array], Any]]:
        """Return scripted policies by name: `(state, obs, params, key)` to every slot's action."""
        return {}

    @property
    def reference(self) -> str | None:
        """Name the baseline that actions are compared with if the best actions are unknown."""
        return None

    @property
    def action_names(self) -> Sequence[str] | None:
        """Return the names of discrete actions, or of all options in the order of a mask, `[W]`.

        None where options and actions have no names but their numbers.
        """
        return None

    @property
    def default_params(self) -> Params:
        """Return default numeric parameters, leaves of a pytree: changing them never recompiles."""
        raise NotImplementedError

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Observation, State]:
        """Begin an episode and return its first observation and state."""
        raise NotImplementedError

    def step_env(
        self, key: jax.Array, state: State, action: Any, params: Params
    ) -> StepResult[State]:
        """Advance one step without auto-reset.

        `action` is `[A]` int32 where every agent chooses one option, `[A, N]` float32 where every
        agent has numbers alone, and an `Action` otherwise, see `ActionLayout`. Returns
        `(obs, state, reward [A], terminated [A], truncated [A], info)`. Optional entries of `info`:

        * `"metrics"`: a dict of `[A]` float arrays that a trainer sums over each life and reports
          beside the return (for example `{"win": ..., "loss": ...}`), under other names than
          `MEASURES`.
        * `"final_observation"`: needed only where a slot can be reborn at the step at which its
          agent's life ends; the observation in which the ended agent's row is still its own.
        """
        raise NotImplementedError

    def observation_space(self, agent: str, params: Params) -> Box:
        """Return the agent's own, unpadded observation space; of equal rank for all agents."""
        raise NotImplementedError

    def observation_parts(self, agent: str, params: Params) -> tuple[Part, ...]:
        """Return how the agent's features are made of its observation, part by part.

        Optional, for adapters of environments whose own observations are no array.
        """
        return (Part(shape=tuple(self.observation_space(agent, params).shape)),)

    def own_action(self, agent: str, action: Any) -> Any:
        """Turn an action of the agent's `action_space` into what the environment itself takes.

        Optional, for adapters of environments whose own actions have another form.
        """
        self.agent_index(agent)
        return action

    def action_space(self, agent: str, params: Params) -> Space:
        """Return the agent's own, unpadded action space.

        Agents of one environment may have spaces of different kinds.
        """
        raise NotImplementedError

    def horizon(self, params: Params) -> int | jax.Array | None:
        """Return the maximum length of an episode in steps, or None without a bound."""
        return None

    def phase_length(self, params: Params) -> int | jax.Array | None:
        """Return over how many steps a run spreads the phases of its first episodes.

        Optional: the horizon, unless something nearer to the length of episodes is known. None to
        begin them all together.
        """
        return self.horizon(params)

    def render(
        self, state: State, params: Params | None = None, last_action: Any = None
    ) -> str | None:
        """Draw a state of one environment as SVG, on the host; None where there is no picture.

        Optional. What is drawn is told apart by shape as well as by colour, in colours that suit
        light and dark pages: `jaxmarl_envs.drawing.Canvas` does so.

        Args:
            state: of which every array is, or can be made, NumPy's.
            params: None for `default_params`.
            last_action: every slot's action at the step before; None at the start.
        """
        del state, params, last_action
        return None

    def sign(self, agent: str) -> str:
        """Draw an agent as its pictures show it, as a small SVG to stand beside its name.

        Optional; without it the shape, colour and number of its slot, as `Canvas.agent` has them.
        """
        return agent_sign(self.agent_index(agent))

    def best_actions(self, state: State, params: Params | None = None) -> np.ndarray | None:
        """Find the actions that perfect play allows, `[A, W]` bool, on the host; None if unknown.

        Optional. Rows of agents that do not act mean nothing.
        """
        del state, params
        return None

    def cells(self, state: State) -> jax.Array | None:
        """Return a board's cells, `[rows, cols]` int32: the slot of each stone; -1 for none.

        Optional, for games of stones on a board, whose actions are all its cells or all its columns
        in order. It is compiled, so that a page can draw the board without this package.
        """
        del state
        return None

    def reset(self, key: jax.Array, params: Params | None = None) -> tuple[Observation, State]:
        """Begin an episode; `params` defaults to `default_params`."""
        return self.reset_env(key, self.default_params if params is None else params)

    def step(
        self, key: jax.Array, state: State, action: Any, params: Params | None = None
    ) -> StepResult[State]:
        """Advance one step and begin a new episode when this one is over.

        `obs` and `state` are then those of the new episode. `info["episode_over"]` (scalar bool)
        tells so. `info["final_observation"]` is, at every step, the observation before the reset,
        in which an agent whose life ended at this step still has its own row. The key is split in
        two: the first steps, the second resets.
        """
        params = self.default_params if params is None else params
        key_step, key_reset = split(key)
        obs, state, reward, terminated, truncated, info = self._step(
            key_step, state, action, params
        )
        fresh = self.reset_env(key_reset, params)
        obs, state = select(info["episode_over"], fresh, (obs, state))
        return obs, state, reward, terminated, truncated, info

    def step_batch(
        self, keys: jax.Array, state: State, action: Any, params: Params
    ) -> StepResult[State]:
        """Step like `vmap(step)` over a leading axis `E` of keys, states and actions, bit-for-bit.

        On a CPU, resets are computed only at the steps at which at least one episode is over, and
        expensive ones only where an episode is over; see `resets.py`.
        """
        split_all = jax.vmap(split)
        step = jax.vmap(self._step, in_axes=(0, 0, 0, None))
        step_keys = split_all(keys)[:, 0]
        obs, state, reward, terminated, truncated, info = step(step_keys, state, action, params)
        obs, state = reset_where(self.reset_env, info["episode_over"], keys, (obs, state), params)
        return obs, state, reward, terminated, truncated, info

    def prepare(self, num_envs: int) -> None:
        """Begin to start what steps of so many environments need, such as other processes.

        For callers that have something else to do first, such as to compile; steps do it themselves
        otherwise.
        """

    def close(self) -> None:
        """End what steps have started, such as other processes; later steps start it again."""

    def step_batch_ahead(
        self, keys: jax.Array, state: State, action: Any, params: Params, ahead: Ahead[State]
    ) -> StepResult[State]:
        """Step like `step_batch`, while other environments begin the step that comes next.

        What is returned does not depend on `ahead`. Only where `steps_ahead`.
        """
        raise NotImplementedError(f"{self.name!r} has no step_batch_ahead")

    def _step(self, key: jax.Array, state: State, action: Any, params: Params) -> StepResult[State]:
        obs, state, reward, terminated, truncated, info = self.step_env(key, state, action, params)
        info = {"final_observation": obs, **info, "episode_over": ~obs.alive.any()}
        return obs, state, reward, terminated, truncated, info

    def agent_index(self, agent: str) -> int:
        """Find the slot of the named agent."""
        if agent not in self.agents:
            raise ValueError(
                f"unknown agent {agent!r} in {self.name!r}: the agents are {', '.join(self.agents)}"
            )
        return self.agents.index(agent)

    def action_spaces(self, params: Params) -> Mapping[str, Space]:
        """Return every agent's action space by name."""
        # Asked also while functions are traced; a space may read an array of JAX's even then.
        with jax.ensure_compile_time_eval():
            return {agent: self.action_space(agent, params) for agent in self.agents}

    def action_layout(self, params: Params) -> ActionLayout:
        """Return how the actions and masks of all slots are laid out in arrays."""
        return ActionLayout(self.action_spaces(params))
