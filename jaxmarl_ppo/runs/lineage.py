"""Lineage of population-based training: its events, and the schedules that result from them.

An event is a line of `lineage.jsonl`: the start of a member, or its copying of another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.checks import check_sequence, show
from jaxmarl_ppo.config.paths import split_path, with_values
from jaxmarl_ppo.config.ppo import SCHEDULED
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.runs.log import JsonLines, count_lines, read_lines

Values = Mapping[str, float]  # numbers of a member, by path


@dataclass(frozen=True)
class Event:
    """The start of a replica, or a copy that it became, in population-based training.

    Attributes:
        env_steps: environment steps of a replica at that time.
        iteration: iterations at that time.
        member: name of the replica's folder.
        parent: replica that was copied; None at the start.
        score: the replica's score; None at the start, and if it could not continue.
        parent_score: the higher score of the parent.
        before: hyper-parameters before; empty at the start.
        after: hyper-parameters after.
        reason: why it could not continue; None if its score was lower.
    """

    env_steps: int
    iteration: int
    member: str
    parent: str | None
    score: float | None
    parent_score: float | None
    before: Values
    after: Values
    reason: str | None = None


def values_of(events: Iterable[Event], member: str) -> Values:
    """Look up the numbers that a member has after some events.

    Raises:
        ValueError: If none of them is its own.
    """
    for event in reversed([*events]):
        if event.member == member:
            return event.after
    raise ValueError(f"the lineage has no member {show(member)}")


def ancestry(events: Sequence[Event], member: str) -> list[Event]:
    """List the events in the history of a member's parameters, in order.

    Events of an ancestor count only up to the copy.
    """
    found: list[Event] = []
    name, until = member, float("inf")
    while True:
        own = [event for event in events if event.member == name and event.iteration < until]
        last = own[-1]
        found.append(last)
        if last.parent is None:
            return found[::-1]
        # Other copies at the same comparison took the parent as it was before.
        name, until = last.parent, last.iteration


def schedules(events: Sequence[Event], member: str, steps_per_iteration: int) -> dict[str, Any]:
    """Convert the numbers of a member and its ancestors to values of a configuration.

    A number that changed becomes a schedule of points, evaluated at the start of iterations. Where
    no schedule is allowed, it becomes the final number.

    Args:
        events: of the group.
        member: its name.
        steps_per_iteration: environment steps of an iteration.
    """
    line = ancestry(events, member)
    result: dict[str, Any] = {}
    for path in line[0].after:
        last = line[-1].after[path]
        points: list[tuple[float, float]] = [(0.0, line[0].after[path])]
        for event in line[1:]:
            value = event.after[path]
            if value == points[-1][1]:
                continue
            held = float(event.env_steps - steps_per_iteration)
            if held > points[-1][0]:
                points.append((held, points[-1][1]))
            points.append((float(event.env_steps), value))
        is_schedule = len(points) > 1 and split_path(path)[-1] in SCHEDULED
        result[path] = tuple(points) if is_schedule else last
    return result


def config_of(config: TrainConfig, events: Sequence[Event], member: str) -> TrainConfig:
    """Make the configuration of one run with the numbers that a member and its ancestors had.

    Args:
        config: of a single run with the same network and environments.
        events: of the group.
        member: its name.
    """
    return with_values(config, schedules(events, member, config.env_steps(1)))


def to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Convert events to JSON values."""
    return [asdict(event) for event in events]


def from_json(data: Any) -> list[Event]:
    """Make events from the result of `to_json`.

    Raises:
        ValueError: If they are damaged.
    """
    events: list[Event] = []
    for each in check_sequence("a lineage", data, "a list of events"):
        if not isinstance(each, Mapping) or not _can_follow(each, events):
            raise ValueError(f"{show(each)} is no event of a lineage")
        events.append(Event(**each))
    return events


def read_lineage(path: Path) -> list[Event]:
    """Read the events of a lineage up to the first damaged one; none if there is no file."""
    events: list[Event] = []

    def is_sound(entry: Mapping[str, Any]) -> bool:
        sound = _can_follow(entry, events)
        if sound:
            events.append(Event(**entry))
        return sound

    read_lines(path, count_lines(path), is_sound)
    return events


def _can_follow(entry: Mapping[str, Any], events: Sequence[Event]) -> bool:
    """Return whether an event is complete, and fits those of the group before it.

    Members begin without parents, all with the same numbers; later they become copies of others.
    """
    needed = {field.name for field in fields(Event)} - {"reason"}
    if not needed <= set(entry) <= needed | {"reason"}:
        return False
    counts = (entry["env_steps"], entry["iteration"])
    scores = (entry["score"], entry["parent_score"])
    tables = (entry["before"], entry["after"])
    whole = (
        all(type(count) is int and count >= 0 for count in counts)
        and all(score is None or type(score) in (int, float) for score in scores)
        and all(isinstance(table, Mapping) for table in tables)
        and all(type(x) in (int, float) for table in tables for x in table.values())
        and isinstance(entry["member"], str)
        and isinstance(entry.get("reason"), str | None)
    )
    if not whole or (events and entry["after"].keys() != events[0].after.keys()):
        return False
    begun = {event.member for event in events}
    if entry["parent"] is None:
        return entry["member"] not in begun
    return (
        isinstance(entry["parent"], str)
        and {entry["parent"], entry["member"]} <= begun
        and entry["before"].keys() <= entry["after"].keys()
    )


class Lineage:
    """The events of a group, in memory and in its file.

    Args:
        path: the file, which is rewritten with the events so far.
        events: those of a resumed group.
    """

    def __init__(self, path: Path, events: Sequence[Event] = ()) -> None:
        self.events: list[Event] = []
        self._file = JsonLines(path)
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Add an event."""
        self.events.append(event)
        self._file.append(asdict(event))

    def close(self) -> None:
        """Write buffered events, and close the file."""
        self._file.close()
