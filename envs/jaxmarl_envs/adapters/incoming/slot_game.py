"""Games over a fixed axis of slots: what environments in plain Python have in common here."""

import functools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, AgentSpaces
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep
from jaxmarl_envs.adapters.incoming.host_worker import all_true, any_true
from jaxmarl_envs.adapters.incoming.slot_row import MANY, SlotRow, Spaces, rows_in_common, stack
from jaxmarl_envs.adapters.incoming.unused_masks import called_like_masks
from jaxmarl_envs.core import MEASURES

# Infos that are no metrics.
_NO_METRICS = {MASK, "TimeLimit.truncated"}
# What most environments pay and flag with, read for all agents at once.
_NOTHING = np.zeros(0, np.float32)
_PLAIN_NUMBERS, _PLAIN_FLAGS = {float, int, np.float32, np.float64}, {bool, np.bool_}
# Up to here every whole number is a float32.
EXACT = 2.0**24
# Of how many agents lost rewards are reported: ids may be counted on for ever.
_MOST_LOSERS = 10


class ObservationOutsideSpaceWarning(UserWarning):
    """An agent observes numbers outside the bounds of its space."""


class CoarseObservationWarning(UserWarning):
    """An agent observes numbers so large that float32 rounds whole numbers beside them."""


class LostRewardWarning(UserWarning):
    """An agent is paid at a step at which it does not live, and the reward is dropped."""


class Noticed(NamedTuple):
    """Holds what has been reported, and is not again."""

    strays: set[Any]  # agents that observe numbers outside their spaces
    losers: set[Any]  # agents whose rewards are lost
    metrics: set[str]  # names of numbers in infos
    masks: set[str]  # names of infos that are called like action masks
    coarse: dict[Any, float]  # of agents, numbers beyond `EXACT`
    divided: set[Any]  # agents with two action masks that differ


class Slots(NamedTuple):
    """Slots of some agents, in the order of these."""

    numbers: list[int]
    where: slice | np.ndarray  # the same, as an index of arrays over all slots
    held: np.ndarray  # [A] bool: which slots these are

    @classmethod
    def of(cls, numbers: list[int], num_slots: int) -> "Slots":
        """Make them of their numbers, each of which is less than `num_slots`."""
        held = np.zeros(num_slots, bool)
        held[numbers] = True
        held.flags.writeable = False
        run = slice(numbers[0], numbers[0] + len(numbers)) if numbers else slice(0, 0)
        is_run = numbers == list(range(run.start, run.stop))
        return cls(numbers, run if is_run else np.array(numbers), held)


