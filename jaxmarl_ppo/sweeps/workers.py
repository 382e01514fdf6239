"""Workers that train the runs of a search, here or elsewhere, and report intermediate results.

A search begins, trains and ends runs, and knows its workers only as `Workers`. An intermediate
result of a run is an `IntermediateResult`, with everything that is recorded of the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxmarl_ppo.sweeps.candidates import Candidate
from jaxmarl_ppo.types import Population


class RunName(NamedTuple):
    """Names a run of a search.

    Attributes:
        trial: number of the trial.
        offset: of its seed from the configuration's.
    """

    trial: int
    offset: int


@dataclass(frozen=True)
class Saved:
    """Holds the state of a run that has just been measured, from which any worker can resume.

    Attributes:
        arrays: the state of training by path, as `to_arrays` makes them.
        iteration: iterations done.
        decisions: decisions done.
        wall_s: seconds of training.
    """

    arrays: Mapping[str, np.ndarray]
    iteration: int
    decisions: int
    wall_s: float


@dataclass(frozen=True)
class IntermediateResult:
    """Holds what a worker reports of a run that it has just measured.

    Attributes:
        name: of the run.
        env_steps: environment steps done.
        is_over: whether it has trained to its end.
        value: of the objective; None where it is missing.
        entry: of the log; None where the run failed.
        report: of the evaluation; None where nothing is evaluated.
        population: the newest finite players, on the host; None without any.
        saved: state to resume from; None where the workers do not save.
        error: why it cannot continue; None where it can.
    """

    name: RunName
    env_steps: int
    is_over: bool
    value: float | None = None
    entry: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    population: Population | None = None
    saved: Saved | None = None
    error: str | None = None


class Workers(Protocol):
    """Workers of one search; the caller that opened them closes them."""

    @property
    def room(self) -> int:
        """Return how many runs can begin now."""
        ...

    def begin(self, name: RunName, candidate: Candidate, folder: Path) -> None:
        """Begin a run.

        Args:
            name: of the run.
            candidate: of the run, before the offset of its seed.
            folder: of its record, for messages.
        """
        ...

    def end(self, name: RunName) -> None:
        """End a run, unless it is already over or has failed."""
        ...

    def train(self) -> list[IntermediateResult]:
        """Train all runs for a short time, and return the results of that time.

        A run that is over or has failed gives no further results, and frees its place.

        Raises:
            ValueError: If the objective's measure is not a metric of these runs.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...
