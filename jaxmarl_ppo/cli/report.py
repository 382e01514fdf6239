"""`jaxmarl-ppo report`: a report page of runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand

RunDirs = Annotated[tuple[Path, ...], Operand("RUN_DIR")]


@dataclass(frozen=True)
class ReportOptions:
    """Write a page that says what a run came to, or that compares several.

    Attributes:
        run_dirs: the folders of the runs; of a group of seeds that of the group, or of members.
        plays: evaluate a single run, and show episodes of it.
        seed: of evaluation and episodes.
        env: where the run's environment is code of your own, its name once more, as it was trained:
            `package.module:Class` or `path/to/file.py:Class`; of a
            run that Python code began, the name of what makes it.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        out: the file; None for `report.html` in a single run's folder, or in the present one.
        live: instead of writing it, serve the page on this machine, and read the runs' logs anew
            every few seconds.
        port: with `--live`, of this machine; 0 for any that is free.
    """

    run_dirs: RunDirs = ()
    plays: bool = True
    seed: int = 0
    env: str | None = None
    allow_import: session.AllowImport = ()
    out: Path | None = None
    live: bool = False
    port: int = 0


def main(args: Sequence[str], prog: str = "jaxmarl-ppo report") -> int:
    """Write a page and print its path, or serve it.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(ReportOptions, args, prog)
    folders = [session.existing_run(folder, prog) for folder in options.run_dirs or (None,)]
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, got {options.port}")
    if options.live:
        return _serve(folders, options)
    if options.port:
        raise ValueError("--port has no effect without --live; drop it")
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.pages.report import REPORT_FILE, report_runs

    seed = check_seed("seed", options.seed)
    allowed = options.allow_import
    page = report_runs(folders, options.plays, seed, options.env, allowed)
    beside = folders[0] if len(folders) == 1 else Path()
    path = page.save(beside / REPORT_FILE if options.out is None else options.out)
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    session.show(f"saved in {path} ({size}); open it in a browser")
    return 0


def _serve(folders: Sequence[Path], options: ReportOptions) -> int:
    if options.out is not None:
        raise ValueError("--out has no effect with --live; drop one of them")
    from jaxmarl_ppo.pages.report_server import serve_report

    def tell(address: str) -> None:
        session.show(f"report at {address}\nCtrl-C ends it.")

    serve_report(folders, options.port, tell)
    return 0