class SlotGame:
    """One environment over a fixed axis of slots.

    The row of a slot in which nobody lives is what was seen there last, or zeros. All actions are
    legal in the row of an agent that waits and has no legal action. An agent's rewards count while
    it lives, up to the step at which its life ends; others are dropped with a warning.

    Numbers in an agent's infos, also those under "metrics" there, are metrics of the step.

    Args:
        env: the environment.
        names: of the slots.
        spaces: of the agents in them, in their order.
        horizon: the step at which all who still live are truncated; None for no such limit.

    Attributes:
        at_time_limit: what an end at the time limit is, "truncates" or "terminates", for whatever
            reason; None for what the environment says, and truncations at the horizon.
        repeats: whether the same seed and the same actions lead to the same episode.
        renews: whether they do so only in a game that has not been reset before.
        metrics: names of the metrics that are reported; None while the game is tried out.
        noticed: what has been reported.
        lengths: steps of the episodes that came to their end while the game is tried out.
    """

    at_time_limit: str | None = None
    repeats, renews = True, False
    metrics: tuple[str, ...] | None = None

    def __init__(
        self, env: Any, names: Sequence[Any], spaces: Sequence[Spaces], horizon: int | None
    ) -> None:
        self.env, self.horizon = env, horizon
        self.names, self.spaces = tuple(names), tuple(spaces)
        widest = np.max([s.observation.shape for s in self.spaces], axis=0)
        self.layout = ActionLayout(dict(enumerate(s.action for s in self.spaces)))
        features = np.zeros((len(self.names), *widest), np.float32)
        self.write_to(features, np.zeros(self.layout.exists.shape, bool))
        firsts = [getattr(space, "first_option", None) for space in self.spaces]
        self._first_options = None if None in firsts else firsts
        self._alive = np.zeros(len(self.names), bool)
        self._acting = np.zeros(len(self.names), bool)
        self._lived = self._alive  # before the present step
        # Final observations of lives whose slots already hold another agent.
        self._final: tuple[np.ndarray, np.ndarray] | None = None
        self._seed = self._time = 0
        self.noticed = Noticed(set(), set(), set(), set(), {}, set())
        self._low, self._high = self._bounds()
        self._is_bounded = bool(np.isfinite([self._low, self._high]).any())
        # Numbers between these are within all bounds, which is seen sooner.
        self._inner = float(self._low.max()), float(self._high.min())
        self.lengths: list[int] = []

    @property
    def own_name(self) -> str:
        """Return what the environment is called where the user does not say."""
        return type(self.env).__name__

    @property
    def max_actors(self) -> int:
        """Count who can act at one step."""
        return len(self.names)

    def set_at_time_limit(self, at_time_limit: str | None) -> None:
        """Set what an end at the time limit is.

        Raises:
            ValueError: If no limit is known.
        """
        if at_time_limit is not None and math.isinf(self._limit):
            raise ValueError(
                f"at_time_limit={at_time_limit!r} has no effect: no limit is known; give it as "
                "horizon"
            )
        self.at_time_limit = at_time_limit

    @functools.cached_property
    def _limit(self) -> float:
        return self.horizon or self.declared_horizon or math.inf

    @property
    def declared_horizon(self) -> int | None:
        """Find the limit of an episode's steps that the environment, or a wrapper of it, declares.

        That is `max_episode_steps` of its `spec`, and `_max_episode_steps` of Gymnasium's
        `TimeLimit`.
        """
        env, limits = self.env, []
        while env is not None and len(limits) < 200:
            limits.append(vars(env).get("_max_episode_steps") if hasattr(env, "__dict__") else None)
            limits.append(getattr(getattr(env, "spec", None), "max_episode_steps", None))
            env = getattr(env, "env", None)
        return min((n for n in limits if isinstance(n, int) and n > 0), default=None)

    def write_to(
        self, features: np.ndarray, action_mask: np.ndarray, outcome: GameStep | None = None
    ) -> None:
        """Write what is seen, and what steps bring, into these arrays from now on.

        Args:
            features: `[A, ...]` float32.
            action_mask: `[A, W]` bool.
            outcome: None to make new ones at every step.
        """
        self._features, self._legal, self._outcome = features, action_mask, outcome
        self._rows = [
            SlotRow(space, features[i], action_mask[i], exists, self.layout.starts)
            for i, (space, exists) in enumerate(zip(self.spaces, self.layout.exists, strict=True))
        ]
        self._common_rows = rows_in_common(self._rows, features)
        self._all_numbers = features.reshape(-1)

    def close(self) -> None:
        """Close the environment."""
        close = getattr(self.env, "close", None)
        if callable(close):
            close()

    def reset(self, seed: int) -> Frame:
        """Begin an episode with a seed and return what all slots see.

        Raises:
            ValueError: If no agent lives, or spaces do not fit.
        """
        self._seed, self._time, self._final = seed, 0, None
        self._features[...] = 0
        self._legal[...] = self.layout.exists
        self._begin(seed)
        if not any_true(self._alive):
            raise ValueError(f"reset with seed {seed} begins an episode without any agent")
        return self._frame()

    def step(self, action: np.ndarray) -> tuple[Frame, GameStep, Frame]:
        """Advance one step; an episode that is over stands still.

        Args:
            action: as `ActionLayout.pack` makes it, `[A, ...]`.

        Returns:
            What all slots see after the step, with the rows of agents whose lives ended still their
            own; what the step brought; and what all slots see in which others live by now.
        """
        outcome = self._no_outcome()
        if not any_true(self._alive):
            frame = self._frame()
            return frame, outcome, frame
        before = self._lived = self._alive
        self._begin_step()
        self._advance(action, outcome)
        if not all_true(before) and outcome.reward[~before].any():
            for slot in np.flatnonzero(~before & (outcome.reward != 0)):
                self._warn_of_loss(self.names[slot], float(outcome.reward[slot]))
            outcome.reward[~before] = 0
        if self.horizon is not None and self._time >= self.horizon:
            outcome.truncated[before & ~(outcome.terminated | outcome.truncated)] = True
            self._alive, self._acting = np.zeros((2, len(self.names)), bool)
        if self.at_time_limit is not None and self._time >= self._limit:
            ended = outcome.terminated | outcome.truncated
            outcome.truncated[:] = ended & (self.at_time_limit == "truncates")
            outcome.terminated[:] = ended & ~outcome.truncated
        frame = self._frame()
        if self.metrics is None and not any_true(self._alive):
            self.lengths.append(self._time)
        if self._final is None:
            return frame, outcome, frame
        features, legal = self._final
        return frame._replace(features=features, action_mask=legal), outcome, frame

    def _no_outcome(self) -> GameStep:
        if self._outcome is not None:
            for part in self._outcome:
                part.fill(0)
            return self._outcome
        num_agents = len(self.names)
        return GameStep(
            np.zeros(num_agents, np.float32),
            np.zeros(num_agents, bool),
            np.zeros(num_agents, bool),
            np.zeros((num_agents, len(self.metrics or ())), np.float32),
        )

    def _warn_of_loss(self, agent: Any, reward: float) -> None:
        """Warn of a reward that nobody can be credited with, once per agent, of a few agents."""
        if agent not in self.noticed.losers and len(self.noticed.losers) < _MOST_LOSERS:
            self.noticed.losers.add(agent)
            warnings.warn(
                f"agent {agent!r} is paid {reward} at step {self._time} of the episode of seed "
                f"{self._seed}, at which it does not live: its life has ended or not begun. The "
                "reward is dropped, and so are later ones; pay an agent at the latest at the step "
                "that ends its life, or end its life later",
                LostRewardWarning,
                stacklevel=2,
            )

    def _note(self, slot: int, info: Any, outcome: GameStep) -> None:
        """Fill in the metrics of an agent that lived before the step."""
        if not info or not isinstance(info, Mapping) or not self._lived[slot]:
            return
        if self.metrics is None:
            self.noticed.masks.update(called_like_masks(info))
        for name, value in _numbers(info):
            if name in self._columns:
                outcome.metrics[slot, self._columns[name]] = value
            elif name not in self.noticed.metrics:
                self.noticed.metrics.add(name)
                if name in MEASURES:
                    self._warn_of_taken(name, self.names[slot])
                elif self.metrics is not None:
                    self._warn_of_late(name, self.names[slot])

    @functools.cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self.metrics or ())}

    def _warn_of_taken(self, name: str, agent: Any) -> None:
        warnings.warn(
            f"the info {name!r} of agent {agent!r} is not reported: logs have a measure of that "
            "name; return it under another one",
            UserWarning,
            stacklevel=2,
        )

    def _warn_of_late(self, name: str, agent: Any) -> None:
        warnings.warn(
            f"the info {name!r} of agent {agent!r} first appears at step {self._time} of the "
            f"episode of seed {self._seed}, and is not reported: metrics are those that appear "
            "while the environment is tried out; return it at every step, as 0 where there is "
            "nothing to report",
            UserWarning,
            stacklevel=2,
        )

    def _begin_step(self) -> None:
        self._time, self._final = self._time + 1, None

    def _begin(self, seed: int) -> None:
        raise NotImplementedError

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        """Play a step: fill the outcome in, and show what everyone sees then."""
        raise NotImplementedError

    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest features, `[A, ...]`, infinite where a row is padded."""
        low, high = np.full_like(self._features, -np.inf), np.full_like(self._features, np.inf)
        for slot, box in enumerate(spaces.observation for spaces in self.spaces):
            place = (slot, *map(slice, box.shape))
            low[place], high[place] = box.low, box.high
        return low, high

    def _warn_of_strays(self) -> None:
        """Warn of the first number of each agent that is beyond the bounds of its space."""
        (low, high), found = self._inner, self._all_numbers
        # The places of the extremes are found sooner than the extremes themselves.
        if found.item(found.argmin()) >= low and found.item(found.argmax()) <= high:
            return
        outside = (self._features < self._low) | (self._features > self._high)
        if not outside.any():
            return
        for slot in np.flatnonzero(self._acting & outside.any(axis=tuple(range(1, outside.ndim)))):
            agent = self.names[slot]
            if agent not in self.noticed.strays:
                self.noticed.strays.add(agent)
                warnings.warn(
                    f"agent {agent!r} observes {self._features[slot][outside[slot]][0]:g} at step "
                    f"{self._time} of the episode of seed {self._seed}, outside its observation "
                    f"space {self.spaces[slot].own_observation}; give the space its true bounds. "
                    "Training continues with the number as it is; for check-env this is an error",
                    ObservationOutsideSpaceWarning,
                    stacklevel=2,
                )

    def _frame(self) -> Frame:
        if self._is_bounded and len(self.noticed.strays) < len(self.names):
            self._warn_of_strays()
        return Frame(self._features, self._legal, self._alive, self._acting)

    def _keep_final(self) -> None:
        """Keep what is seen now, before anyone else takes the slot of one whose life ended."""
        self._final = self._features.copy(), self._legal.copy()

    def _show(self, slot: int, seen: Any, info: Mapping[str, Any] | None, acts: bool) -> None:
        """Fill a slot's row in with what its agent observes."""
        self._rows[slot].show(seen, info, acts)
        if self.metrics is None and acts:
            spaces = self.spaces[slot]
            if isinstance(spaces, AgentSpaces) and spaces.masks_differ(seen, info):
                self.noticed.divided.add(self.names[slot])

    def _show_all(
        self, slots: Slots, seen: Sequence[Any], infos: Sequence[Mapping[str, Any] | None] | None
    ) -> None:
        """Fill the rows of `k` slots in with what their agents observe, whether or not they act.

        Args:
            slots: of the agents.
            seen: `k` observations.
            infos: likewise; None where nobody has any.
        """
        numbers, where, _ = slots
        if self._common_rows is not None and len(numbers) >= MANY:
            has_masks = any(isinstance(x, (dict, Mapping)) and MASK in x for x in infos or ())
            if not has_masks and stack(seen, self._common_rows, where):
                self._legal[where] = self.layout.exists[where]
                return
        acting = self._acting[where].tolist()
        for row in zip(numbers, seen, infos or [None] * len(seen), acting, strict=True):
            self._show(*row)

    def _own_all(self, action: np.ndarray, slots: Iterable[int]) -> list[Any]:
        """Return the actions of some slots as the environment takes them."""
        if self._first_options is None:
            return [self._own(action, slot) for slot in slots]
        chosen, firsts = action.tolist(), self._first_options
        return [chosen[slot] + firsts[slot] for slot in slots]

    def _own(self, action: np.ndarray, slot: int) -> Any:
        """Return one slot's action as the environment takes it."""
        if self.layout.is_choice:  # as of most environments, and cheaper so
            return self.spaces[slot].own(action[slot : slot + 1], _NOTHING)
        choices, numbers = self.layout.unpack(action[slot])
        own = self.layout.factors[slot]
        return self.spaces[slot].own(choices[: len(own.counts)], numbers[: own.low.size])


