"""Environments in plain Python, tried out with random actions before anything is compiled.

Whatever cannot be played is rejected here, by its own error. Episodes are played twice, on separate
objects, to see whether they repeat.
"""

import contextlib
import functools
import hashlib
import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import AgentSpaces
from jaxmarl_envs.adapters.incoming.host import HostEnv, Layout, capacity_of
from jaxmarl_envs.adapters.incoming.host_patience import try_out
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.own_randomness import generators_kept
from jaxmarl_envs.adapters.incoming.slot_game import (
    EXACT,
    CoarseObservationWarning,
    Noticed,
    SlotGame,
)
from jaxmarl_envs.adapters.incoming.slot_row import HasSpaces
from jaxmarl_envs.adapters.incoming.unused_masks import warn_of_divided_masks, warn_of_unused_masks
from jaxmarl_envs.core import MEASURES
from jaxmarl_envs.user_code import UserCodeError, describe_error, is_ours, without_input


class TriedOut(Protocol):
    """A game, as far as it is tried out; see `SlotGame`."""

    layout: ActionLayout
    noticed: Noticed
    lengths: list[int]

    @property
    def names(self) -> Sequence[Any]:
        """Names of the slots."""
        ...

    @property
    def spaces(self) -> Sequence[HasSpaces]:
        """Spaces of the agents in them."""
        ...

    @property
    def own_name(self) -> str:
        """What it is called where the user does not say."""
        ...

    @property
    def max_actors(self) -> int:
        """How many can act at one step."""
        ...

    @property
    def declared_horizon(self) -> int | None:
        """The limit of an episode's steps that it declares."""
        ...

    def reset(self, seed: int) -> Frame:
        """Begin an episode."""
        ...

    def step(self, action: np.ndarray) -> tuple[Frame, GameStep, Frame]:
        """Advance one step."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


E = TypeVar("E", bound=HostEnv)
G = TypeVar("G", bound=TriedOut)

# For how long an environment is tried out: episodes, steps of them all, and seconds.
EPISODES, STEPS, SECONDS = 6, 1_000, 3.0
# The seeds of these episodes, which training hardly ever draws.
SEEDS = tuple(range(2_000_000_001, 2_000_000_001 + EPISODES))


class Found(NamedTuple):
    """What trying an environment out has shown.

    Attributes:
        repeats: whether the same seed and the same actions lead to the same episode.
        renews: whether they do so only on an object that has not been reset before.
        metrics: names of the numbers in infos.
        length: steps of the longest episode that came to its end; None if none did.
        noticed: what has been reported, and is not again.
    """

    repeats: bool
    renews: bool
    metrics: tuple[str, ...]
    length: int | None
    noticed: Noticed


def bring_in(
    make_game: Callable[[], SlotGame],
    *,
    horizon: int | None,
    num_workers: int | None,
    step_timeout: float | None,
    name: str | None = None,
    max_actors: int | None = None,
    env_class: type[E] = HostEnv,
) -> E:
    """Try games out and make an environment of them.

    Args:
        make_game: makes one game.
        horizon: as the user gives it; None for the environment's own.
        num_workers: as in `HostEnv`.
        step_timeout: as in `HostEnv`.
        name: what to call it; None for what it calls itself.
        max_actors: the most who act at one step; None for the game's own.
        env_class: of the environment.

    Warns:
        UnrepeatableEnvironmentWarning: episodes do not repeat.
        ObservationOutsideSpaceWarning: an agent observes numbers outside its space.
        UnusedMaskWarning: something is called like an action mask, and is not used as one.
        CoarseObservationWarning: an agent observes numbers that float32 rounds.

    Raises:
        ValueError: If it cannot be made or played.
        GivenUp: If that takes too long.
    """
    name, game, found = try_game(make_game, num_workers, step_timeout, name)
    if not found.repeats:
        warn_of_chance(
            name,
            "runs cannot be repeated exactly, and a resumed one begins its episodes anew; draw all "
            "chance from a generator that reset(seed=...) seeds",
        )
    elif found.renews:
        warnings.warn(
            f"environment {name!r} does not do the same for the same seed and actions after it has "
            "been reset before: a new one is made for every episode, which takes time; let "
            "reset(seed=...) set everything back",
            UnrepeatableEnvironmentWarning,
            stacklevel=3,
        )
    warn_of_unused_masks(name, game, found.noticed.masks)
    warn_of_divided_masks(name, found.noticed.divided)
    # Of an agent that strays from its space that is told instead.
    coarse = [agent for agent in found.noticed.coarse if agent not in found.noticed.strays]
    for agent in coarse[:1]:  # it stands for all
        number = found.noticed.coarse[agent]
        step = np.spacing(np.float32(abs(number)))
        warnings.warn(
            f"agent {agent!r} of environment {name!r} observes {number:g}, where 32-bit floats, "
            f"which networks get, are {step:g} apart; subtract an offset or divide, so that what "
            "matters is not rounded away",
            CoarseObservationWarning,
            stacklevel=3,
        )
    layout = layout_of(game, found, horizon, max_actors)
    make_found = functools.partial(_make_found, make_game, found)
    return env_class(name, layout, make_found, num_workers, step_timeout)


def split_options(
    adapter: Callable[..., HostEnv], options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into keywords of an adapter, but for `name`, and those of what it adapts."""
    parameters = inspect.signature(adapter).parameters.values()
    known = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} - {"name"}
    own = {name: value for name, value in options.items() if name in known}
    return own, {name: value for name, value in options.items() if name not in known}


