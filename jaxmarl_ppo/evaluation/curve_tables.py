"""Learning curves as CSV tables, for pandas, R and spreadsheets."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxmarl_ppo.evaluation.seeds import HIGH, IQM, LOW, SPREAD
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, METRICS_FILE
from jaxmarl_ppo.runs.log import read_entries, scalars
from jaxmarl_ppo.runs.run_folder import members_of, read_record

CURVE_COLUMNS = ("run", "seed", "env_steps", "metric", "value")
SUMMARY_COLUMNS = ("run", "env_steps", "metric", "seeds", "mean", *SPREAD)
_CLOCK = ("env_steps", "iteration")


def write_curves(path: Path, run_dirs: Sequence[Path]) -> None:
    """Write the curves of runs in long format, `CURVE_COLUMNS`: a row for every logged number.

    Metrics are named by their paths, such as `agents/x/return_mean`, those of evaluations with
    `evaluation/` before.

    Args:
        path: the file.
        run_dirs: folders of runs, or of groups of seeds.

    Raises:
        ValueError: If one of them holds no run.
    """
    rows = []
    for run_dir in run_dirs:
        for member in members_of(run_dir) or [run_dir]:
            config = read_record(member)["config"]
            seed = config.get("seed") if isinstance(config, dict) else None
            rows += [
                (run_dir, seed, entry["env_steps"], name, value)
                for entry in _entries(member)
                for name, value in scalars(entry)
                if name.removeprefix("evaluation/") not in _CLOCK
            ]
    _write(path, CURVE_COLUMNS, rows)


def write_summary(path: Path, group_dirs: Sequence[Path]) -> None:
    """Write mean, interquartile mean and its 95 % interval over seeds, `SUMMARY_COLUMNS`.

    These are the statistics of the groups' own logs; see `summarise_seeds`.

    Args:
        path: the file.
        group_dirs: folders of groups of seeds.

    Raises:
        ValueError: If one of them holds no group.
    """
    for folder in group_dirs:
        read_record(folder)
        if not members_of(folder):
            raise ValueError(
                f"run folder {str(folder)!r} has a single seed, and a summary is over several; "
                "give the folder of a group (train with --num-seeds), or write --csv"
            )
    rows = [row for folder in group_dirs for row in _summary_rows(folder)]
    _write(path, SUMMARY_COLUMNS, rows)


def _summary_rows(group_dir: Path) -> Iterator[tuple[Any, ...]]:
    for entry in _entries(group_dir):
        numbers = dict(scalars(entry))
        prefix = "evaluation/" if "evaluation" in entry else ""
        seeds = (entry.get("evaluation") or entry).get("seeds")
        for name, mean in numbers.items():
            rest = name.removeprefix(prefix)
            spread = [numbers.get(f"{prefix}{table}/{rest}") for table in (IQM, LOW, HIGH)]
            if spread[0] is not None:
                yield (group_dir, entry["env_steps"], name, seeds, mean, *spread)


def _entries(run_dir: Path) -> list[dict[str, Any]]:
    """List the entries of a log, then evaluations as `{"env_steps", "evaluation": {...}}`."""
    evaluations = read_entries(run_dir / EVALUATIONS_FILE)
    return read_entries(run_dir / METRICS_FILE) + [
        {"env_steps": each["env_steps"], "evaluation": each} for each in evaluations
    ]


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
