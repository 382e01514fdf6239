"""The `runs` command: list the runs in a folder, and prune them."""

import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand
from jaxmarl_ppo.machine.text import printable

if TYPE_CHECKING:  # its import brings JAX along, and help does without it
    from rich.table import Table

    from jaxmarl_ppo.runs.listing import Listed
    from jaxmarl_ppo.runs.pruning import Removal

DEFAULT = Path("runs")
MAX_RESULTS, MAX_REASON = 3, 60
Sort = Literal["age", "name", "env", "state", "steps", "size"]


@dataclass(frozen=True)
class RunsOptions:
    """List the runs in a folder and below, or remove what they no longer need.

    A group of seeds, a population and a search are one row each. Links are not followed.

    Attributes:
        folder: folder of the runs; None for `runs`.
        sort: order of the rows: `age`, `name`, `env`, `state`, `steps` or `size`. The newest come
            first, or those with the most steps or the greatest size.
        json: print JSON instead of a table.
        prune: remove old checkpoints and failed starts, which are runs that failed without a
            checkpoint. The newest checkpoint, the best one, those that other listed runs start
            from, and runs in which a process trains stay. Lists what it would remove, and asks.
        yes: do not ask, with `--prune`.
    """

    folder: Annotated[Path | None, Operand("DIR")] = None
    sort: Sort = "age"
    json: bool = False
    prune: bool = False
    yes: bool = False


def main(args: Sequence[str], prog: str = "jaxmarl-ppo runs") -> int:
    """List runs, or remove what is no longer needed of them.

    Raises:
        ValueError: If the folder is not there, or nobody can be asked whether to remove something.
    """
    options = session.parse(RunsOptions, args, prog)
    folder = DEFAULT if options.folder is None else options.folder
    if options.yes and not options.prune:
        raise ValueError("--yes has no effect without --prune; drop it")
    for name in ("json", "sort"):
        if options.prune and getattr(options, name) != getattr(RunsOptions, name):
            raise ValueError(f"--{name} has no effect with --prune; drop one of them")
    if folder.is_file():
        raise ValueError(f"{str(folder)!r} is a file; give the folder of your runs: {prog} DIR")
    if not folder.is_dir():
        raise ValueError(
            f"folder {str(folder)!r} does not exist; give that of your runs: {prog} DIR"
        )
    from jaxmarl_ppo.runs.files import CHECKPOINTS, SNAPSHOTS
    from jaxmarl_ppo.runs.listing import describe, find_runs, run_around

    run = run_around(folder, (CHECKPOINTS, SNAPSHOTS))
    if run is not None and not options.prune:
        raise ValueError(f"{str(folder)!r} lies within a run; name {str(run)!r}")
    found = find_runs(folder)
    if options.prune:
        return _prune(folder, found, options.yes)
    listed = sorted(map(describe, found), key=lambda each: _order(each, options.sort))
    if options.json:
        from jaxmarl_ppo.config.as_json import dump_json

        print(dump_json([_as_json(each, folder) for each in listed]))
    elif listed:
        session.show(runs_table(listed, folder, time.time()))
        for each in listed:
            if each.problem is not None:
                _tell(each.folder, each.problem)
    else:
        session.show(f"no runs in {folder}")
    return 0


def _order(listed: "Listed", sort: Sort) -> Any:
    """Return what runs are sorted by: newest first by default, and where they are equal."""
    first = {
        "age": 0,
        "name": str(listed.folder),
        "env": listed.env or "",
        "state": listed.state,
        "steps": -(listed.env_steps or 0),
        "size": -listed.num_bytes,
    }[sort]
    return first, -listed.changed, str(listed.folder)


def main_results(listed: "Listed") -> dict[str, float]:
    """Choose the newest numbers that tell how good a run is, by their paths.

    They are those of its objective, or else of the environment's main measure: each agent's return,
    if nothing better is known.
    """
    from jaxmarl_ppo.evaluation.scenarios.known import known_of
    from jaxmarl_ppo.runs.log import scalars

    if listed.best is not None and listed.measure is not None:
        return {listed.measure: listed.best}
    if not listed.env_record:
        return {}
    numbers = dict(scalars({**listed.entry, "evaluation": listed.evaluation}))
    for measure in (listed.measure or "", *known_of(listed.env_record).measures):
        before, star, after = measure.partition("*")
        found = {
            name: number
            for name, number in numbers.items()
            if name == measure or (star and name.startswith(before) and name.endswith(after))
        }
        if found:
            return found
    return {}


def _as_json(listed: "Listed", folder: Path) -> dict[str, Any]:
    return {
        "name": _name(listed.folder, folder),
        "folder": str(listed.folder),
        "kind": listed.kind,
        "parts": listed.num_parts,
        "planned_parts": listed.planned_parts,
        "env": listed.env,
        "state": listed.state,
        "reason": listed.reason,
        "problem": listed.problem,
        "env_steps": listed.env_steps,
        "planned_env_steps": listed.planned_env_steps,
        "results": main_results(listed),
        "changed": datetime.fromtimestamp(listed.changed, UTC).isoformat(timespec="seconds"),
        "bytes": listed.num_bytes,
    }


