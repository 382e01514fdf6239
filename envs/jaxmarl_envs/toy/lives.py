"""Lives of every kind: together, alternating, in turn, joining and leaving.

All environments here have one task: an agent sees a target, one of four, and earns 1 at a step at
which it acts and names it. Targets are independent, uniform, and drawn anew for every slot at every
step, so a target that is seen while waiting is not the one to name. Naming at random earns 1/4 of
the optimum, which is 1 for each decision.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import split, unrolled

NUM_TARGETS = 4


def draw_targets(key: jax.Array, num_agents: int) -> jax.Array:
    """Draw a uniform target for every slot, `[A]` int32."""
    # Four targets are two bits, and a random word has 32.
    # Not by `unrolled`, which was slower for these few words: see docs/performance.md.
    words = jax.random.bits(key, (-(-num_agents // 16), 1), jnp.uint32)
    targets = (words >> jnp.arange(0, 32, 2, dtype=jnp.uint32)) % NUM_TARGETS
    return targets.ravel()[:num_agents].astype(jnp.int32)


def naming_features(target: jax.Array, *columns: jax.Array) -> jax.Array:
    """Put the targets `[A]`, as one-hots, beside other columns of `[A]` each."""
    one_hot = jax.nn.one_hot(target, NUM_TARGETS, dtype=jnp.float32)
    return jnp.column_stack([one_hot, *columns])


def _agent_names(num_agents: int) -> tuple[str, ...]:
    if num_agents < 1:
        raise ValueError(f"num_agents={num_agents}: must be at least 1")
    return tuple(f"agent_{i}" for i in range(num_agents))


class _Naming(MultiAgentEnv):
    """Spaces of the environments in which agents name targets."""

    def observation_space(self, agent: str, params: object) -> Box:
        """Return the space of target one-hot (4) and share of the agent's decisions left (1)."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (NUM_TARGETS + 1,))

    def action_space(self, agent: str, params: object) -> Discrete:
        """Return one action for each target."""
        self.agent_index(agent)
        return Discrete(NUM_TARGETS)


@struct.dataclass
class TargetsState:
    """The clock and what there is to name."""

    time: jax.Array  # [] int32: steps done
    target: jax.Array  # [A] int32


@struct.dataclass
class BasicParams:
    """Numeric parameters."""

    max_steps: int | jax.Array = 25  # [] int: steps in an episode


class Basic(_Naming):
    """N agents live for 25 steps, all act at all of them, and each names its own target.

    An agent earns 1 at each step at which it names its target. All lives terminate at step
    `params.max_steps`; the observation tells the time left. Returns of each agent at 25 steps: 25
    at the optimum, 6.25 for uniform play. At the optimum a decision with `k` steps left, itself
    included, has the value `(1 - gamma ** k) / (1 - gamma)`.

    It has the timing of RLlib's `BasicMultiAgent`, whose agents have nothing to learn.

    Args:
        num_agents: at least 1.

    Raises:
        ValueError: `num_agents` is below 1.
    """

    name = "basic"

    def __init__(self, num_agents: int = 2) -> None:
        self.agents = _agent_names(num_agents)

    @property
    def default_params(self) -> BasicParams:
        """Set the length of an episode to 25 steps."""
        return BasicParams()

    def horizon(self, params: BasicParams) -> int | jax.Array:
        """Return the length of every episode, `params.max_steps` steps."""
        return params.max_steps

    def reset_env(self, key: jax.Array, params: BasicParams) -> tuple[Observation, TargetsState]:
        """Draw the first targets."""
        state = TargetsState(jnp.zeros((), jnp.int32), draw_targets(key, self.num_agents))
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: TargetsState, action: jax.Array, params: BasicParams
    ) -> StepResult[TargetsState]:
        """Let all name at once; `action` is `[A]` int."""
        reward = (action == state.target).astype(jnp.float32)
        state = TargetsState(state.time + 1, draw_targets(key, self.num_agents))
        obs = self._observe(state, params)
        return obs, state, reward, ~obs.alive, jnp.zeros_like(obs.alive), {}

    def _observe(self, state: TargetsState, params: BasicParams) -> Observation:
        left = (params.max_steps - state.time) / params.max_steps
        alive = jnp.broadcast_to(state.time < params.max_steps, (self.num_agents,))
        features = naming_features(state.target, jnp.full(self.num_agents, left, jnp.float32))
        return Observation(features, jnp.ones((self.num_agents, NUM_TARGETS), bool), alive, alive)


@struct.dataclass
class NoParams:
    """No numeric parameters: turns are part of the structure."""