def try_game(
    make_game: Callable[[], G],
    num_workers: int | None,
    step_timeout: float | None,
    name: str | None,
) -> tuple[str, G, Found]:
    """Make a game and try it out; see `bring_in`.

    Returns:
        What it is called, the game, which is closed, and what has been found.
    """
    game = try_out(
        make_game,
        step_timeout,
        f"making environment {name!r}" if name else "making the environment",
    )
    name = name or game.own_name
    # Whoever steps in this process may look into the environment by a debugger.
    with contextlib.nullcontext() if num_workers == 0 else without_input():
        what = f"environment {name!r}, tried out with random actions,"
        return name, game, call(functools.partial(_try, make_game, game), step_timeout, what)


def warn_of_chance(name: str, consequence: str) -> None:
    """Warn that an environment does not do the same for the same seed and actions."""
    warnings.warn(
        f"environment {name!r} does not do the same for the same seed and actions: {consequence}",
        UnrepeatableEnvironmentWarning,
        stacklevel=4,
    )


def layout_of(
    game: TriedOut, found: Found, horizon: int | None, max_actors: int | None = None
) -> Layout:
    """Describe a game that has been tried out; see `bring_in`."""
    declared = game.declared_horizon
    return Layout(
        agents=tuple(map(str, game.names)),
        observation_spaces=tuple(spaces.observation for spaces in game.spaces),
        action_spaces=tuple(spaces.action for spaces in game.spaces),
        max_actors=max_actors or game.max_actors,
        horizon=horizon or declared,
        capacity=capacity_of(horizon, declared),
        metrics=found.metrics,
        phase_length=horizon or found.length or declared,
        observation_parts=tuple(getattr(spaces, "observation_parts", ()) for spaces in game.spaces),
        own_actions=tuple(spaces.own for spaces in game.spaces if isinstance(spaces, AgentSpaces)),
    )


def call(function: Callable[[], Any], step_timeout: float | None, what: str) -> Any:
    """Call the user's code, and report exceptions in one sentence."""
    try:
        return try_out(function, step_timeout, what)
    except Exception as error:
        if is_ours(error):
            raise
        raise UserCodeError(f"{what} raises {describe_error(error)}") from error


