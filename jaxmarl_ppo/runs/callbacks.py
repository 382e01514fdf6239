"""What is told to others while a run goes on, and who can be told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.types import Population, TrainState


@dataclass(frozen=True)
class RunInfo:
    """Says which run it is that begins or goes on.

    Attributes:
        run_dir: its folder.
        config: its configuration.
        record: the content of its `config.json`.
        env_name: the environment's name.
        resumed_at: environment steps done before, 0 unless the run is resumed.
        history: entries of the log that were made before.
        evaluations: evaluations that were made before.
    """

    run_dir: Path
    config: TrainConfig
    record: Mapping[str, Any]
    env_name: str
    resumed_at: int
    history: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TrainResult:
    """Holds what a run came to.

    Attributes:
        state: the final training state.
        population: the players in it, as saved.
        history: the entries of `metrics.jsonl`; see `runs.log.RunLog`.
        run_dir: the run's folder.
        env_steps: environment steps done.
        interrupted: whether it was stopped before its end.
    """

    state: TrainState
    population: Population
    history: list[dict[str, Any]]
    run_dir: Path
    env_steps: int
    interrupted: bool


class Callback:
    """Is told what happens in a run; a subclass has those methods that it needs."""

    def on_start(self, run: RunInfo) -> None:
        """Take note that a run begins, or goes on."""

    def on_log(self, entry: Mapping[str, Any]) -> bool | None:
        """Take note of an entry of the log."""

    def on_evaluation(self, report: Mapping[str, Any]) -> bool | None:
        """Take note of an evaluation's numbers."""

    def on_checkpoint(self, path: Path) -> bool | None:
        """Take note of a checkpoint that lies in a folder, whole."""

    def on_end(self, result: TrainResult) -> None:
        """Take note of what the run came to, after all is saved."""
