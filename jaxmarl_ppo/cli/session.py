"""Shared parts of commands: argument parsing, CPU cores, the compilation cache, printing."""

import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from jaxmarl_ppo.cli import foreign
from jaxmarl_ppo.cli.arguments import (
    Each,
    Find,
    Operand,
    Option,
    element_of,
    make,
    operand_of,
    options_of,
    parse_words,
)
from jaxmarl_ppo.cli.help import long_help, plain_text, short_help
from jaxmarl_ppo.machine.text import LINES, printable

Options = TypeVar("Options")
HELP, HELP_ALL = {"-h", "--help"}, {"--help-all"}
RunDir = Annotated[Path | None, Operand("RUN_DIR")]
Env = Annotated[str | None, Operand("ENV")]
EnvKwargs = Mapping[str, Any]
MAX_NAMED = 3  # of runs in an error
# Names of code that may be imported because a file names it.
AllowImport = Annotated[tuple[str, ...], Each()]


@dataclass(frozen=True)
class CodeOptions:
    """Options of commands that make the environment of a run.

    Attributes:
        env: name of the run's environment, if it is code of your own, as in training:
            `package.module:Class` or `path/to/file.py:Class`; for a run that was started from
            Python, the name of what makes the environment.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
    """

    env: str | None = None
    allow_import: AllowImport = ()

    def prepare(self) -> None:
        """Let this code be imported, and programs be compiled only once."""
        find_modules_here(self.env, *self.allow_import)
        enable_compilation_cache()


@dataclass(frozen=True)
class RunOptions(CodeOptions):
    """Options of commands that read a run.

    Attributes:
        run_dir: the run's folder.
        checkpoint: checkpoint to use: `newest`, `best` by the run's objective, or the number of an
            iteration; None for what was saved at the end of the run.
    """

    run_dir: RunDir = None
    checkpoint: str | None = None

    def open_run(self, prog: str) -> Path:
        """Return the folder of the run, or that of the checkpoint, and prepare to read it.

        Raises:
            ValueError: If there is none.
        """
        folder = existing_run(self.run_dir, prog, self.checkpoint)
        self.prepare()
        return folder


@dataclass(frozen=True)
class TrainingOptions:
    """Options of commands that train a run.

    Attributes:
        allow_import: code that a file names and that may be imported; may be given more than once.
            Code that the command line itself names may always be imported.
        log: `wandb` or `mlflow`, in addition to TensorBoard; may be given more than once. Their own
            environment variables, such as `WANDB_PROJECT` and `MLFLOW_TRACKING_URI`, say where to.
        progress: show progress.
        quiet: print only warnings and errors.
        keep_cores_awake: keep CPU cores from falling asleep during short waits, with processes of
            the lowest priority; on some virtual machines training is a quarter faster.
        check_env: check the environment for errors before anything is compiled.
        plays: evaluate a run that has reached its end, and show episodes of it in `report.html`;
            None to do so if the environment is compiled.
    """

    allow_import: AllowImport = ()
    log: Annotated[tuple[str, ...], Each()] = ()
    progress: bool = True
    quiet: bool = False
    keep_cores_awake: bool = False
    check_env: bool = True
    plays: bool | None = None


def parse(cls: type[Options], args: Sequence[str], prog: str) -> Options:
    """Read a command's options; print its help and exit where that is asked for.

    Args:
        cls: a dataclass of the options.
        args: what the user typed after the command.
        prog: the command.

    Raises:
        ValueError: If something is wrong, in one sentence.
    """
    if asks_for_help(args):
        print_help(cls, prog, args, options_of(cls), options_of(cls))
    return parse_with(cls, args, prog, ())[0]


def parse_with(
    cls: type[Options],
    args: Sequence[str],
    prog: str,
    more: Sequence[Option],
    find: Find = lambda name: None,
    needs_operand: Callable[[set[Any]], bool] | None = None,
) -> tuple[Options, dict[tuple[str, ...], Any]]:
    """Read a command's options, and those for places of a configuration beside.

    Args:
        cls: a dataclass of the command's own options.
        args: what the user typed after the command, but for what asks for help.
        prog: the command.
        more: options for places, whose keys are paths.
        find: as in `parse_words`.
        needs_operand: as in `parse_words`; None for whether the command has one.

    Returns:
        The options, and the values of places that were given, by path.

    Raises:
        ValueError: If something is wrong, in one sentence.
    """
    has_operand = operand_of(cls) is not None
    parsed = parse_words(
        [arg for arg in args if not asks_for_help([arg])],
        [*options_of(cls), *more],
        prog,
        needs_operand=needs_operand or (lambda given: has_operand),
        find=find,
        foreign=foreign.OPTIONS.get,
    )
    paths = sorted((key for key in parsed.values if isinstance(key, tuple)), key=len)
    given = {path: parsed.values.pop(path) for path in paths}
    return make(cls, parsed, prog), given


def asks_for_help(args: Sequence[str]) -> bool:
    """Return whether arguments ask for help."""
    return not (HELP | HELP_ALL).isdisjoint(args)


