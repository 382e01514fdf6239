"""Probe environments: each tests one property of a trainer, with values computed by hand.

Values are those that a critic must reach: `gamma` is the discount, and "by decision" and "by step"
say whether it counts an agent's own decisions or the steps of the environment.
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import unrolled

_NUM_SYMBOLS = 2


@struct.dataclass
class Clock:
    """State of a constant environment: the steps done."""

    time: jax.Array  # [] int32: steps done


@struct.dataclass
class ValueOnlyParams:
    """Numeric parameters."""

    reward: float | jax.Array = 1.0  # [] float


@struct.dataclass
class TruncationOnlyParams:
    """Numeric parameters."""

    reward: float | jax.Array = 1.0  # [] float: at every step
    max_steps: int | jax.Array = 10  # [] int: steps in an episode


class _Constant(MultiAgentEnv):
    """One agent, one observation, two actions without effect, the same reward at every step."""

    agents = ("agent_0",)
    _truncates: bool

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: the only agent."""
        return 1

    def observation_space(self, agent: str, params: object) -> Box:
        """Return the space of a single 1."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (1,))

    def action_space(self, agent: str, params: object) -> Discrete:
        """Return two actions without effect."""
        self.agent_index(agent)
        return Discrete(2)

    def reset_env(self, key: jax.Array, params) -> tuple[Observation, Clock]:
        """Start the clock."""
        return self._observe(jnp.array(True)), Clock(jnp.zeros((), jnp.int32))

    def step_env(
        self, key: jax.Array, state: Clock, action: jax.Array, params
    ) -> StepResult[Clock]:
        """Advance one step; `action` is `[1]` int."""
        state = Clock(state.time + 1)
        over = state.time >= jnp.asarray(self.horizon(params))
        ended = over[None]
        never = jnp.zeros_like(ended)
        terminated, truncated = (never, ended) if self._truncates else (ended, never)
        reward = jnp.full(1, params.reward, jnp.float32)
        return self._observe(~over), state, reward, terminated, truncated, {}

    def _observe(self, alive: jax.Array) -> Observation:
        return Observation(jnp.ones((1, 1)), jnp.ones((1, 2), bool), alive[None], alive[None])


class ValueOnly(_Constant):
    """Probe of the critic: one agent, one step and a constant reward.

    The agent earns `params.reward` whatever it does, and its life terminates. V = reward, for every
    discount; every return is the reward.
    """

    name = "value_only"
    _truncates = False

    @property
    def default_params(self) -> ValueOnlyParams:
        """Set the reward to 1."""
        return ValueOnlyParams()

    def horizon(self, params: ValueOnlyParams) -> int:
        """Bound every episode by one step."""
        return 1


class TruncationOnly(_Constant):
    """Probe of bootstrapping at truncation: a constant reward until a time limit.

    The agent earns `params.reward` at each of `params.max_steps` steps, whatever it does; then its
    life is truncated. The observation is the same at all steps, so V = reward / (1 - gamma),
    however short the episode; one that takes the truncation for an end learns less. Every return is
    `reward * max_steps`.
    """

    name = "truncation_only"
    _truncates = True

    @property
    def default_params(self) -> TruncationOnlyParams:
        """Set the reward to 1 at each of 10 steps."""
        return TruncationOnlyParams()

    def horizon(self, params: TruncationOnlyParams) -> int | jax.Array:
        """Return the length of every episode, `params.max_steps` steps."""
        return params.max_steps


@struct.dataclass
class DelayedRewardParams:
    """Numeric parameters."""

    delay: int | jax.Array = 1  # [] int, at least 1: decisions of the second agent


@struct.dataclass
class DelayedRewardState:
    """State: the targets that both agents see, and whether the first agent was right."""

    time: jax.Array  # [] int32: steps done
    target: jax.Array  # [2] int32: the symbol to name, redrawn at every step
    right: jax.Array  # [] bool: the first agent named its symbol


class DelayedReward(MultiAgentEnv[DelayedRewardState, DelayedRewardParams]):
    """Probe of credit: the first agent acts, and is rewarded at a later step of the other agent.

    Each observation shows one of two symbols. At step 0 only `first` acts; at steps 1 to
    `params.delay` only `second` does, and `first` waits. `second` earns 1 at each of its steps at
    which it names its symbol. `first` earns 1 at the last of these steps if it named, at step 0,
    the symbol that it saw then; the symbols that it sees while it waits are others. Both lives
    terminate at that step, so an episode lasts `delay + 1` steps.

    Returns: the optimum is 1 for `first` and `delay` for `second`, uniform play has half of both.
    At the optimum the value of the decision of `first` is 1 by decision and `gamma ** delay` by
    step, and that of a decision of `second` with `k` decisions left, itself included, is
    `(1 - gamma ** k) / (1 - gamma)` both ways.
    """

    name = "delayed_reward"
    agents = ("first", "second")

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one."""
        return 1

    @property
    def default_params(self) -> DelayedRewardParams:
        """Set the delay to one step."""
        return DelayedRewardParams()

    def horizon(self, params: DelayedRewardParams) -> int | jax.Array:
        """Return the length of every episode, `params.delay + 1` steps."""
        return params.delay + 1

    def observation_space(self, agent: str, params: DelayedRewardParams) -> Box:
        """Return the space of the symbol's one-hot (2) and the share of the episode left (1)."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (_NUM_SYMBOLS + 1,))

    def action_space(self, agent: str, params: DelayedRewardParams) -> Discrete:
        """Return one action for each symbol."""
        self.agent_index(agent)
        return Discrete(_NUM_SYMBOLS)

    def reset_env(
        self, key: jax.Array, params: DelayedRewardParams
    ) -> tuple[Observation, DelayedRewardState]:
        """Draw the symbols."""
        state = DelayedRewardState(
            time=jnp.zeros((), jnp.int32), target=self._draw(key), right=jnp.zeros((), bool)
        )
        return self._observe(state, params), state

    def step_env(
        self,
        key: jax.Array,
        state: DelayedRewardState,
        action: jax.Array,
        params: DelayedRewardParams,
    ) -> StepResult[DelayedRewardState]:
        """Advance one step; `action` is `[2]` int."""
        named = action == state.target  # [A]
        right = jnp.where(state.time == 0, named[0], state.right)
        over = state.time >= params.delay
        reward = jnp.stack([over & right, (state.time > 0) & named[1]]).astype(jnp.float32)
        state = DelayedRewardState(state.time + 1, self._draw(key), right)
        terminated = jnp.broadcast_to(over, (2,))
        obs = self._observe(state, params)
        return obs, state, reward, terminated, jnp.zeros_like(terminated), {}

    def _draw(self, key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(unrolled(key), shape=(2,)).astype(jnp.int32)

    def _observe(self, state: DelayedRewardState, params: DelayedRewardParams) -> Observation:
        length = params.delay + 1
        left = jnp.full((2, 1), (length - state.time) / length, jnp.float32)
        alive = jnp.broadcast_to(state.time < length, (2,))
        turn = jnp.minimum(state.time, 1)
        return Observation(
            features=jnp.concatenate([jax.nn.one_hot(state.target, _NUM_SYMBOLS), left], axis=1),
            action_mask=jnp.ones((2, _NUM_SYMBOLS), bool),
            alive=alive,
            agent_mask=alive & (jnp.arange(2) == turn),
        )


@struct.dataclass
class RememberCueParams:
    """Numeric parameters."""

    delay: int | jax.Array = 3  # [] int, at least 0: steps between cue and question


@struct.dataclass
class RememberCueState:
    """The cue, and how long ago it was shown."""

    time: jax.Array  # [] int32: steps done
    cue: jax.Array  # [] int32


class RememberCue(MultiAgentEnv[RememberCueState, RememberCueParams]):
    """Probe of memory: a cue that is shown at the first step is asked for at the last one.

    Step 0 shows one of two cues, equally likely, to be acted on without effect. `params.delay`
    steps go by: at odd ones the agent does not act and the observation shows the *other* cue, at
    even ones it acts, without effect, on a blank. The step after, `delay + 1`, asks: the agent sees
    nothing but a flag, earns 1 for naming the cue of step 0, and its life terminates. So an
    episode has `delay + 2` steps and `delay // 2 + 2` decisions.

    Returns: 1 with memory; 1/2 for every policy without, uniform play included. At the optimum the
    question is worth 1, and the first decision `gamma ** (delay // 2 + 1)` by decision and
    `gamma ** (delay + 1)` by step. Memory that moves at the steps at which the agent waits has seen
    both cues.
    """

    name = "remember_cue"
    agents = ("agent_0",)

    @property
    def default_params(self) -> RememberCueParams:
        """Set the length of an episode to five steps, three of them decisions."""
        return RememberCueParams()

    def horizon(self, params: RememberCueParams) -> int | jax.Array:
        """Return the length of every episode, `params.delay + 2` steps."""
        return params.delay + 2

    def observation_space(self, agent: str, params: RememberCueParams) -> Box:
        """Return the space of a cue's one-hot or two zeros (2), and 1 where it is asked for (1)."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (_NUM_SYMBOLS + 1,))

    def action_space(self, agent: str, params: RememberCueParams) -> Discrete:
        """Return one action for each cue."""
        self.agent_index(agent)
        return Discrete(_NUM_SYMBOLS)

    def reset_env(
        self, key: jax.Array, params: RememberCueParams
    ) -> tuple[Observation, RememberCueState]:
        """Draw and show the cue."""
        cue = jax.random.bernoulli(unrolled(key)).astype(jnp.int32)
        state = RememberCueState(jnp.zeros((), jnp.int32), cue)
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: RememberCueState, action: jax.Array, params: RememberCueParams
    ) -> StepResult[RememberCueState]:
        """Advance one step; `action` is `[1]` int."""
        terminated = (state.time > params.delay)[None]
        reward = (terminated & (action == state.cue)).astype(jnp.float32)
        state = RememberCueState(state.time + 1, state.cue)
        obs = self._observe(state, params)
        return obs, state, reward, terminated, jnp.zeros_like(terminated), {}

    def _observe(self, state: RememberCueState, params: RememberCueParams) -> Observation:
        asked = state.time == params.delay + 1
        waits = (state.time % 2 == 1) & ~asked
        shown = jnp.where(waits, 1 - state.cue, state.cue)
        cue = jax.nn.one_hot(shown, _NUM_SYMBOLS) * ((state.time == 0) | waits)
        alive = state.time <= params.delay + 1
        return Observation(
            features=jnp.append(cue, asked)[None],
            action_mask=jnp.ones((1, _NUM_SYMBOLS), bool),
            alive=alive[None],
            agent_mask=(alive & ~waits)[None],
        )
