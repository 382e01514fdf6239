"""Conditions on logged numbers that end a run."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxmarl_ppo.config.until import Condition, parse_condition
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.summary import full_summary
from jaxmarl_ppo.runs.entries import FORMER_NAMES
from jaxmarl_ppo.runs.log import scalars

EVALUATION = "evaluation"
# Numbers of a log entry beside those of `summarise`.
_OF_THE_RUN = (
    "iteration",
    "wall_s",
    "env_steps_per_s",
    "decisions_per_s",
    "peak_memory_mb",
)


class Until:
    """Finds the first condition that holds.

    A number is named by its path in an entry, with `/` or `.` between the parts:
    `policies/shared/return_mean`, or, for an agent's or a policy's, without the first part. Numbers
    of an evaluation begin with `evaluation`.

    Args:
        conditions: as in `TrainConfig.until`.
        learner: its agents and policies may be named.

    Raises:
        ValueError: If there is no such number.
    """

    def __init__(self, conditions: Iterable[str], learner: Learner) -> None:
        self.stopped_by: str | None = None
        self._conditions = tuple(map(parse_condition, conditions))
        # The numbers of evaluations are known only after the first one.
        of_log = [c for c in self._conditions if not _is_of_evaluation(c)]
        names = _numbers(learner) if of_log else []
        self._paths = {condition: _find(condition.name, names) for condition in of_log}

    def see_entry(self, entry: Mapping[str, Any]) -> None:
        """Check an entry of the log."""
        if not self._paths:
            return
        found = dict(scalars(entry))
        for condition, path in self._paths.items():
            # Without finished lives or trained decisions, their numbers are absent.
            if path in found:
                self._see(condition, found[path])

    def see_evaluation(self, report: Mapping[str, Any]) -> None:
        """Check an evaluation.

        Raises:
            ValueError: If it has no such number.
        """
        conditions = [c for c in self._conditions if _is_of_evaluation(c)]
        found = dict(scalars({EVALUATION: report})) if conditions else {}
        for condition in conditions:
            self._see(condition, found[_find(condition.name, sorted(found))])

    def _see(self, condition: Condition, value: float) -> None:
        if self.stopped_by is None and condition.holds(value):
            self.stopped_by = f"{condition} holds, it is {value:g}"


def _numbers(learner: Learner) -> list[str]:
    """List the paths of the numbers that a log entry may have."""
    found = full_summary(learner)
    if learner.env_schedules is not None:
        found = {**found, "env_params": learner.env_schedules.values(0)}
    return [*dict(scalars(found)), *_OF_THE_RUN]


def _is_of_evaluation(condition: Condition) -> bool:
    return _dotted(condition.name).partition(".")[0] == EVALUATION


def _find(name: str, paths: list[str]) -> str:
    """Find the path that a name means.

    Raises:
        ValueError: If there is none.
    """
    by_name = {_dotted(path): path for path in paths}
    # A policy's number takes precedence over that of an agent of the same name.
    for root in ("policies.", "agents."):
        for path in paths:
            if _dotted(path).startswith(root):
                by_name.setdefault(_dotted(path).removeprefix(root), path)
    present = FORMER_NAMES.get(_dotted(name), _dotted(name))
    if present in by_name:
        return by_name[present]
    close = difflib.get_close_matches(_dotted(name), by_name, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(
        f"until names {name!r}, which is not in the log; {guess}valid: {list_paths(paths)}"
    )


def list_paths(paths: Sequence[str]) -> str:
    """List the numbers of all groups, with shared parts named once."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        group, _, key = path.rpartition("/")
        groups.setdefault(group.replace("/", "."), []).append(key)
    shared: dict[str, list[str]] = {}
    for group, keys in groups.items():
        shared.setdefault(", ".join(keys), []).append(group)
    return "; ".join(
        keys if names == [""] else f"of {', '.join(names)}: {keys}"
        for keys, names in shared.items()
    )


def _dotted(name: str) -> str:
    return name.replace("/", ".")
