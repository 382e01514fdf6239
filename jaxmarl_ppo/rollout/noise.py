"""Random numbers of a rollout, and keys for separate draws, made before it begins."""

from typing import Any, NamedTuple

import jax

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.policies.players import Players


class Noise(NamedTuple):
    """Random numbers and keys of one step, or with a leading axis `T` of many.

    It depends on no state, so a rollout draws it for all steps at once: each draw has a fixed cost,
    on a CPU that of a small network.
    """

    actions: tuple[Any, ...]  # per policy group [E, M, ...], of its action distribution
    env: jax.Array  # [E] keys
    scripts: jax.Array | None  # () key, of scripted players; None where there are none
    lives: jax.Array | None  # () key, of who plays the lives that begin; None where that is fixed
    imitated: jax.Array | None  # () key, of imitated scripted policies; None without any


def draw_noise(players: Players, shape: tuple[int, ...], key: jax.Array) -> Noise:
    """Draw the noise of one step, `shape (E,)`, or of many, `(T, E)`."""
    num_keys = 3 + len(players.policy_groups)
    key_env, key_scripts, key_lives, *keys = split(key, num_keys)
    # `fold_in(key, i)` is `split(key, n)[i]`, so this is one more key, and of none of the others.
    key_imitated = fold_in(key, num_keys)
    return Noise(
        actions=tuple(
            group.network.distribution.noise(key, (*shape, group.num_active_rows))
            for group, key in zip(players.policy_groups, keys, strict=True)
        ),
        env=split(key_env, shape),
        scripts=split(key_scripts, shape[:-1]) if players.scripts else None,
        lives=None if players.is_fixed else split(key_lives, shape[:-1]),
        imitated=split(key_imitated, shape[:-1]) if players.imitates else None,
    )
