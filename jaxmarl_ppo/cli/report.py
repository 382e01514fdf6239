"""`jaxmarl-ppo report`: a report page of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand
from jaxmarl_ppo.config.checks import reject_repeated

RunDirs = Annotated[tuple[Path, ...], Operand("RUN_DIR")]


@dataclass(frozen=True)
class ReportOptions(session.CodeOptions):
    """Write a run's results or a comparison of several as a page, or their curves as files.

    Attributes:
        run_dirs: folders of the runs; for a group of seeds that of the group, or those of its
            members.
        plays: evaluate a single run, and show episodes of it.
        seed: seed of the evaluation and the episodes.
        out: file of the page; None for `report.html` in a single run's folder, or in the current
            folder.
        csv: file for the curves, instead of a page (with `--out`, in addition to it), with one row
            per logged value: `run,seed,env_steps,metric,value`.
        summary: file for statistics over the seeds of a group, likewise: mean, interquartile mean
            and its 95 % interval, as `run,env_steps,metric,seeds,mean,iqm,ci95_low,ci95_high`.
        picture: file for a picture of the returns of a run or group, likewise: `.pdf`, `.svg` or
            `.png`.
        live: serve the page on this machine, instead of writing it, and read the runs' logs again
            every few seconds.
        port: port of the server on this machine, with `--live`; 0 for any that is free.
    """

    run_dirs: RunDirs = ()
    plays: bool = True
    seed: int = 0
    out: Path | None = None
    csv: Path | None = None
    summary: Path | None = None
    picture: Path | None = None
    live: bool = False
    port: int = 0


def main(args: Sequence[str], prog: str = "jaxmarl-ppo report") -> int:
    """Write a page or files and print their paths, or serve the page.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(ReportOptions, args, prog)
    folders = [session.existing_run(folder, prog) for folder in options.run_dirs or (None,)]
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, got {options.port}")
    files = {name: getattr(options, name) for name in ("csv", "summary", "picture")}
    files = {name: path for name, path in files.items() if path is not None}
    written = [*files.values(), *([] if options.out is None else [options.out])]
    reject_repeated("report", map(str, written))
    if options.live:
        _check_unused({"out": options.out, **files}, "with --live")
        return _serve(folders, options)
    if options.port:
        raise ValueError("--port has no effect without --live; drop it")
    if files and options.out is None:
        of_page = {name: getattr(options, name) for name in ("seed", "env", "allow_import")}
        of_page["no_plays"] = not options.plays
        first = next(iter(files))
        _check_unused(of_page, f"beside --{first}, which writes no page without --out")
    _write_files(folders, files)
    if files and options.out is None:
        return 0
    options.prepare()
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.pages.report import REPORT_FILE, report_runs

    seed = check_seed("seed", options.seed)
    allowed = options.allow_import
    page = report_runs(folders, options.plays, seed, options.env, allowed)
    beside = folders[0] if len(folders) == 1 else Path()
    path = page.save(beside / REPORT_FILE if options.out is None else options.out)
    session.print_page(path)
    return 0


def _check_unused(given: Mapping[str, Any], where: str) -> None:
    """Reject options that have a value, but no effect."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{session.flag(name)} has no effect {where}; drop one of them")


def _write_files(folders: Sequence[Path], files: Mapping[str, Path]) -> None:
    """Write what was asked for beside a page, by the names of options."""
    if not files:
        return
    from jaxmarl_ppo.evaluation.curve_tables import write_curves, write_summary
    from jaxmarl_ppo.runs.curve import check_picture, plot_run

    if "picture" in files:
        check_picture(files["picture"])
        if len(folders) > 1:
            raise ValueError(
                f"--picture shows one run or group, got {len(folders)} folders; give one, or draw "
                "what --csv writes"
            )
    if "summary" in files:
        write_summary(files["summary"], folders)
    if "csv" in files:
        write_curves(files["csv"], folders)
    if "picture" in files:
        plot_run(folders[0], files["picture"])
    for path in files.values():
        session.show(f"saved in {path}")


def _serve(folders: Sequence[Path], options: ReportOptions) -> int:
    from jaxmarl_ppo.pages.report_server import serve_report

    def tell(address: str) -> None:
        session.show(f"report at {address}\nCtrl-C ends it.")

    serve_report(folders, options.port, tell)
    return 0
