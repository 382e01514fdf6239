"""The initial state of a run: fresh episodes, at different phases if wanted.

Episodes of a fixed horizon that begin together stay together: a rollout shorter than the horizon
would see one phase of the episode at a time.
"""

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.scripted import make_random_script_of
from jaxmarl_ppo.types import League, PyTree, RolloutState

# After so many in a row, episodes of random lengths are out of step.
ENOUGH_EPISODES = 4


def init_rollout_state(
    env: MultiAgentEnv,
    env_params: PyTree,
    players: Players,
    league: League,
    key: jax.Array,
    num_envs: int,
) -> RolloutState:
    """Begin an episode in every environment; no agent has decided yet."""
    key_reset, key_draw = split(key)
    keys = split(key_reset, num_envs)
    obs, env_state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, env_params)
    shape = (num_envs, env.num_agents)
    episode = jnp.zeros(num_envs, jnp.int32)
    everyone = jnp.ones(shape, bool)
    draw = Draw(episode, everyone, jnp.zeros(shape, jnp.int32), obs.alive)
    return RolloutState(
        env_state=env_state,
        obs=obs,
        hidden=players.initial_hidden(num_envs),
        is_first=everyone,
        player=players.draw(key_draw, league, draw),
        last_action=players.layout.zeros(num_envs),
        last_reward=jnp.zeros(shape),
        episode=episode,
    )


def stagger_episodes(
    env: MultiAgentEnv,
    env_params: PyTree,
    layout: ActionLayout,
    state: RolloutState,
    key: jax.Array,
) -> tuple[RolloutState, jax.Array]:
    """Play `L * e / E` steps of uniformly random legal actions in environment `e` of `E`.

    `L` is the environment's `phase_length`, by default its horizon. Episodes that end long before
    that spread by themselves: play ends as soon as `ENOUGH_EPISODES` are over in each environment
    that still plays.

    Returns:
        The state, and `[E, A]` bool: False where the present life began during this play and is not
        counted in statistics. Environments whose length is not known are unchanged.
    """
    num_envs = state.is_first.shape[0]
    length = env.phase_length(env_params)
    if length is None:
        return state, jnp.ones_like(state.is_first)
    offset = spread_phases(length, num_envs)
    # On the host a dropped step costs all steps before it again, so those environments come first.
    plays_from = offset.max() - offset if env.steps_on_host else jnp.zeros_like(offset)
    plays_until = plays_from + offset
    random = jax.vmap(make_random_script_of(layout), in_axes=(0, 0, None, 0))

    def continues(carry: tuple[jax.Array, jax.Array, Observation, PyTree]) -> jax.Array:
        index, ended, _, _ = carry
        return ((plays_until > index) & (ended < ENOUGH_EPISODES)).any()

    def step(
        carry: tuple[jax.Array, jax.Array, Observation, PyTree],
    ) -> tuple[jax.Array, jax.Array, Observation, PyTree]:
        index, ended, obs, env_state = carry
        key_act, key_env = split(fold_in(key, index))
        action = random(env_state, obs, env_params, split(key_act, num_envs))
        keys = split(key_env, num_envs)
        new_obs, new_state, *_, info = env.step_batch(keys, env_state, action, env_params)
        plays = (plays_from <= index) & (index < plays_until)
        ended += plays & info["episode_over"]
        obs, env_state = where_rows(plays, (new_obs, new_state), (obs, env_state))
        return index + 1, ended, obs, env_state

    ended = jnp.zeros(num_envs, jnp.int32)
    start = (jnp.int32(0), ended, state.obs, state.env_state)
    _, _, obs, env_state = jax.lax.while_loop(continues, step, start)
    # A slot that is empty here begins its next life in training, which sees all of it.
    counted = (offset == 0)[:, None] | ~obs.alive
    return state.replace(obs=obs, env_state=env_state), counted


def spread_phases(length: int | jax.Array, num_envs: int) -> jax.Array:
    """Spread `num_envs` phases evenly over `length` steps: `length * e // num_envs`, `[E]` int.

    The product may exceed 32 bits: the quotient is multiplied at once, the remainder by the bits of
    `e`, with a long division.
    """
    index = jnp.arange(num_envs)
    quotient = remainder = jnp.zeros_like(index)
    for bit in reversed(range(num_envs.bit_length())):
        remainder = 2 * remainder + (length % num_envs) * (index >> bit & 1)
        quotient = 2 * quotient + remainder // num_envs
        remainder %= num_envs
    return index * (length // num_envs) + quotient