def _numbers(info: Mapping[Any, Any]) -> Iterator[tuple[str, float]]:
    """List the numbers in an agent's infos by name, also those under "metrics"."""
    own = info.get("metrics")
    for name, value in (*info.items(), *(own.items() if isinstance(own, Mapping) else ())):
        if not isinstance(name, str) or name in _NO_METRICS:
            continue
        is_scalar = getattr(value, "ndim", None) == 0 and np.asarray(value).dtype.kind in "biuf"
        if is_scalar or isinstance(value, int | float):
            yield name, float(value)


def number(agent: Any, value: Any) -> float:
    """Read a reward: a number, or an array with one number in it.

    Raises:
        ValueError: For anything else.
    """
    if type(value) is float or type(value) is int:
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size != 1:
        raise ValueError(f"agent {agent!r} has the reward {value!r}, expected one number")
    return float(array.reshape(()))


def numbers(rewards: Mapping[Any, Any]) -> Any:
    """Read the rewards of several agents as `number` does, `[agents]`."""
    values = rewards.values()
    if set(map(type, values)) <= _PLAIN_NUMBERS:
        return np.fromiter(values, np.float32, len(values))
    return [number(agent, value) for agent, value in rewards.items()]


def flags(name: str, by_agent: Mapping[Any, Any]) -> np.ndarray:
    """Read a flag of several agents as `flag` does, `[agents]` bool."""
    values = by_agent.values()
    if set(map(type, values)) <= _PLAIN_FLAGS:
        return np.fromiter(values, bool, len(values))
    return np.array([flag(agent, name, value) for agent, value in by_agent.items()], bool)


def flag(agent: Any, name: str, value: Any) -> bool:
    """Read a flag: True or False, 1 or 0, or an array with one of them in it.

    Raises:
        ValueError: For anything else, such as a text.
    """
    if type(value) is bool:
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size != 1 or array.reshape(()) not in (0, 1):
        raise ValueError(f"agent {agent!r} is {name}={value!r}, expected True or False")
    return bool(array.reshape(()))
