"""VMAS environments as games that are stepped together: one tensor operation for all of them."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep
from jaxmarl_envs.adapters.incoming.slot_game import Noticed
from jaxmarl_envs.core import MEASURES
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space


@dataclass(frozen=True)
class VmasSpaces:
    """What an agent observes and does."""

    observation: Box
    action: Space


class VmasBatch:
    """A VMAS environment, whose `n` games are stepped together; see `host_batch.Batch`.

    An episode begins with `env.seed(seed)` and `env.reset_at(place)`. It ends for all agents at
    once: terminated where the scenario is done, else truncated at `max_steps`.

    Args:
        env: of `vmas.make_env` with `terminated_truncated=True`.
        flatten: write all observations as vectors.

    Attributes:
        repeats: as in `Batch`.
        metrics: names of the metrics that are reported.
        seen_metrics: names of the numbers in infos so far.
    """

    repeats = True
    metrics: tuple[str, ...] = ()

    def __init__(self, env: Any, flatten: bool = False) -> None:
        self.env = env
        self.names = tuple(str(agent.name) for agent in env.agents)
        shapes = _shapes(self._observe(), flatten)
        self.spaces = tuple(
            VmasSpaces(Box(-math.inf, math.inf, shape), _action_space(env, agent))
            for agent, shape in zip(env.agents, shapes, strict=True)
        )
        self.layout = ActionLayout(dict(enumerate(spaces.action for spaces in self.spaces)))
        widest = np.max(shapes, axis=0).tolist()
        self._features = np.zeros((env.num_envs, len(self.names), *widest), np.float32)
        self._alive = np.zeros(env.num_envs, bool)
        self.seen_metrics: set[str] = set()

    @property
    def own_name(self) -> str:
        """Return the name of the scenario's class."""
        return type(self.env.scenario).__name__

    def reset(self, seeds: Mapping[int, int]) -> Frame:
        """Begin episodes at some places, with a seed each."""
        with _torch().no_grad():
            for place, seed in seeds.items():
                self.env.seed(seed)
                self.env.reset_at(place, return_observations=False)
            observed = self._observe()
        places = list(seeds)
        self._alive[places] = True
        self._features[places] = 0
        self._write(observed, places)
        return self._frame()

    def step(self, actions: np.ndarray) -> tuple[Frame, GameStep]:
        """Advance all games by one step."""
        own = [self._own(actions[:, slot], slot) for slot in range(len(self.names))]
        with _torch().no_grad():
            observed, rewards, terminated, truncated, infos = self.env.step(own)
        lived = self._alive.copy()
        terminated = _numbers(terminated).astype(bool) & lived
        truncated = _numbers(truncated).astype(bool) & lived & ~terminated
        self._alive = lived & ~(terminated | truncated)
        self._write(observed, np.flatnonzero(lived))
        reward = np.stack([_numbers(own) for own in rewards], axis=1).astype(np.float32)
        outcome = GameStep(
            np.where(lived[:, None], reward, np.float32(0)),
            self._for_all(terminated),
            self._for_all(truncated),
            self._metrics(infos, lived),
        )
        return self._frame(), outcome

    def _observe(self) -> Sequence[Any]:
        """Return what all agents observe, a tensor `[n, ...]` or a dictionary of such each."""
        (observed,) = self.env.get_from_scenario(
            get_observations=True,
            get_rewards=False,
            get_infos=False,
            get_dones=False,
            dict_agent_names=False,
        )
        return observed

    def _write(self, observed: Sequence[Any], places: Any) -> None:
        """Write what all agents observe at some places into their rows."""
        for slot, (seen, spaces) in enumerate(zip(observed, self.spaces, strict=True)):
            shape = spaces.observation.shape
            parts = [np.asarray(part, np.float32) for part in _leaves(seen)]
            rows = parts[0] if len(parts) == 1 else np.concatenate(
                [part.reshape(len(part), -1) for part in parts], axis=1
            )  # fmt: skip
            rows = rows.reshape(-1, *shape)
            self._features[(places, slot, *map(slice, shape))] = rows[places]

    def _own(self, actions: np.ndarray, slot: int) -> Any:
        """Return one agent's actions as VMAS takes them, a tensor `[n, size]`."""
        choices, numbers = self.layout.unpack(actions)
        own = self.layout.factors[slot]
        values = choices[:, : len(own.counts)] if own.counts else numbers[:, : own.low.size]
        return _torch().as_tensor(np.array(values))

    def _metrics(self, infos: Sequence[Mapping[str, Any] | None], lived: np.ndarray) -> np.ndarray:
        """Return the numbers in infos that are reported, `[n, A, metrics]`."""
        metrics = np.zeros((len(lived), len(self.names), len(self.metrics)), np.float32)
        for slot, info in enumerate(infos):
            for name, values in (info or {}).items():
                if getattr(values, "numel", lambda: None)() != len(lived) or name in MEASURES:
                    continue
                self.seen_metrics.add(name)
                if name in self._columns:
                    metrics[:, slot, self._columns[name]] = np.where(lived, _numbers(values), 0)
        return metrics

    @functools.cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.metrics)}

    def _frame(self) -> Frame:
        legal = np.broadcast_to(self.layout.exists, (len(self._alive), *self.layout.exists.shape))
        alive = self._for_all(self._alive)
        return Frame(self._features.copy(), legal, alive, alive)

    def _for_all(self, flags: np.ndarray) -> np.ndarray:
        """Return the flags of games as those of all their agents, `[n, A]`."""
        return np.repeat(flags[:, None], len(self.names), axis=1)


