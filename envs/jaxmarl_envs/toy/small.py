"""Small environments, each of which tests one feature, with known optima."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import split, unrolled

# ---- One after the other -------------------------------------------------------------------------


@struct.dataclass
class RelayParams:
    """Numeric parameters."""

    leg: int | jax.Array = 3  # [] int: steps of each runner


@struct.dataclass
class RelayState:
    """State: the positions of the baton and of its goal."""

    time: jax.Array  # [] int32: steps done
    position: jax.Array  # [] int32
    goal: jax.Array  # [] int32: -1 or 1, the side on which the goal lies


class Relay(MultiAgentEnv[RelayState, RelayParams]):
    """A late-joining agent: B is born at the step at which A's life ends, and carries on its baton.

    The baton starts at 0 of a line; the goal is at `2 * leg` or `-2 * leg`, a fair coin. A carries
    the baton one step left (action 0) or right (action 1) at each of steps 0 to `leg - 1`. At
    step `leg - 1` A's life terminates, and the observation after this step has B alive and to act.
    B carries on from there for `leg` steps; then B's life terminates and the episode is over, after
    `2 * leg` steps. B does not live before A's end, nor A after it.

    At the last step of its own life, a runner earns minus the distance between baton and goal; at
    all other steps 0. So A is paid for what B finds: where A leaves a distance d, B's best return
    is `leg - d`. Returns (A / B) with the default leg of 3: both run to the goal -3 / 0; uniform
    play, and any that ignores the goal, -6 / -6 on average; A uniform and B running -6 / -3. At
    the optimum a decision with k steps of its leg left, itself included, and distance d has the
    value `gamma ** (k - 1) * (k - d)`.
    """

    name = "relay"
    agents = ("a", "b")

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one runner."""
        return 1

    @property
    def default_params(self) -> RelayParams:
        """Set both legs to 3 steps."""
        return RelayParams()

    def horizon(self, params: RelayParams) -> int | jax.Array:
        """Return the length of every episode, `2 * params.leg` steps."""
        return 2 * params.leg

    def observation_space(self, agent: str, params: RelayParams) -> Box:
        """Return the space: position over `2 * leg`, goal's side (-1 or 1), share of leg to go."""
        self.agent_index(agent)
        return Box(-1.0, 1.0, (3,))

    def action_space(self, agent: str, params: RelayParams) -> Discrete:
        """Return two actions: left and right."""
        self.agent_index(agent)
        return Discrete(2)

    def reset_env(self, key: jax.Array, params: RelayParams) -> tuple[Observation, RelayState]:
        """Toss for the side of the goal and put A at 0."""
        goal = 2 * jax.random.bernoulli(unrolled(key)).astype(jnp.int32) - 1
        zero = jnp.zeros((), jnp.int32)
        state = RelayState(time=zero, position=zero, goal=goal)
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: RelayState, action: jax.Array, params: RelayParams
    ) -> StepResult[RelayState]:
        """Let the one whose leg it is take one step; `action` is `[2]` int."""
        runner = state.time // params.leg
        step = jnp.where(action[runner] == 1, 1, -1)
        state = RelayState(state.time + 1, state.position + step, state.goal)
        distance = jnp.abs(2 * params.leg * state.goal - state.position)
        terminated = (jnp.arange(2) == runner) & (state.time % params.leg == 0)
        reward = jnp.where(terminated, -distance, 0).astype(jnp.float32)
        obs = self._observe(state, params)
        return obs, state, reward, terminated, jnp.zeros_like(terminated), {}

    def _observe(self, state: RelayState, params: RelayParams) -> Observation:
        first = jnp.arange(2) * params.leg  # [A]: the step at which each leg begins
        to_go = jnp.clip(first + params.leg - state.time, 0, params.leg) / params.leg
        alive = (state.time >= first) & (state.time < first + params.leg)
        place = jnp.stack([state.position / (2 * params.leg), state.goal]).astype(jnp.float32)
        return Observation(
            features=jnp.column_stack([jnp.broadcast_to(place, (2, 2)), to_go]),
            action_mask=jnp.ones((2, 2), bool),
            alive=alive,
            agent_mask=alive,
        )


# ---- Unequal spaces ------------------------------------------------------------------------------


@struct.dataclass
class MultiSpacesParams:
    """Numeric parameters."""

    max_steps: int | jax.Array = 25  # [] int: steps in an episode


@struct.dataclass
class MultiSpacesState:
    """State: the targets to name."""

    time: jax.Array  # [] int32: steps done
    target: jax.Array  # [A] int32: below the agent's number of actions


