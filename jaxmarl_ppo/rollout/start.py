"""Episodes begun at different phases, so that environments of a fixed horizon leave step.

A rollout shorter than the horizon would otherwise see only one phase of the episode at a time.
"""

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.types import PyTree, Slots


def stagger_episodes(
    env: MultiAgentEnv, env_params: PyTree, slots: Slots, key: jax.Array
) -> tuple[Slots, jax.Array]:
    """Play `horizon * e / E` ticks of uniformly random legal actions in environment `e`.

    Returns:
        The slots, and `[E, A]` bool: False where the present life began in this play and is not to
        be counted in statistics. Environments without a horizon are left as they are.
    """
    num_envs = slots.fresh.shape[0]
    horizon = env.horizon(env_params)
    if horizon is None:
        return slots, jnp.ones_like(slots.fresh)
    offset = spread_phases(horizon, num_envs)
    num_ticks = offset.max()
    random = jax.vmap(make_random_script(env, env_params), in_axes=(0, 0, None, 0))

    def tick(index: jax.Array, carry: tuple[Observation, PyTree]) -> tuple[Observation, PyTree]:
        obs, env_state = carry
        key_act, key_env = split(fold_in(key, index))
        action = random(env_state, obs, env_params, split(key_act, num_envs))
        keys = split(key_env, num_envs)
        stepped = env.step_batch(keys, env_state, action, env_params)[:2]
        # On the host a tick that is dropped costs all before it again, so first come those.
        plays = index >= num_ticks - offset if env.steps_on_host else index < offset
        return where_rows(plays, stepped, carry)

    carry = (slots.obs, slots.env_state)
    obs, env_state = jax.lax.fori_loop(0, num_ticks, tick, carry)
    counted = (offset == 0)[:, None] | ~obs.alive
    return slots.replace(obs=obs, env_state=env_state), counted


def spread_phases(horizon: int | jax.Array, num_envs: int) -> jax.Array:
    """Spread `num_envs` phases evenly over a horizon: `horizon * e // num_envs`, `[E]` int.

    Also where the product does not fit into 32 bits: what divides is multiplied at once, the rest
    by the bits of `e`, with a long division.
    """
    index = jnp.arange(num_envs)
    quotient = remainder = jnp.zeros_like(index)
    for bit in reversed(range(num_envs.bit_length())):
        remainder = 2 * remainder + (horizon % num_envs) * (index >> bit & 1)
        quotient = 2 * quotient + remainder // num_envs
        remainder %= num_envs
    return index * (horizon // num_envs) + quotient
