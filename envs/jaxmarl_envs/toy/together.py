"""The two-step game of QMIX, in which two agents have to coordinate."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete


@struct.dataclass
class TwoStepState:
    """State: the step, and which of the two second steps was chosen."""

    time: jax.Array  # [] int32: steps done
    risky: jax.Array  # [] bool: whether the second step is the one with 8 to earn


class TwoStep(MultiAgentEnv[TwoStepState, None]):
    r"""The two-step game of QMIX: the best outcome needs both agents to take a risk.

    Both agents act at both steps. The first step has no reward. Action 0 of `agent_0` leads to a
    second step whose team reward is 7, whatever both do. Its action 1 leads to one in which the
    team reward depends on both actions:

    .. math:: \begin{pmatrix} 0 & 1 \\ 1 & 8 \end{pmatrix}.

    There, with a partner that plays at random, action 1 is worth 4.5 and action 0 is worth .5. Each
    agent receives half of the team reward. The maximum is 8. Agents that learn independently tend
    to settle for 7, because the risky step is worth less unless both already play 1 there. Uniform
    play earns 4.75.

    From Rashid et al., "QMIX" (2018), section 5 and table 1.
    """

    name = "two_step"
    agents = ("agent_0", "agent_1")

    @property
    def default_params(self) -> None:
        """Return no parameters."""
        return

    def horizon(self, params: None) -> int:
        """Return the length of every episode, 2 steps."""
        return 2

    def observation_space(self, agent: str, params: None) -> Box:
        """Return the space of the place, one-hot: the first step, the safe one, the risky one."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (3,))

    def action_space(self, agent: str, params: None) -> Discrete:
        """Return two actions."""
        self.agent_index(agent)
        return Discrete(2)

    def reset_env(self, key: jax.Array, params: None) -> tuple[Observation, TwoStepState]:
        """Begin at the first step."""
        state = TwoStepState(jnp.zeros((), jnp.int32), jnp.zeros((), bool))
        return self._observe(state), state

    def step_env(
        self, key: jax.Array, state: TwoStepState, action: jax.Array, params: None
    ) -> StepResult[TwoStepState]:
        """Choose the place, then pay; `action` is `[2]` int."""
        pays = jnp.array([[0.0, 1.0], [1.0, 8.0]])[action[0], action[1]]
        paid = jnp.where(state.time == 0, 0.0, jnp.where(state.risky, pays, 7.0))
        state = TwoStepState(
            state.time + 1, jnp.where(state.time == 0, action[0] == 1, state.risky)
        )
        ended = jnp.full(2, state.time == 2)
        reward = jnp.full(2, paid / 2, jnp.float32)
        return self._observe(state), state, reward, ended, jnp.zeros(2, bool), {}

    def _observe(self, state: TwoStepState) -> Observation:
        place = jnp.where(state.time == 0, 0, 1 + state.risky)
        here = jnp.full(2, state.time < 2)
        features = jnp.tile(jnp.arange(3) == place, (2, 1)).astype(jnp.float32)
        return Observation(features, jnp.ones((2, 2), bool), here, here)