class _TakingTurns(_Naming):
    """One agent acts at each step, in a given order; a life terminates with its last decision."""

    def __init__(self, num_agents: int, turns: np.ndarray) -> None:
        self.agents = _agent_names(num_agents)
        acts = turns[:, None] == np.arange(num_agents)
        self._acts = np.vstack([acts, np.zeros((1, num_agents), bool)])  # [steps + 1, A]
        # Decisions of each agent that are left before each step, and after the last one.
        self._left = self._acts[::-1].cumsum(0)[::-1]  # [steps + 1, A]

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one."""
        return 1

    @property
    def default_params(self) -> NoParams:
        """Return parameters without numbers."""
        return NoParams()

    def horizon(self, params: NoParams) -> int:
        """Return the length of every episode, one step for each decision."""
        return len(self._acts) - 1

    def reset_env(self, key: jax.Array, params: NoParams) -> tuple[Observation, TargetsState]:
        """Draw the first targets."""
        state = TargetsState(jnp.zeros((), jnp.int32), draw_targets(key, self.num_agents))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: TargetsState, action: jax.Array, params: NoParams
    ) -> StepResult[TargetsState]:
        """Let the one whose turn it is name its target; `action` is `[A]` int."""
        acts = jnp.asarray(self._acts)[state.time]
        reward = (acts & (action == state.target)).astype(jnp.float32)
        terminated = acts & (jnp.asarray(self._left)[state.time] == 1)
        state = TargetsState(state.time + 1, draw_targets(key, self.num_agents))
        return self._observe(state), state, reward, terminated, jnp.zeros_like(terminated), {}

    def _observe(self, state: TargetsState) -> Observation:
        left = jnp.asarray(self._left, jnp.float32)[state.time]
        return Observation(
            features=naming_features(state.target, left / self._left[0]),
            action_mask=jnp.ones((self.num_agents, NUM_TARGETS), bool),
            alive=left > 0,
            agent_mask=jnp.asarray(self._acts)[state.time],
        )


class EarlyDone(_TakingTurns):
    """Two agents alternate; the first has 3 decisions, the other has 5 and plays on alone.

    Steps 0 to 7 belong to agents 0 1 0 1 0 1 1 1. The life of agent 0 terminates at step 4, that of
    agent 1 at step 7, each with its last decision, and an episode lasts 8 steps. Whose turn it is
    earns 1 for naming its target; nobody earns at the other's steps. Returns: 3 and 5 at the
    optimum, 0.75 and 1.25 for uniform play. By decision, one with `k` decisions left, itself
    included, has the value `(1 - gamma ** k) / (1 - gamma)` at the optimum.

    It has the turns of RLlib's `EarlyDoneMultiAgent`, which however ends the episode for both as
    soon as the first is done.
    """

    name = "early_done"

    def __init__(self) -> None:
        super().__init__(2, np.array([0, 1, 0, 1, 0, 1, 1, 1]))


class RoundRobin(_TakingTurns):
    """N agents take turns, one per step, and each lives for 5 decisions.

    At step t it is the turn of agent t mod N. An agent's life terminates with its last decision, so
    an episode lasts `num_decisions * num_agents` steps, 5 N by default, and the agents leave one by
    one in its last round. Whose turn it is earns 1 for naming its target; nobody earns on another's
    step. Returns of each agent: `num_decisions` at the optimum, a quarter of it for uniform play.
    By decision, one with `k` decisions left, itself included, has the value
    `(1 - gamma ** k) / (1 - gamma)` at the optimum.

    It has the turns of RLlib's `RoundRobinMultiAgent`, whose agents have nothing to learn.

    Args:
        num_agents: at least 1.
        num_decisions: of each agent, at least 1.

    Raises:
        ValueError: an argument is below 1.
    """

    name = "round_robin"

    def __init__(self, num_agents: int = 4, num_decisions: int = 5) -> None:
        if num_decisions < 1:
            raise ValueError(f"num_decisions={num_decisions}: must be at least 1")
        super().__init__(num_agents, np.tile(np.arange(num_agents), num_decisions))


@struct.dataclass
class FlexAgentsParams:
    """Numeric parameters."""

    max_age: int | jax.Array = 25  # [] int: steps that a life can last
    p_join: float | jax.Array = 0.25  # [] float: chance per step that an agent joins
    p_leave: float | jax.Array = 0.75  # [] float: chance per step that one of several leaves


@struct.dataclass
class FlexAgentsState:
    """State: the living agents, their ages, and the targets to name."""

    alive: jax.Array  # [A] bool
    age: jax.Array  # [A] int32: steps lived; 0 in empty slots
    target: jax.Array  # [A] int32


class FlexAgents(_Naming):
    """Agents join and leave at random, in recycled slots; the episode ends when none is alive.

    The first slot holds an agent at the start, the others are empty. One step, in this order:

    1. Everyone who lives names its target, earns 1 if it is right, and is a step older.
    2. Whoever has lived for `params.max_age` steps dies.
    3. If more than one still live, then with probability `p_leave` one of them leaves, drawn
       uniformly.
    4. If a slot is empty, then with probability `p_join` a new agent takes the lowest empty one.
       It acts for the first time at the next step. The slot may be one that became empty at this
       very step, so that a life ends and another begins in it at once; a newcomer may also save an
       episode whose last agent has just died.

    Both ends, of age and by leaving, terminate a life. The episode is over when nobody lives after
    point 4; it has no bound in time. Everyone acts at every step of its life. The observation of an
    empty slot is all zeros.

    Who lives does not depend on actions. The optimum earns each agent 1 at each step of its life,
    uniform play 1/4. With the default parameters an episode lasts 297 steps on average (standard
    deviation 276, median 212), with 75 lives, and its steps hold 1.37 agents; so the optimum of
    the team's return is 407. Averages of 100,000 episodes of a separate simulation, with standard
    errors of 0.3 %.

    It has the rules of RLlib's `FlexAgentsMultiAgent`, which however lets the newcomer in before
    it draws who leaves, so that one may be gone before it has ever acted, and has no slots to run
    out of.

    Args:
        num_slots: the most agents that can live at once, at least 1.

    Raises:
        ValueError: `num_slots` is below 1.
    """

    name = "flex_agents"

    def __init__(self, num_slots: int = 8) -> None:
        if num_slots < 1:
            raise ValueError(f"num_slots={num_slots}: must be at least 1")
        self.agents = _agent_names(num_slots)

    @property
    def default_params(self) -> FlexAgentsParams:
        """Set lives to 25 steps at most, and the chances to join and leave to 1/4 and 3/4."""
        return FlexAgentsParams()

    def observation_space(self, agent: str, params: object) -> Box:
        """Return the space of target one-hot (4), share of `max_age` left, share of slots taken."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (NUM_TARGETS + 2,))

    def reset_env(
        self, key: jax.Array, params: FlexAgentsParams
    ) -> tuple[Observation, FlexAgentsState]:
        """Begin with one agent, newly born, in the first slot."""
        alive = jnp.arange(self.num_agents) == 0
        target = draw_targets(key, self.num_agents)
        state = FlexAgentsState(alive, jnp.zeros(self.num_agents, jnp.int32), target)
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: FlexAgentsState, action: jax.Array, params: FlexAgentsParams
    ) -> StepResult[FlexAgentsState]:
        """Let agents act and age, die, leave and join; `action` is `[A]` int."""
        key_lives, key_target = split(key)
        # One draw is cheaper than three.
        chance = jax.random.uniform(unrolled(key_lives), (self.num_agents + 2,))
        slots = jnp.arange(self.num_agents)
        before = state.alive
        reward = (before & (action == state.target)).astype(jnp.float32)
        age = jnp.where(before, state.age + 1, 0)

        staying = before & (age < params.max_age)
        leaves = (chance[0] < params.p_leave) & (staying.sum() > 1)
        leaver = jnp.argmax(jnp.where(staying, chance[2:], -1.0))
        staying &= ~(leaves & (slots == leaver))

        joins = (chance[1] < params.p_join) & ~staying.all()
        alive = staying | (joins & (slots == jnp.argmin(staying)))

        target = draw_targets(key_target, self.num_agents)
        terminated = before & ~staying
        state = FlexAgentsState(alive, jnp.where(staying, age, 0), target)
        obs = self._observe(state, params)
        ended = self._features(before, FlexAgentsState(alive, age, target), params)
        final = jnp.where(terminated[:, None], ended, obs.features)
        info = {"final_observation": replace(obs, features=final)}
        return obs, state, reward, terminated, jnp.zeros_like(terminated), info

    def _observe(self, state: FlexAgentsState, params: FlexAgentsParams) -> Observation:
        return Observation(
            features=self._features(state.alive, state, params),
            action_mask=jnp.ones((self.num_agents, NUM_TARGETS), bool),
            alive=state.alive,
            agent_mask=state.alive,
        )

    def _features(
        self, shown: jax.Array, state: FlexAgentsState, params: FlexAgentsParams
    ) -> jax.Array:
        left = (params.max_age - state.age) / params.max_age
        taken = jnp.full(self.num_agents, state.alive.mean(dtype=jnp.float32))
        return jnp.where(shown[:, None], naming_features(state.target, left, taken), 0.0)