def print_help(
    cls: type,
    prog: str,
    args: Sequence[str],
    options: Sequence[Option],
    every_option: Sequence[Option],
) -> None:
    """Print the help of a command, short or long, and exit.

    Args:
        cls: the dataclass of its options, whose docstring says what it does.
        prog: the command.
        args: which ask for help.
        options: of the short help.
        every_option: of the long one.
    """
    operand, usage = operand_of(cls), prog
    if operand is not None:
        _, mark, annotation = operand
        usage += f" {mark.metavar}" + (" ..." if element_of(annotation) else "")
    usage += " [options]" if options else ""
    text = plain_text(inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0])
    if HELP_ALL.isdisjoint(args):
        summary = " ".join(text.partition("\n\n")[0].split())
        more = f"{prog} --help-all says all about every option."
        show(short_help(usage, summary, options, more))
    else:
        show(long_help(usage, text, every_option))
    sys.exit(0)


def flag(name: str) -> str:
    """Write an option's name as it is typed."""
    return "--" + name.replace("_", "-")


def existing_run(run_dir: Path | None, prog: str, checkpoint: str | None = None) -> Path:
    """Reject a folder that was not named or is not there.

    Args:
        run_dir: the folder of a run.
        prog: the command.
        checkpoint: which of the run's checkpoints is meant, see `choose_checkpoint`.

    Returns:
        The folder, or that of the checkpoint.

    Raises:
        ValueError: If there is none.
    """
    if run_dir is None:
        raise ValueError(f"{prog} takes the folder of a run; see {prog} --help")
    if not run_dir.is_dir():
        raise ValueError(f"run folder {str(run_dir)!r} does not exist{_newest_beside(run_dir)}")
    _check_holds_run(run_dir, prog)
    if checkpoint is None:
        return run_dir
    from jaxmarl_ppo.runs.checkpoints import choose_checkpoint
    from jaxmarl_ppo.runs.run_folder import read_record

    config = read_record(run_dir)["config"]
    objective = config.get("objective") if isinstance(config, dict) else None
    goal = objective.get("goal") if isinstance(objective, dict) else None
    return choose_checkpoint(run_dir, checkpoint, goal or "maximise")


def _check_holds_run(run_dir: Path, prog: str) -> None:
    """Reject a folder that is not a run's, but in which there are runs.

    Raises:
        ValueError: If it is one, with the newest of the runs closest to it.
    """
    # Names in `runs.files`, the import of which brings JAX along.
    is_search = (run_dir / "search.json").exists()
    if not is_search and ((run_dir / "config.json").exists() or (run_dir / "checkpoints").exists()):
        return
    from jaxmarl_ppo.runs.listing import find_runs, newest_change

    runs = find_runs(run_dir / "trials") if is_search else find_runs(run_dir)
    runs = [run for run in runs if run != run_dir]
    if not runs:
        return
    runs.sort(key=lambda run: (len(run.parts), -newest_change(run)))
    some = ", ".join(repr(str(run)) for run in runs[:MAX_NAMED])
    what = "holds no run itself; name one of the runs in it"
    if is_search:
        what = f"is a search, which jaxmarl-ppo sweep {run_dir} resumes; name one of its trials"
    raise ValueError(f"{str(run_dir)!r} {what}, such as {some}: {prog} {runs[0]}")


def _newest_beside(run_dir: Path) -> str:
    """Name the newest run beside a folder that is not there, one of a similar name if there is."""
    # The record of a run, by its name in `runs.files`, the import of which brings JAX along.
    runs = [path.parent for path in run_dir.parent.glob("*/config.json")]
    alike = [run for run in runs if run.name.startswith(run_dir.name)]
    newest = max(alike or runs, key=lambda run: run.stat().st_mtime, default=None)
    return "" if newest is None else f"; the newest one there is {str(newest)!r}"


def find_modules_here(*names: str | None) -> None:
    """Let modules that the user names, as in `package.module:Class`, lie in the present folder."""
    here = os.getcwd()
    if any(names) and here not in sys.path:
        sys.path.append(here)  # last, so that it hides nothing that is installed


def use_cpu_cores(num_cores: int | None = None) -> None:
    """Spread training over the CPU's cores, unless JAX runs already and has its devices.

    More cores than there are do not become devices, so that asking for them is an error.
    """
    from jaxmarl_ppo.machine import cores

    num_cores = None if num_cores is None else min(num_cores, cores.usable_cores())
    with contextlib.suppress(ValueError):
        cores.use_cpu_cores(num_cores)


def enable_compilation_cache() -> None:
    """Let a second start with the same shapes skip compilation, unless the user configured it."""
    from jaxmarl_ppo.machine.compilation_cache import use_compilation_cache

    use_compilation_cache()


def terminal_width() -> int | None:
    """Return how many letters a line of the terminal has; None where output goes elsewhere."""
    from jaxmarl_ppo.machine.terminal import PlainConsole

    console = PlainConsole()
    return console.width if console.is_terminal else None


def show(report: Any) -> None:
    """Print a report, which is a text or something that rich can draw."""
    from jaxmarl_ppo.machine.terminal import PlainConsole

    if isinstance(report, str):
        print(printable(report, keep=LINES), flush=True)
    else:
        PlainConsole().print(report)


def print_page(path: Path) -> None:
    """Print where a page was saved, and its size."""
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    show(f"saved in {path} ({size}); open it in a browser")


def signal_status(stopped_by: str | None) -> int:
    """Return 128 and the number of the signal that is named, as a shell does; 0 for none."""
    ended_by = getattr(signal, stopped_by or "", None)
    return 128 + ended_by if isinstance(ended_by, signal.Signals) else 0
