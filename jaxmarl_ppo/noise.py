"""Everything random about a rollout, drawn before it begins."""

from typing import NamedTuple

import jax

from jaxmarl_ppo.players import Players


class Noise(NamedTuple):
    """Everything random about one tick, or with a leading axis `T` about many.

    It depends on nothing that happens, so a rollout draws it for all ticks at once: a draw has a
    price of its own, on a CPU that of a small network.
    """

    actions: tuple[jax.Array, ...]  # per bank [E, M, ...], of its action distribution
    scripts: jax.Array  # () key, of scripted players
    env: jax.Array  # [E] keys
    lives: jax.Array  # () key, of who plays the lives that begin


def draw_noise(players: Players, num_envs: int, key: jax.Array) -> Noise:
    """The noise of one tick."""
    key_scripts, key_lives, key_env, *keys = jax.random.split(key, 3 + len(players.banks))
    return Noise(
        actions=tuple(
            seats.bank.distribution.noise(key, (num_envs, seats.num_lanes))
            for seats, key in zip(players.banks, keys, strict=True)
        ),
        scripts=key_scripts,
        env=jax.random.split(key_env, num_envs),
        lives=key_lives,
    )
