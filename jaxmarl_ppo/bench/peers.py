"""Benchmark of stepping environments, against the same games in other packages.

Both sides run in one process, play the same number of environments with random legal actions, draw
these in the same way, reset episodes that are over, and observe. Both are spread over all devices,
as training is; on a CPU these are its cores. They take turns, call by call, so that changes of the
machine's speed affect both alike. A step advances one environment: by one move in tic-tac-toe, by
one action of each of the three agents in crypto.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmarl_envs
from jaxmarl_envs.adapters import import_extra
from jaxmarl_ppo.bench.stepping import Share, draw_legal, play_steps, random_play
from jaxmarl_ppo.bench.timing import Call, Timing, time_in_turn

NUM_ENVS = 8192
# Our environments without a counterpart in other packages.
ALONE = ("shuttle_grid",)


@dataclass(frozen=True)
class Peer:
    """Describes another package, a game of it and our own version of the game.

    Attributes:
        game: its name over there.
        play: `(module, game, share, num_steps)` to a call that plays.
        env: the name of ours.
        env_kwargs: its arguments.
    """

    game: str
    play: Callable[[ModuleType, str, Share, int], Call]
    env: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


def compare(
    names: Sequence[str], num_envs: int = NUM_ENVS, num_steps: int = 128, repeats: int = 5
) -> dict[str, Any]:
    """Step environments of ours and of other packages in turn.

    Args:
        names: packages, of `PEERS`; one entry may hold several with commas between them.
        num_envs: parallel environments on either side.
        num_steps: steps of a call.
        repeats: rounds that medians are taken over, after one that is not timed.

    Returns:
        `pairs` and `alone`: for each game steps per second, with the slowest and the fastest round,
        and for a pair the median, the least and the greatest of the rounds' ratios of ours to
        theirs; `versions` of the packages.

    Raises:
        ValueError: If the package is missing, unknown or not installed, or a size is below 1.
    """
    sizes = {"num_envs": num_envs, "num_steps": num_steps, "repeats": repeats}
    for size, value in sizes.items():
        if value < 1:
            raise ValueError(f"{size} must be at least 1, got {value}")
    # All before any measurement, to report missing packages at once.
    modules = {name: _load(name) for name in _split(names)}
    share = Share.of(num_envs)
    pairs = [_time_pair(name, modules[name], share, num_steps, repeats) for name in modules]
    alone = []
    for env in ALONE:
        (seconds,) = time_in_turn([_play_ours(env, {}, share, num_steps)], repeats)
        alone.append({"env": env, "ours_per_s": Timing.of(seconds).rate(num_envs * num_steps)})
    return {
        **sizes,
        "pairs": pairs,
        "alone": alone,
        "versions": {name: version(name) for name in modules},
    }


def _split(names: Sequence[str]) -> list[str]:
    """Split names at commas and keep every package once."""
    split = [part.strip() for name in names for part in name.split(",") if part.strip()]
    if not split:
        raise ValueError(f"--compare needs at least one package; valid: {', '.join(PEERS)}")
    for name in split:
        if name not in PEERS:
            raise ValueError(f"cannot compare with {name!r}; valid packages: {', '.join(PEERS)}")
    return list(dict.fromkeys(split))


def _load(name: str) -> ModuleType:
    """Import a package, or explain how to install it."""
    try:
        return import_extra(name, name)
    except ModuleNotFoundError:
        raise  # it is installed, but lacks a dependency
    except ImportError as error:
        raise ValueError(str(error)) from error


def _time_pair(
    name: str, module: ModuleType, share: Share, num_steps: int, repeats: int
) -> dict[str, Any]:
    peer, num_envs = PEERS[name], share.num_devices * share.num_envs
    ours, theirs = time_in_turn(
        [
            _play_ours(peer.env, peer.env_kwargs, share, num_steps),
            peer.play(module, peer.game, share, num_steps),
        ],
        repeats,
    )
    ratios = np.array(theirs) / np.array(ours)
    return {
        "peer": name,
        "game": peer.game,
        "env": peer.env,
        "ours_per_s": Timing.of(ours).rate(num_envs * num_steps),
        "theirs_per_s": Timing.of(theirs).rate(num_envs * num_steps),
        "ratio": float(np.median(ratios)),
        "ratio_range": {"min": float(ratios.min()), "max": float(ratios.max())},
    }


def _play_ours(name: str, env_kwargs: Mapping[str, Any], share: Share, num_steps: int) -> Call:
    return random_play(*jaxmarl_envs.make(name, **env_kwargs), share, num_steps)


def _play_pgx(module: ModuleType, game: str, share: Share, num_steps: int) -> Call:
    """Make a call that plays pgx, whose steps observe and whose own wrapper resets."""
    auto_reset = importlib.import_module("pgx.experimental").auto_reset
    env = module.make(game)
    step = jax.vmap(auto_reset(env.step, env.init))

    def env_step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        key_act, key_env = jax.random.split(key)
        action = draw_legal(key_act, state.legal_action_mask)
        state = step(state, action, jax.random.split(key_env, share.num_envs))
        return state, state.rewards.sum()

    return play_steps(jax.vmap(env.init), env_step, share, num_steps)


def _play_jaxmarl(module: ModuleType, game: str, share: Share, num_steps: int) -> Call:
    """Make a call that plays JaxMARL; all actions are legal, and every agent has as many."""
    env = module.make(game)
    width = env.action_space(env.agents[0]).n
    legal = jnp.ones((share.num_envs, env.num_agents, width), bool)

    def env_step(carry: tuple[Any, Any], key: jax.Array) -> tuple[Any, jax.Array]:
        key_act, key_env = jax.random.split(key)
        drawn = draw_legal(key_act, legal)
        action = {agent: drawn[:, i] for i, agent in enumerate(env.agents)}
        keys = jax.random.split(key_env, share.num_envs)
        obs, state, reward, *_ = jax.vmap(env.step)(keys, carry[1], action)
        return (obs, state), jnp.stack(list(reward.values())).sum()

    return play_steps(jax.vmap(env.reset), env_step, share, num_steps)


def _play_gymnax(module: ModuleType, game: str, share: Share, num_steps: int) -> Call:
    """Make a call that plays gymnax, whose steps reset by themselves; all actions are legal."""
    env, env_params = module.make(game)
    legal = jnp.ones((share.num_envs, env.action_space(env_params).n), bool)
    step = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def env_step(carry: tuple[Any, Any], key: jax.Array) -> tuple[Any, jax.Array]:
        key_act, key_env = jax.random.split(key)
        action = draw_legal(key_act, legal)
        keys = jax.random.split(key_env, share.num_envs)
        obs, state, reward, *_ = step(keys, carry[1], action, env_params)
        return (obs, state), reward.sum()

    def begin(keys: jax.Array) -> Any:
        begun = jax.vmap(env.reset, in_axes=(0, None))(keys, env_params)
        # The clock begins as a Python number, and the type of the carry may not change.
        return jax.tree.map(lambda x: x.astype(x.dtype), begun)

    return play_steps(begin, env_step, share, num_steps)


PEERS: dict[str, Peer] = {
    "pgx": Peer("tic_tac_toe", _play_pgx, "tic_tac_toe"),
    "jaxmarl": Peer("MPE_simple_crypto_v3", _play_jaxmarl, "crypto"),
    # Ours is gymnax's own game here: the comparison shows the cost of the adapter.
    "gymnax": Peer(
        "CartPole-v1",
        _play_gymnax,
        "gymnax",
        {"env_id": "CartPole-v1", "num_agents": 1},
    ),
}
