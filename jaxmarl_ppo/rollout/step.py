"""One environment step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import Ahead, MultiAgentEnv
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.rollout.act import ActOutput
from jaxmarl_ppo.rollout.noise import Noise
from jaxmarl_ppo.types import PyTree, RolloutState


class StepOutput(NamedTuple):
    """Results of one step of the environments."""

    reward: jax.Array  # [E, A]
    terminated: jax.Array  # [E, A] bool: edge
    truncated: jax.Array  # [E, A] bool: edge; counts only where not terminated too
    info: dict[str, Any]  # of `MultiAgentEnv.step_batch`


def step(
    env: MultiAgentEnv,
    env_params: PyTree,
    state: RolloutState,
    act_output: ActOutput,
    noise: Noise,
    ahead: Ahead[Any] | None = None,
) -> tuple[RolloutState, StepOutput]:
    """Step the environments by the actions of `act`, and reset those that are over.

    Args:
        env: the environment.
        env_params: its parameters.
        state: before the step.
        act_output: of `act`.
        noise: of the step.
        ahead: what other environments begin meanwhile, where they can.

    Returns:
        The state after the step and the environments' outputs. `is_first` and `player` still belong
        to the played lives, as values at their end need them; `lives.begin_lives` comes next.
    """
    args = noise.env, state.env_state, act_output.env_action, env_params
    found = env.step_batch(*args) if ahead is None else env.step_batch_ahead(*args, ahead)
    obs, env_state, reward, terminated, truncated, info = found
    acted = state.obs.agent_mask
    after = state.replace(
        env_state=env_state,
        obs=obs,
        hidden=act_output.hidden,
        is_first=state.is_first & ~acted,
        last_action=where_rows(acted, act_output.action, state.last_action),
        last_reward=jnp.where(acted, 0.0, state.last_reward) + reward,
    )
    return after, StepOutput(reward, terminated, truncated, info)
