"""Environments whose actions are several choices, or choices and numbers, with known optima."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.actions import Action
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space, Tuple
from jaxmarl_envs.threefry import split

# ---- Agents of different kinds -------------------------------------------------------------------

SITES = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]], np.float32)
NUM_GOODS = 3


@struct.dataclass
class ConvoyParams:
    """Numeric parameters."""

    goods_reward: float | jax.Array = 1.0  # [] float: earned for bringing what is wanted


@struct.dataclass
class ConvoyState:
    """State: where everyone is to go, and what is to be brought there."""

    time: jax.Array  # [] int32: steps done
    site: jax.Array  # [] int32: below 4
    call: jax.Array  # [] int32: the site that the commander has named
    order: jax.Array  # [] int32: the goods that are wanted, below 3
    sold_out: jax.Array  # [] int32: goods that cannot be brought, never the wanted ones


class Convoy(MultiAgentEnv[ConvoyState, ConvoyParams]):
    r"""A commander names a site, two robots drive there, and a carrier brings goods there.

    The commander acts alone at the first step. It alone sees which of four sites is meant, and its
    action (`Discrete(4)`) is what the others hear. At the second step the others act. Robots go to
    a point of the plane (`Box(-1, 1, (2,))`). The carrier (a `Tuple` of `Discrete(3)` and such a
    Box) goes to a point too and brings one of three goods; it alone sees which are wanted, and one
    of the others is sold out: a masked option. Then the episode terminates, and everyone earns

    .. math:: g - (d_0^2 + d_1^2 + d_2^2) / 3,

    where `g` is `params.goods_reward`, by default 1, if the carrier has brought what was wanted and
    else 0, and `d` are the distances from the site of robots and carrier. By default the greatest
    return is 1, and uniform play earns .5 - 7 / 6 on average: a coordinate of a point is off by
    1 / 3 + 1 / 4 in the mean of squares.
    """

    name = "convoy"
    agents = ("commander", "robot_0", "robot_1", "carrier")

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: the two robots and the carrier."""
        return 3

    @property
    def default_params(self) -> ConvoyParams:
        """Pay 1 for the right goods."""
        return ConvoyParams()

    def horizon(self, params: ConvoyParams) -> int:
        """Return the length of every episode, 2 steps."""
        return 2

    def observation_space(self, agent: str, params: ConvoyParams) -> Box:
        """Return the space of a site, one-hot; of the carrier also of the wanted goods."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (len(SITES) + NUM_GOODS * (agent == "carrier"),))

    def action_space(self, agent: str, params: ConvoyParams) -> Space:
        """Return a choice for the commander, a point for robots, and both for the carrier."""
        self.agent_index(agent)
        point = Box(-1.0, 1.0, (2,))
        if agent == "commander":
            return Discrete(len(SITES))
        return Tuple((Discrete(NUM_GOODS), point)) if agent == "carrier" else point

    def reset_env(self, key: jax.Array, params: ConvoyParams) -> tuple[Observation, ConvoyState]:
        """Draw the site, the wanted goods, and other goods that are sold out."""
        key_site, key_order, key_sold = split(key, 3)
        order = jax.random.randint(key_order, (), 0, NUM_GOODS)
        other = jax.random.randint(key_sold, (), 1, NUM_GOODS)
        state = ConvoyState(
            time=jnp.zeros((), jnp.int32),
            site=jax.random.randint(key_site, (), 0, len(SITES)),
            call=jnp.zeros((), jnp.int32),
            order=order,
            sold_out=(order + other) % NUM_GOODS,
        )
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: ConvoyState, action: Action, params: ConvoyParams
    ) -> StepResult[ConvoyState]:
        """Pass on the call, or let the others act; `action.choices [4, 1]`, `.numbers [4, 2]`."""
        over = state.time == 1
        distances = jnp.square(action.numbers[1:] - jnp.asarray(SITES)[state.site]).sum(-1)
        right = action.choices[3, 0] == state.order
        paid = jnp.where(over, right * params.goods_reward - distances.mean(), 0.0)
        call = jnp.where(over, state.call, action.choices[0, 0])
        state = replace(state, time=state.time + 1, call=call)
        terminated = jnp.full(4, over)
        reward = jnp.full(4, paid)
        return self._observe(state, params), state, reward, terminated, jnp.zeros(4, bool), {}

    def _observe(self, state: ConvoyState, params: ConvoyParams) -> Observation:
        seen = jnp.stack([state.site, *[state.call] * 3])
        heard = (
            jax.nn.one_hot(seen, len(SITES)) * ((state.time > 0) | (jnp.arange(4) == 0))[:, None]
        )
        wanted = jnp.zeros((4, NUM_GOODS)).at[3].set(jax.nn.one_hot(state.order, NUM_GOODS))
        alive = jnp.full(4, state.time < 2)
        goods = jnp.arange(NUM_GOODS) != state.sold_out
        return Observation(
            features=jnp.concatenate([heard, wanted], axis=-1),
            action_mask=self.action_layout(params).mask({"carrier": [goods]}),
            alive=alive,
            agent_mask=alive & ((jnp.arange(4) == 0) == (state.time == 0)),
        )


# ---- Many choices at once ------------------------------------------------------------------------


@struct.dataclass
class LockParams:
    """Numeric parameters."""

    prize: float | jax.Array = (
        1.0  # [] float: earned for the whole code, in equal shares for its wheels
    )


class CombinationLock(MultiAgentEnv[jax.Array, LockParams]):
    """One agent sets all wheels of a lock at once, to the code that it observes.

    An episode is one step. The code is uniform. The agent sees it, one-hot for each wheel, and
    receives the share of wheels that it has set correctly, times `params.prize`. By default the
    maximum return is 1, and uniform play earns `1 / num_options`. The right option of a wheel does
    not depend on the others.

    Args:
        num_wheels: choices of an action.
        num_options: options of each choice.
        joint: make all wheels one choice over their `num_options ** num_wheels` combinations.
    """

    name = "combination_lock"
    agents = ("agent",)

    def __init__(self, num_wheels: int = 6, num_options: int = 6, joint: bool = False) -> None:
        for name, value in (("num_wheels", num_wheels), ("num_options", num_options)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: give a whole number of at least 1")
        self.num_wheels, self.num_options, self.joint = num_wheels, num_options, joint

    @property
    def default_params(self) -> LockParams:
        """Pay 1 for the whole code."""
        return LockParams()

    def horizon(self, params: LockParams) -> int:
        """Return the length of every episode, 1 step."""
        return 1

    def observation_space(self, agent: str, params: LockParams) -> Box:
        """Return the space of the code, one-hot for each wheel."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (self.num_wheels * self.num_options,))

    def action_space(self, agent: str, params: LockParams) -> Space:
        """Return one choice for each wheel, or one for all."""
        self.agent_index(agent)
        if self.joint or self.num_wheels == 1:
            return Discrete(self.num_options**self.num_wheels)
        return MultiDiscrete((self.num_options,) * self.num_wheels)

    def reset_env(self, key: jax.Array, params: LockParams) -> tuple[Observation, jax.Array]:
        """Draw a code; the state is the code, `[num_wheels]` int32, with -1 when it is over."""
        code = jax.random.randint(key, (self.num_wheels,), 0, self.num_options)
        return self._observe(code, params), code

    def step_env(
        self, key: jax.Array, state: jax.Array, action: jax.Array | Action, params: LockParams
    ) -> StepResult[jax.Array]:
        """Compare the wheels with the code; `action` is `[1]` int32, or has `choices [1, C]`."""
        if isinstance(action, Action):
            wheels = action.choices[0]
        else:
            sizes = (self.num_options,) * self.num_wheels
            wheels = jnp.stack(jnp.unravel_index(action[0], sizes))
        reward = params.prize * (wheels == state).mean(keepdims=True, dtype=jnp.float32)
        over = jnp.full_like(state, -1)
        return self._observe(over, params), over, reward, jnp.ones(1, bool), jnp.zeros(1, bool), {}

    def _observe(self, code: jax.Array, params: LockParams) -> Observation:
        alive = code[:1] >= 0
        return Observation(
            features=jax.nn.one_hot(code, self.num_options).ravel()[None],
            action_mask=jnp.asarray(self.action_layout(params).exists),
            alive=alive,
            agent_mask=alive,
        )