class TriedGame:
    """One game of a batch, played while others in the batch are, to try it out.

    Args:
        batch: of at least two games.
        neighbours: seed of what the others do.

    Attributes:
        noticed: as in `SlotGame`; only the names of metrics matter.
        lengths: steps of the episodes that came to their end.
    """

    def __init__(self, batch: VmasBatch, neighbours: int) -> None:
        self._batch, self._rng = batch, np.random.default_rng(neighbours)
        self.names, self.spaces, self.layout = batch.names, batch.spaces, batch.layout
        self.own_name, self.max_actors = batch.own_name, len(batch.names)
        self.declared_horizon: int | None = batch.env.max_steps
        self.noticed = Noticed(set(), set(), batch.seen_metrics, set(), {}, set())
        self.lengths: list[int] = []
        self._time = 0

    def close(self) -> None:
        """Do nothing: VMAS holds nothing but memory."""

    def reset(self, seed: int) -> Frame:
        """Begin an episode, and let the neighbours begin others.

        They begin later, so that chance after a reset is seen not to come from its seed.
        """
        self._time = 0
        begun = self._batch.reset({0: seed})
        self._batch.reset({place: self._seed() for place in range(1, self._size)})
        return self._mine(begun)

    def step(self, action: np.ndarray) -> tuple[Frame, GameStep, Frame]:
        """Advance one step; the neighbours act at random."""
        self._time += 1
        exists = self.layout.exists
        noise = self._rng.random((self._size, *exists.shape))
        actions = np.array(self.layout.pack(self.layout.pick(noise, exists)))
        actions[0] = action
        frame, outcome = self._batch.step(actions)
        over = np.flatnonzero(~frame.alive.any(axis=1)).tolist()
        if 0 in over:
            self.lengths.append(self._time)
        if ended := {place: self._seed() for place in over if place}:
            self._batch.reset(ended)
        mine = self._mine(frame)
        return mine, GameStep(*(part[0] for part in outcome)), mine

    @property
    def _size(self) -> int:
        return len(self._batch.env.steps)

    def _seed(self) -> int:
        return int(self._rng.integers(2**31))

    def _mine(self, frame: Frame) -> Frame:
        return Frame(*(part[0] for part in frame))


def _numbers(values: Any) -> np.ndarray:
    """Write one number of every game, `[n]` or `[n, 1]`, as `[n]`."""
    return np.asarray(values).reshape(-1)


def _leaves(seen: Any) -> Iterator[Any]:
    """List the tensors of an observation, which may be a dictionary of such."""
    if isinstance(seen, Mapping):
        for part in seen.values():
            yield from _leaves(part)
    else:
        yield seen


def _shapes(observed: Sequence[Any], flatten: bool) -> list[tuple[int, ...]]:
    """Return the shape of what each agent observes: all the same number of axes."""
    parts = [[tuple(part.shape[1:]) for part in _leaves(seen)] for seen in observed]
    flat = flatten or any(len(own) != 1 for own in parts) or len({len(p[0]) for p in parts}) > 1
    if not flat and parts[0][0]:
        return [own[0] for own in parts]
    return [(sum(map(math.prod, own)),) for own in parts]


def _action_space(env: Any, agent: Any) -> Space:
    """Read an agent's action space."""
    space = env.get_agent_action_space(agent)
    if hasattr(space, "nvec"):
        return MultiDiscrete([int(count) for count in space.nvec])
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    return Box(space.low, space.high, space.shape)


@functools.cache
def _torch() -> Any:
    return import_extra("torch", "vmas")
