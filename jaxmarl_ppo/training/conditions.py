"""Conditions on numbers of a run: finding the numbers, and ending the run."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxmarl_ppo.config.conditions import Condition, parse_condition
from jaxmarl_ppo.config.pbt import RIVALS
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.scenarios.registry import matches
from jaxmarl_ppo.evaluation.seeds import HIGH, IQM, LOW
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.summary import full_summary
from jaxmarl_ppo.runs.entry_checks import FORMER_NAMES
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator

EVALUATION = "evaluation"
# Numbers of a log entry that depend on the machine.
_BY_CLOCK = (
    "wall_s",
    "env_steps_per_s",
    "decisions_per_s",
    "peak_memory_mb",
)


class Watched:
    """Reads the numbers that conditions are on, from entries of the log and from evaluations.

    A number is named by its path in an entry, with `/` or `.` between the parts:
    `policies/shared/return_mean`, or, for an agent's or a policy's, without the first part. Numbers
    of an evaluation begin with `evaluation`.

    Args:
        conditions: by the names of the fields that hold them.
        learner: its agents and policies may be named.
        evaluator: of the run; None where nothing is evaluated.
        config: of the run.
        by_clock: whether numbers may be named that depend on the machine, such as seconds.
        of_seeds: whether entries and evaluations are aggregates over seeds.

    Raises:
        ValueError: If there is no such number.
    """

    def __init__(
        self,
        conditions: Iterable[tuple[str, Condition]],
        learner: Learner,
        evaluator: MeanwhileEvaluator | None,
        config: TrainConfig,
        *,
        by_clock: bool,
        of_seeds: bool,
    ) -> None:
        conditions = list(conditions)
        of_log = [each for each in conditions if not _is_of_evaluation(each[1])]
        names = _over_seeds(_numbers(learner, by_clock), of_seeds) if of_log else []
        if by_clock and config.curriculum:
            names.append("curriculum/stage")
        self._paths = {
            condition: _find(condition.name, names, field, "the log") for field, condition in of_log
        }
        of_evaluation = [each for each in conditions if each not in of_log]
        reported = evaluator.numbers() if evaluator is not None and of_evaluation else []
        if config.pbt is not None and config.pbt.rivals:
            reported += [f"{RIVALS}/*/{name}" for name in reported]
        reported = [f"{EVALUATION}/{name}" for name in _over_seeds(reported, of_seeds)]
        for field, condition in of_evaluation:
            _find(condition.name, reported, field, "an evaluation")
        self._of_evaluation = [condition for _, condition in of_evaluation]

    def in_entry(self, entry: Mapping[str, Any]) -> dict[Condition, float]:
        """Return the numbers of the conditions that an entry of the log has.

        Without finished lives or trained transitions, their numbers are absent.
        """
        found = dict(scalars(entry)) if self._paths else {}
        return {condition: found[path] for condition, path in self._paths.items() if path in found}

    def in_evaluation(self, report: Mapping[str, Any]) -> dict[Condition, float]:
        """Return the numbers of the conditions on evaluations that an evaluation has."""
        found = {_dotted(path): value for path, value in scalars({EVALUATION: report})}
        by_condition = {each: _dotted(each.name) for each in self._of_evaluation}
        return {each: found[name] for each, name in by_condition.items() if name in found}


class Until:
    """Finds the first condition that holds.

    Args:
        config: of the run or group, with its conditions.
        learner: as in `Watched`.
        evaluator: as in `Watched`.

    Raises:
        ValueError: If a condition is on a number that there is not.
    """

    def __init__(
        self, config: TrainConfig, learner: Learner, evaluator: MeanwhileEvaluator | None
    ) -> None:
        self.stopped_by: str | None = None
        conditions = [("until", parse_condition(text)) for text in config.until]
        of_seeds = config.num_seeds > 1
        self._watched = Watched(
            conditions, learner, evaluator, config, by_clock=True, of_seeds=of_seeds
        )

    def see_entry(self, entry: Mapping[str, Any]) -> None:
        """Check an entry of the log."""
        self._see(self._watched.in_entry(entry))

    def see_evaluation(self, report: Mapping[str, Any]) -> None:
        """Check an evaluation."""
        self._see(self._watched.in_evaluation(report))

    def _see(self, found: Mapping[Condition, float]) -> None:
        for condition, value in found.items():
            if self.stopped_by is None and condition.holds(value):
                self.stopped_by = f"{condition} holds, it is {value:g}"


def _numbers(learner: Learner, by_clock: bool) -> list[str]:
    """List the paths of the numbers that a log entry may have."""
    found = full_summary(learner)
    if learner.env_schedules is not None:
        found = {**found, "env_params": learner.env_schedules.values(0)}
    return [*dict(scalars(found)), "iteration", *(_BY_CLOCK if by_clock else ())]


def _over_seeds(names: list[str], of_seeds: bool) -> list[str]:
    """Add to numbers the interquartile means and intervals that an aggregate over seeds has."""
    summaries = (IQM, LOW, HIGH) if of_seeds else ()
    return names + [f"{summary}/{name}" for summary in summaries for name in names]


def _is_of_evaluation(condition: Condition) -> bool:
    return _dotted(condition.name).partition(".")[0] == EVALUATION


def _find(name: str, paths: Sequence[str], field: str, where: str) -> str:
    """Find the path that a name means.

    Args:
        name: as a condition has it.
        paths: all that there are, in which `*` stands for any part.
        field: that holds the condition, for messages.
        where: the numbers are, for messages.

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
    for path in paths:
        if "*" in path and matches(present.replace(".", "/"), path):
            return path
    close = difflib.get_close_matches(_dotted(name), by_name, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(
        f"{field} names {name!r}, which is not in {where}; {guess}valid: {list_paths(paths)}"
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
