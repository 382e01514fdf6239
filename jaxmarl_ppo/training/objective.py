"""What a run is to reach: its measure read from entries, the best value, and when to end."""

from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.runs.log import scalars


class Objective:
    """Follows the measure of a run.

    Args:
        config: of the run.
        learner: whose agents and policies the measure may name.
        best: the best value so far, of a run that is resumed.
        num_worse: how often in a row it was no better than that.

    Raises:
        ValueError: the measure names an agent or a policy that there is not.
    """

    def __init__(
        self,
        config: TrainConfig,
        learner: Learner,
        best: float | None = None,
        num_worse: int = 0,
    ) -> None:
        self._config: ObjectiveConfig = config.objective
        self.best, self.num_worse = best, num_worse
        self.stopped_by: str | None = None
        measure = self._config.measure
        self._root, _, self._path = (measure or "").partition("/")
        names = {"agents": learner.env.agents, "policies": learner.players.policies}
        valid = names.get(self._root)
        name = self._path.partition("/")[0]
        if valid is not None and name not in valid:
            raise ValueError(
                f"objective.measure={measure!r} names {name!r} among the {self._root}; "
                f"valid: {', '.join(valid)}"
            )

    def see_entry(self, entry: Mapping[str, Any]) -> float | None:
        """Look at an entry of the log; return its measure if it is the best so far."""
        if self._root == "all":
            return self._see({"all": entry["all"]}, must_be_there="return_mean" in entry["all"])
        if self._root not in ("agents", "policies"):
            return None
        name = self._path.partition("/")[0]
        table = entry[self._root][name]
        # Where no life has ended or nothing was trained, the numbers of that are not there.
        whole = "return_mean" in table and (self._root == "agents" or "entropy" in table)
        return self._see({self._root: {name: table}}, must_be_there=whole)

    def see_evaluation(self, report: Mapping[str, Any]) -> float | None:
        """Look at an evaluation; return its measure if it is the best so far."""
        if self._root != "evaluation":
            return None
        return self._see({"evaluation": report}, must_be_there=True)

    def _see(self, numbers: Mapping[str, Any], must_be_there: bool) -> float | None:
        config, found = self._config, dict(scalars(numbers))
        value = found.get(config.measure or "")
        if value is None:
            if must_be_there:
                raise ValueError(
                    f"there is no number {config.measure!r} to go by; valid: {', '.join(found)}"
                )
            return None
        is_best = config.is_better(value, self.best)
        self.best, self.num_worse = (value, 0) if is_best else (self.best, self.num_worse + 1)
        if config.is_reached(value):
            self.stopped_by = f"{config.measure} is {value:g}, as good as was asked for"
        elif config.patience is not None and self.num_worse >= config.patience:
            times = f"{self.num_worse} times in a row"
            self.stopped_by = f"{config.measure} was not better than {self.best:g} {times}"
        return value if is_best else None