def runs_table(listed: Sequence["Listed"], folder: Path, now: float) -> "Table":
    """Make a table of runs, one row for each.

    Args:
        listed: the runs.
        folder: that their names are relative to.
        now: the time, in seconds since 1970.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", style="cyan", overflow="fold")
    table.add_column("environment", no_wrap=True)
    table.add_column("state", overflow="fold", min_width=len("finished"))
    table.add_column("steps", no_wrap=True)
    table.add_column("result", overflow="fold")
    for title in ("age", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in listed:
        name = _name(each.folder, folder) + _parts_text(each)
        cells = (name, each.env or "-", _state_text(each), _steps_text(each), _results_text(each))
        table.add_row(
            *map(printable, cells), _age_text(now - each.changed), size_text(each.num_bytes)
        )
    return table


def _name(run_dir: Path, folder: Path) -> str:
    return str(run_dir if run_dir == folder else run_dir.relative_to(folder))


def _parts_text(listed: "Listed") -> str:
    if listed.kind == "run":
        return ""
    what = {"group": "seeds", "population": "members", "search": "trials"}[listed.kind]
    of = "" if listed.planned_parts is None else f" of {listed.planned_parts}"
    return f" ({listed.num_parts}{of} {what})"


def _state_text(listed: "Listed") -> str:
    reason = listed.reason
    if reason in signal.Signals.__members__:
        reason = "Ctrl-C" if reason == "SIGINT" else reason
    if reason is None:
        return listed.state
    return f"{listed.state}: {reason[:MAX_REASON]}" + "…"[: len(reason) > MAX_REASON]


def _steps_text(listed: "Listed") -> str:
    from jaxmarl_ppo.training.progress import count_text

    if listed.env_steps is None:
        return "-"
    planned = listed.planned_env_steps
    return count_text(listed.env_steps) + ("" if planned is None else f" of {count_text(planned)}")


def _results_text(listed: "Listed") -> str:
    """Write the main numbers: a single one by its name, those of several agents by theirs."""
    results = main_results(listed)
    values = [f"{number:.4g}" for number in results.values()]
    if not values:
        return "-"
    *outer, last = next(iter(results)).removeprefix("evaluation/").split("/")
    is_of_somebody = outer[:1] in (["agents"], ["policies"], ["all"])
    measure = last.removesuffix("_mean") if is_of_somebody else " ".join([*outer, last])
    if len(set(values)) == 1:
        return f"{measure} {values[0]}"
    shown = [f"{name.split('/')[-2]} {value}" for name, value in zip(results, values, strict=True)]
    return " ".join([measure, *shown[:MAX_RESULTS], *["…"][: len(shown) > MAX_RESULTS]])


def _age_text(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def size_text(num_bytes: int) -> str:
    """Write a size on disk: 512 B, 81.9 kB, 1.02 GB."""
    from jaxmarl_ppo.training.progress import count_text

    text = count_text(num_bytes)
    return f"{text} B" if text[-1].isdigit() else f"{text[:-1]} {text[-1]}B"


def _prune(folder: Path, found: Sequence[Path], yes: bool) -> int:
    """Remove old checkpoints and failed starts, after asking.

    Raises:
        ValueError: If the folder is a part of a run, or nobody can be asked.
    """
    from jaxmarl_ppo.runs.pruning import check_prunable, loads_of, plan_removals, remove

    check_prunable(folder)
    planned, left = plan_removals(found)
    for run_dir, why in left.items():
        _tell(run_dir, f"stays as it is: {why}")
    for removal in planned:
        _tell(removal.folder, _removal_text(removal))
    if not planned:
        session.show(f"nothing to remove in {folder}")
        return 0
    session.show(f"removing them frees {size_text(sum(each.num_bytes for each in planned))}")
    if not yes and not _agrees():
        session.show("nothing was removed")
        return 0
    freed, status, loads = 0, 0, loads_of(found)
    for removal in planned:
        try:
            freed += remove(removal, loads).num_bytes
        except (OSError, ValueError) as error:
            _tell(removal.folder, f"stays as it is: {error}")
            status = 1
    session.show(f"{size_text(freed)} freed")
    return status


def _tell(run_dir: Path, what: str) -> None:
    session.show(printable(what if what.startswith(str(run_dir)) else f"{run_dir}: {what}"))


def _removal_text(removal: "Removal") -> str:
    size = size_text(removal.num_bytes)
    if removal.is_failed_start:
        return f"failed without a checkpoint, {size}"
    count = len(removal.paths)
    return f"{count} old checkpoint{'s' if count > 1 else ''}, {size}"


def _agrees() -> bool:
    """Ask whether to remove what was listed.

    Raises:
        ValueError: If standard input is no terminal.
    """
    if not sys.stdin.isatty():
        raise ValueError(
            "nothing was removed, since standard input is no terminal to answer on; add --yes to "
            "remove without a question"
        )
    with contextlib.suppress(EOFError):  # Ctrl-D
        return input("remove them? [y/N] ").strip().lower() in ("y", "yes")
    return False