def _make_found(make_game: Callable[[], SlotGame], found: Found) -> SlotGame:
    game = make_game()
    game.repeats, game.renews = found.repeats, found.renews
    # One object for all games of a process.
    game.metrics, game.noticed = found.metrics, found.noticed
    return game


def _try(make_game: Callable[[], TriedOut], game: TriedOut) -> Found:
    """Play a game, whose object is new, and then the same episodes on other objects."""
    with generators_kept():
        until = time.monotonic() + SECONDS
        records: list[list[bytes]] = []
        with contextlib.closing(game):
            for seed in SEEDS:
                played = sum(map(len, records))
                if played < STEPS and time.monotonic() < until:
                    records.append(list(_episode(game, seed, STEPS - played, until)))
        episodes = list(zip(SEEDS, records, strict=False))
        noticed = game.noticed
        metrics = tuple(sorted(noticed.metrics - MEASURES))
        length = max(game.lengths, default=None)
        # In another order, so that every object has another past.
        if _repeat(make_game, reversed(episodes), noticed):
            return Found(True, False, metrics, length, noticed)
        repeats = _repeat(make_game, episodes[:1], noticed)
        return Found(repeats, repeats, metrics, length, noticed)


def _repeat(
    make_game: Callable[[], TriedOut],
    episodes: Iterable[tuple[int, Sequence[bytes]]],
    noticed: Noticed,
) -> bool:
    """Play episodes again on a new object, and return whether the same comes of them."""
    with contextlib.closing(make_game()) as game:
        game.noticed = noticed
        return all(
            list(_episode(game, seed, len(record) - 1, math.inf)) == record
            for seed, record in episodes
        )


def _episode(game: TriedOut, seed: int, num_steps: int, until: float) -> Iterable[bytes]:
    """Play an episode with random legal actions and yield a digest of each step.

    Args:
        game: of which it is one.
        seed: of the episode and of the actions.
        num_steps: at most.
        until: when to stop.
    """
    layout, rng = game.layout, np.random.default_rng(seed)
    frame = game.reset(seed)
    _check_frame(game, frame, f"after the reset with seed {seed}")
    yield _digest(frame)
    for step in range(1, num_steps + 1):
        if not frame.alive.any() or time.monotonic() > until:
            return
        noise = rng.random(frame.action_mask.shape)
        final, outcome, frame = game.step(layout.pack(layout.pick(noise, frame.action_mask)))
        when = f"at step {step} of the episode of seed {seed}"
        _check_numbers(game, "earns", outcome.reward, when)
        # Whoever is terminated is not valued.
        valued = outcome.truncated & ~outcome.terminated
        _check_numbers(game, "observes", np.where(valued, final.features.T, 0).T, when)
        if frame.alive.any():
            _check_frame(game, frame, when)
        yield _digest((*final, *outcome, *frame))


def _check_frame(game: TriedOut, frame: Frame, when: str) -> None:
    """Raise a ValueError for what training would stop at."""
    _check_numbers(game, "observes", frame.features, when)
    for slot, *place in np.argwhere(np.abs(frame.features) > EXACT)[:1]:
        game.noticed.coarse.setdefault(game.names[slot], frame.features[slot, *place].item())
    for slot in np.flatnonzero(~np.asarray(game.layout.all_legal(frame.action_mask))):
        raise ValueError(
            f"agent {game.names[int(slot)]!r} acts {when} with an action mask that leaves a choice "
            "without a legal option"
        )


def _check_numbers(game: TriedOut, verb: str, numbers: np.ndarray, when: str) -> None:
    """Raise a ValueError if numbers `[A, ...]` of agents are not finite."""
    rows = numbers.reshape(len(numbers), -1)
    for slot, place in np.argwhere(~np.isfinite(rows)):
        raise ValueError(
            f"agent {game.names[int(slot)]!r} {verb} {rows[slot, place]} {when}, expected a finite "
            "number"
        )


def _digest(arrays: Iterable[np.ndarray]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(array.tobytes())
    return digest.digest()