class MultiSpaces(MultiAgentEnv[MultiSpacesState, MultiSpacesParams]):
    """Agent 0 has 10 features and 2 actions, agent 1 has 20 and 3; both act at every step.

    At every step each agent sees its own target, uniform among its actions: a one-hot in its first
    2 (3) features. The other 8 (17) are uniform noise between -1 and 1. An agent earns 1 at each
    step at which it names its target. Both are truncated at step `params.max_steps`, because no
    observation tells the time. Returns at 25 steps (agent 0 / agent 1): 25 / 25 at the optimum,
    12.5 / 8.33 for uniform play. At the optimum every decision has the value `1 / (1 - gamma)`.

    It has the spaces of RLlib's `BasicMultiAgentMultiSpaces`, whose agents have nothing to learn.
    """

    name = "multi_spaces"
    agents = ("agent_0", "agent_1")
    _widths = (10, 20)
    _num_actions = (2, 3)

    @property
    def default_params(self) -> MultiSpacesParams:
        """Set the length of an episode to 25 steps."""
        return MultiSpacesParams()

    def horizon(self, params: MultiSpacesParams) -> int | jax.Array:
        """Return the length of every episode, `params.max_steps` steps."""
        return params.max_steps

    def observation_space(self, agent: str, params: MultiSpacesParams) -> Box:
        """Return the space of target one-hot, then noise: 10 for agent 0, 20 for agent 1."""
        return Box(-1.0, 1.0, (self._widths[self.agent_index(agent)],))

    def action_space(self, agent: str, params: MultiSpacesParams) -> Discrete:
        """Return one action for each target: 2 for agent 0, 3 for agent 1."""
        return Discrete(self._num_actions[self.agent_index(agent)])

    def reset_env(
        self, key: jax.Array, params: MultiSpacesParams
    ) -> tuple[Observation, MultiSpacesState]:
        """Draw the first targets and noise."""
        return self._draw(key, jnp.zeros((), jnp.int32), params)

    def step_env(
        self, key: jax.Array, state: MultiSpacesState, action: jax.Array, params: MultiSpacesParams
    ) -> StepResult[MultiSpacesState]:
        """Let both name their targets at once; `action` is `[2]` int."""
        reward = (action == state.target).astype(jnp.float32)
        obs, state = self._draw(key, state.time + 1, params)
        return obs, state, reward, jnp.zeros_like(obs.alive), ~obs.alive, {}

    def _draw(
        self, key: jax.Array, time: jax.Array, params: MultiSpacesParams
    ) -> tuple[Observation, MultiSpacesState]:
        key_target, key_noise = split(key)
        num_actions = jnp.array(self._num_actions)[:, None]
        target = jax.random.randint(unrolled(key_target), (2,), 0, num_actions[:, 0])
        noise = jax.random.uniform(unrolled(key_noise), (2, max(self._widths)), minval=-1.0)
        column = jnp.arange(max(self._widths))
        features = jnp.where(column < num_actions, column == target[:, None], noise)
        features = jnp.where(column < jnp.array(self._widths)[:, None], features, 0.0)
        action_mask = jnp.arange(max(self._num_actions)) < num_actions
        alive = jnp.broadcast_to(time < params.max_steps, (2,))
        obs = Observation(features, action_mask, alive=alive, agent_mask=alive)
        return obs, MultiSpacesState(time, target)


# ---- Again, and chance ---------------------------------------------------------------------------

HOLD, THROW = range(2)
NUM_FACES = 3


@struct.dataclass
class PressYourLuckParams:
    """Numeric parameters."""

    num_decisions: int | jax.Array = 10  # [] int: of both players together
    p_bust: float | jax.Array = 0.25  # [] float: chance that a throw loses the turn


@struct.dataclass
class PressYourLuckState:
    """The score sheet and whose turn it is."""

    banked: jax.Array  # [2] int32: points that are safe
    at_stake: jax.Array  # [] int32: points of this turn, still to be lost
    mover: jax.Array  # [] int32: slot whose turn it is
    thrown: jax.Array  # [] bool: a throw is in the air, and only chance moves
    left: jax.Array  # [] int32: decisions left, of both together


