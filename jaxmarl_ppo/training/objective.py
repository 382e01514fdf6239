"""Objective of a run: its measure read from entries, the best value, and when to end."""

import difflib
import math
from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.pbt import RIVALS
from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.scenarios.registry import matches
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.summary import full_summary
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.training.conditions import EVALUATION, list_paths
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator


class Measure:
    """Reads a number by its path, from entries of the log or from evaluations.

    Args:
        path: such as `agents/x/return_mean` or `evaluation/exploitability/greedy`; None for a
            number that no report has.
        learner: its agents and policies may be named.

    Raises:
        ValueError: If the path names an unknown agent or policy.
    """

    def __init__(self, path: str | None, learner: Learner) -> None:
        self._path = path or ""
        self._root, _, rest = self._path.partition("/")
        names = {"agents": learner.env.agents, "policies": learner.players.policies}
        valid = names.get(self._root)
        self._name = rest.partition("/")[0]
        if valid is not None and self._name not in valid:
            raise ValueError(
                f"objective.measure={path!r} names {self._name!r} among the {self._root}; "
                f"valid: {', '.join(valid)}"
            )

    def of_entry(self, entry: Mapping[str, Any]) -> float | None:
        """Read the number from an entry of the log; None where it is not there.

        Raises:
            ValueError: If entries never have it.
        """
        if self._root == "all":
            return self._read({"all": entry["all"]}, must_be_there="return_mean" in entry["all"])
        if self._root not in ("agents", "policies"):
            return None
        table = entry[self._root][self._name]
        # Without finished lives or trained decisions, their numbers are absent.
        whole = "return_mean" in table and (self._root == "agents" or "policy_loss" in table)
        return self._read({self._root: {self._name: table}}, must_be_there=whole)

    def of_evaluation(self, report: Mapping[str, Any]) -> float | None:
        """Read the number from an evaluation; None if it belongs to the log.

        Raises:
            ValueError: If evaluations do not have it.
        """
        if self._root != "evaluation":
            return None
        return self._read({"evaluation": report}, must_be_there=True)

    def _read(self, numbers: Mapping[str, Any], must_be_there: bool) -> float | None:
        found = dict(scalars(numbers))
        if must_be_there and self._path not in found:
            raise ValueError(
                f"there is no number {self._path!r} to go by; valid: {', '.join(found)}"
            )
        return found.get(self._path)


def check_measure(path: str | None, learner: Learner, evaluator: MeanwhileEvaluator | None) -> None:
    """Check before training that a run will report the number of its objective.

    Args:
        path: of the number; None for no objective.
        learner: of the run.
        evaluator: of the run; None where nothing is evaluated.

    Raises:
        ValueError: If there is no such number; the message names the closest one.
    """
    root, _, rest = (path or "").partition("/")
    if path is None:
        return
    if root == EVALUATION:
        before, is_of_rivals, after = rest.partition("/")
        if before == RIVALS and is_of_rivals:  # the mean, the least and the greatest of others
            rest = after.partition("/")[2]
        valid = [] if evaluator is None else evaluator.numbers()
        where = "an evaluation"
    else:
        found = dict(scalars(full_summary(learner)))
        valid = [name for name in found if name.partition("/")[0] == root]
        rest, where = path, "the log"
    if any(matches(rest, each) for each in valid):
        return
    close = difflib.get_close_matches(rest, valid, n=1, cutoff=0.5)
    full = path.removesuffix(rest) + close[0] if close else ""
    guess = f"did you mean {full!r}? " if close else ""
    raise ValueError(
        f"objective.measure={path!r} is not among the metrics of {where}; {guess}valid: "
        f"{list_paths(valid)}"
    )


class Objective:
    """Tracks the measure of a run.

    Args:
        config: of the run.
        learner: its agents and policies may be named by the measure.
        best: the best value so far of a resumed run.
        num_worse: how often in a row it was not better.

    Raises:
        ValueError: If the measure names an unknown agent or policy.
    """

    def __init__(
        self,
        config: TrainConfig,
        learner: Learner,
        best: float | None = None,
        num_worse: int = 0,
    ) -> None:
        self._config: ObjectiveConfig = config.objective
        self._measure = Measure(config.objective.measure, learner)
        self.best, self.num_worse = best, num_worse
        self.stopped_by: str | None = None

    def see_entry(self, entry: Mapping[str, Any]) -> float | None:
        """Process an entry of the log; return its measure if it is the best so far."""
        return self._see(self._measure.of_entry(entry))

    def see_evaluation(self, report: Mapping[str, Any]) -> float | None:
        """Process an evaluation; return its measure if it is the best so far."""
        return self._see(self._measure.of_evaluation(report))

    def _see(self, value: float | None) -> float | None:
        # Nothing is better than NaN: as the first value, it would stay the best.
        if value is None or math.isnan(value):
            return None
        config = self._config
        is_best = config.is_better(value, self.best)
        self.best, self.num_worse = (value, 0) if is_best else (self.best, self.num_worse + 1)
        if config.is_reached(value):
            self.stopped_by = f"{config.measure} is {value:g}, as good as was asked for"
        elif config.patience is not None and self.num_worse >= config.patience:
            times = f"{self.num_worse} times in a row"
            self.stopped_by = f"{config.measure} was not better than {self.best:g} {times}"
        return value if is_best else None
