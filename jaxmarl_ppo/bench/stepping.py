"""Benchmark of stepping environments with random legal actions, spread over devices."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.bench.timing import Call, Timing, time_calls
from jaxmarl_ppo.devices.sharding import BY_ENV, Devices
from jaxmarl_ppo.machine.cores import even_share
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.rollout.halves import Following, scan_halves
from jaxmarl_ppo.types import PyTree


class Share(NamedTuple):
    """Describes how environments are spread over devices."""

    num_devices: int
    num_envs: int  # on each of them

    @classmethod
    def of(cls, num_envs: int) -> "Share":
        """Spread environments over as many devices as divide them evenly."""
        num_devices = even_share(num_envs, jax.local_device_count())
        return cls(num_devices, num_envs // num_devices)


def time_env(
    env: MultiAgentEnv, env_params: PyTree, share: Share, num_steps: int, repeats: int
) -> Timing:
    """Time `num_steps` steps of random legal actions, with observation and reset."""
    return time_calls(random_play(env, env_params, share, num_steps), repeats)


def random_play(env: MultiAgentEnv, env_params: PyTree, share: Share, num_steps: int) -> Call:
    """Make a call that plays random legal actions, with observation and reset."""
    script = jax.vmap(make_random_script(env, env_params), in_axes=(0, 0, None, 0))
    is_choice = env.action_layout(env_params).is_choice

    def draw(carry: tuple[Any, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        """Return the keys of the environments' steps, and actions."""
        obs, state = carry
        key_act, key_env = jax.random.split(key)
        num_envs = obs.alive.shape[0]
        if is_choice:
            action = draw_legal(key_act, obs.action_mask)
        else:
            action = script(state, obs, env_params, jax.random.split(key_act, num_envs))
        return jax.random.split(key_env, num_envs), action

    def env_step(carry: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        keys, action = draw(carry, key)
        obs, state, reward, *_ = env.step_batch(keys, carry[1], action, env_params)
        return (obs, state), jnp.sum(reward)

    def half_step(
        carry: tuple[Any, Any], drawn: tuple[jax.Array, Any], key: jax.Array, following: Following
    ) -> tuple[tuple[Any, Any], jax.Array]:
        del key
        ahead = following.ahead(following.begun[0], following.carry[1], following.begun[1])
        keys, action = drawn
        obs, state, reward, *_ = env.step_batch_ahead(keys, carry[1], action, env_params, ahead)
        return (obs, state), jnp.sum(reward, axis=1)

    def play_in_halves(carry: tuple[Any, Any], keys: jax.Array) -> tuple[Any, jax.Array]:
        return scan_halves(draw, half_step, carry, jax.random.split(keys[0], 2 * num_steps))

    def begin(keys: jax.Array) -> tuple[Any, Any]:
        return jax.vmap(env.reset_env, in_axes=(0, None))(keys, env_params)

    if env.steps_ahead and share.num_envs % 2 == 0:
        return play_scan(begin, play_in_halves, share, num_steps)
    return play_steps(begin, env_step, share, num_steps)


def play_steps(
    begin: Callable[[jax.Array], Any],
    env_step: Callable[[Any, jax.Array], tuple[Any, jax.Array]],
    share: Share,
    num_steps: int,
) -> Call:
    """Compile `num_steps` steps and return a call that runs them, each time the next ones.

    Args:
        begin: from a key for each of a device's environments to the initial carry, whose leaves all
            have their axis; episodes are in progress at the calls.
        env_step: from a carry and a key to the next carry and the sum of all rewards.
        share: how environments are spread.
        num_steps: how many.
    """
    return play_scan(begin, functools.partial(jax.lax.scan, env_step), share, num_steps)


def play_scan(
    begin: Callable[[jax.Array], Any],
    scan: Callable[[Any, jax.Array], tuple[Any, jax.Array]],
    share: Share,
    num_steps: int,
) -> Call:
    """Compile `num_steps` steps as `play_steps` does.

    Args:
        begin: as there.
        scan: from the carry and a key for each step to the next carry and rewards to be added up.
        share: as there.
        num_steps: as there.
    """

    def play_own(carry: Any, keys: jax.Array, axis_name: str | None) -> tuple[Any, jax.Array]:
        del axis_name  # devices exchange nothing
        carry, rewards = scan(carry, jax.random.split(keys[0], num_steps))
        return carry, rewards.sum()[None]

    def begin_own(keys: jax.Array, axis_name: str | None) -> Any:
        del axis_name
        return begin(keys)

    devices = Devices(share.num_devices)
    start = devices.jit(begin_own, (BY_ENV,), BY_ENV)
    play = devices.jit(play_own, (BY_ENV, BY_ENV), (BY_ENV, BY_ENV))
    carry = start(jax.random.split(jax.random.key(0), share.num_devices * share.num_envs))
    keys = jax.random.split(jax.random.key(1), share.num_devices)

    def call() -> tuple[Any, jax.Array]:
        # From the same carry, environments in plain Python would first have to play up to it again.
        nonlocal carry
        carry, rewards = play(carry, keys)
        return carry, rewards

    call()
    return call


def draw_legal(key: jax.Array, action_mask: jax.Array) -> jax.Array:
    """Draw uniformly among the legal actions of `action_mask [..., W]`.

    One random number per row, since a draw for every action would cost more than a small game.
    """
    num_actions = action_mask.shape[-1]
    # A running count by a product: a cumulative sum is a loop on a CPU.
    legal_so_far = action_mask.astype(jnp.float32) @ np.triu(np.ones((num_actions, num_actions)))
    chosen = jax.random.uniform(key, action_mask.shape[:-1]) * legal_so_far[..., -1]
    return (legal_so_far <= chosen[..., None]).sum(axis=-1, dtype=jnp.int32)