class PressYourLuck(MultiAgentEnv[PressYourLuckState, PressYourLuckParams]):
    """A zero-sum dice game, throw again or hold, with runs of moves and steps of pure chance.

    Who has the turn throws (action 1) or holds (action 0). A throw is followed by a step at which
    nobody acts and the die falls: with probability `p_bust` the points at stake are lost and the
    turn passes; otherwise 1, 2 or 3, equally likely, are added to the points at stake and the same
    player decides again. Holding banks the points at stake and passes the turn at once. With
    nothing at stake holding is illegal (and, if chosen all the same, is a throw). `first` begins.
    The game is over when `num_decisions` decisions, of both together, have been made and the last
    die has fallen; what is then at stake is lost. Whoever has banked more earns 1 and the other -1;
    a tie earns 0. Nothing is earned before, and both lives terminate at that step, which comes
    within `2 * num_decisions` steps. `info["metrics"]` then has a 1 in `win`, `draw` or `loss`.

    Expected return of `first` with the default parameters, `second` has the opposite: best play on
    both sides 29607 / 262144 = 0.1129; a fair coin on both sides wherever holding is legal 0.1657;
    holding as soon as it is legal on both sides 0.2984; holding from 4 points at stake on both
    sides 0.2090.
    """

    name = "press_your_luck"
    agents = ("first", "second")

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one."""
        return 1

    @property
    def default_params(self) -> PressYourLuckParams:
        """Set ten decisions, and a chance of one in four that a throw loses the turn."""
        return PressYourLuckParams()

    def horizon(self, params: PressYourLuckParams) -> int | jax.Array:
        """Bound a game by `2 * num_decisions` steps, if both always throw."""
        return 2 * params.num_decisions

    def observation_space(self, agent: str, params: PressYourLuckParams) -> Box:
        """Return the space of six numbers, the points among them in units of 10.

        Points banked by oneself and by the other, points at stake, 1 where it is one's own turn, 1
        while a throw is in the air, share of the decisions that are left.
        """
        self.agent_index(agent)
        return Box(0.0, float("inf"), (6,))

    def action_space(self, agent: str, params: PressYourLuckParams) -> Discrete:
        """Return the two actions: hold or throw."""
        self.agent_index(agent)
        return Discrete(2)

    def reset_env(
        self, key: jax.Array, params: PressYourLuckParams
    ) -> tuple[Observation, PressYourLuckState]:
        """Begin with nothing banked and nothing at stake."""
        zero = jnp.zeros((), jnp.int32)
        state = PressYourLuckState(
            banked=jnp.zeros(2, jnp.int32),
            at_stake=zero,
            mover=zero,
            thrown=jnp.zeros((), bool),
            left=jnp.asarray(params.num_decisions, jnp.int32),
        )
        return self._observe(state, params), state

    def step_env(
        self,
        key: jax.Array,
        state: PressYourLuckState,
        action: jax.Array,
        params: PressYourLuckParams,
    ) -> StepResult[PressYourLuckState]:
        """Play a decision, or the fall of the die; `action` is `[2]` int."""
        key_bust, key_face = split(key)
        bust = state.thrown & jax.random.bernoulli(unrolled(key_bust), params.p_bust)
        face = jax.random.randint(unrolled(key_face), (), 1, NUM_FACES + 1)
        holds = ~state.thrown & (action[state.mover] == HOLD) & (state.at_stake > 0)
        passes = bust | holds

        gain = jnp.where(jnp.arange(2) == state.mover, state.at_stake, 0)
        state = PressYourLuckState(
            banked=state.banked + jnp.where(holds, gain, 0),
            at_stake=jnp.where(passes, 0, state.at_stake + jnp.where(state.thrown, face, 0)),
            mover=jnp.where(passes, 1 - state.mover, state.mover),
            thrown=~state.thrown & ~holds,
            left=state.left - ~state.thrown,
        )
        obs = self._observe(state, params)
        sign = jnp.sign(state.banked - state.banked[::-1])  # [A]
        results = {"win": sign > 0, "draw": sign == 0, "loss": sign < 0}
        metrics = {name: (x & ~obs.alive).astype(jnp.float32) for name, x in results.items()}
        reward = metrics["win"] - metrics["loss"]
        terminated = ~obs.alive
        return obs, state, reward, terminated, jnp.zeros_like(terminated), {"metrics": metrics}

    def _observe(self, state: PressYourLuckState, params: PressYourLuckParams) -> Observation:
        turn = jnp.arange(2) == state.mover
        points = jnp.stack([state.banked, state.banked[::-1], jnp.full(2, state.at_stake)]) / 10.0
        shared = jnp.stack([state.thrown, state.left / params.num_decisions]).astype(jnp.float32)
        alive = jnp.broadcast_to(state.thrown | (state.left > 0), (2,))
        may_hold = turn & (state.at_stake > 0)
        return Observation(
            features=jnp.column_stack([points.T, turn, jnp.broadcast_to(shared, (2, 2))]),
            action_mask=jnp.column_stack([may_hold, jnp.ones(2, bool)]),
            alive=alive,
            agent_mask=alive & turn & ~state.thrown,
        )
