"""What commands share: reading arguments, the machine's cores, the compilation cache, printing."""

import contextlib
import dataclasses
import difflib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tyro
from tyro.conf import DisallowNone, Positional
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from jaxmarl_ppo.machine.text import LINES, printable

Options = TypeVar("Options")
HELP = {"-h", "--help"}
_QUIET: dict[str, Any] = {"add_help": False, "console_outputs": False}
# A flag that is set, unset (`--no-...`), or left to us.
Switch = DisallowNone[bool | None]
RunDir = Annotated[
    Positional[Path | None], tyro.conf.arg(metavar="RUN_DIR", help_behavior_hint="(required)")
]
# Names of code that may be imported because a file names it.
AllowImport = Annotated[tuple[tuple[str], ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True)
class Unread:
    """Stands in an option's place for a text that cannot be read, so that we tell, not tyro."""

    message: str


def parse(
    cls: type[Options],
    args: Sequence[str],
    prog: str,
    default: Options | None = None,
    *,
    helps: bool = True,
) -> Options:
    """Read a command's options; print its help and exit where that is asked for.

    Args:
        cls: a dataclass of the options.
        args: what the user typed after the command.
        prog: the command.
        default: defaults of all options; None for those of the class.
        helps: whether to print help; otherwise the question is passed over.

    Raises:
        ValueError: something is not as it should be, in one sentence.
    """
    read = functools.partial(tyro.cli, cls, prog=prog, registry=_registry())
    if default is not None:
        read = functools.partial(read, default=default)
    if helps and HELP & set(args):
        read(args=["--help"])
    args = [arg for arg in args if arg not in HELP]
    try:
        options, unknown = read(args=args, return_unknown_args=True, **_QUIET)
    except SystemExit:
        raise ValueError(f"{_without_value(read, args)} needs a value; see {prog} --help") from None
    _refuse_unknown(unknown, options, prog)
    for (name, *_), value in _values(options):
        if isinstance(value, Unread):
            raise ValueError(f"{name}: {value.message}")
    return options


def flag(name: str) -> str:
    """Write an option's name as it is typed."""
    return "--" + name.replace("_", "-")


def reader(
    read: Callable[[str], Any],
    metavar: str,
    show: Callable[[Any], str] = str,
    *,
    many: bool = False,
    optional: bool = False,
) -> PrimitiveConstructorSpec[Any]:
    """Make tyro read an option with a function, whose ValueError says what is wrong with a text."""

    def read_all(texts: list[str]) -> Any:
        if optional and texts == ["None"]:
            return None
        try:
            values = tuple(read(text) for text in texts)
        except ValueError as error:
            return Unread(str(error))
        return values if many else values[0]

    def show_all(value: Any) -> list[str]:
        if value is None:
            return ["None"]
        return [show(each) for each in value] if many else [show(value)]

    metavar = f"[{metavar} [{metavar} ...]]" if many else metavar
    return PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=f"{{None}}|{metavar}" if optional else metavar,
        instance_from_str=read_all,
        is_instance=lambda value: True,
        str_from_instance=show_all,
    )


def _read_int(text: str) -> int:
    """Read a whole number, also as 5e6."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        number = float(text)
        if number.is_integer():
            return int(number)
    raise ValueError(f"{text!r} is not a whole number")


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def _read_path(text: str) -> Path:
    if not text:
        raise ValueError("'' names no file or folder")
    return Path(text)


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (_read_int, "INT"),
    float: (_read_float, "FLOAT"),
    str: (str, "STR"),
    Path: (_read_path, "PATH"),
}


def _rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Tell tyro how to read an option of a type, unless it is one of its own flags."""
    kind, optional = info.type, False
    if type(None) in get_args(kind):
        rest = [part for part in get_args(kind) if part is not type(None)]
        kind, optional = (rest[0] if len(rest) == 1 else None), True
    many = get_origin(kind) is tuple and get_args(kind)[1:] == (...,)
    if many:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        words = get_args(kind)

        def read(text: str) -> str:
            if text not in words:
                raise ValueError(f"unknown choice {text!r}; valid: {', '.join(words)}")
            return text

        return reader(read, f"{{{','.join(words)}}}", many=many, optional=optional)
    if kind not in _READERS:
        return None
    return reader(*_READERS[kind], many=many, optional=optional)


def _registry() -> ConstructorRegistry:
    registry = ConstructorRegistry()
    registry.primitive_rule(_rule)
    return registry


def _values(options: Any, prefix: str = "") -> Iterator[tuple[list[str], Any]]:
    """List every option as it can be typed, nested ones with a dot, and its value."""
    for field in dataclasses.fields(options):
        if tyro.conf.Suppress in get_args(field.type):
            continue
        value = getattr(options, field.name)
        # Of an annotated type, the type.
        if dataclasses.is_dataclass(getattr(field.type, "__origin__", field.type)):
            is_plain = tyro.conf.OmitArgPrefixes in get_args(field.type)
            yield from _values(value, prefix if is_plain else f"{prefix}{field.name}.")
            continue
        names = [field.name, f"no_{field.name}"] if field.type in (bool, Switch) else [field.name]
        yield [flag(prefix + name) for name in names], value


def _without_value(read: Callable[..., Any], args: Sequence[str]) -> str:
    """Find the option that lacks its value, the one where what can be read ends."""
    for end in reversed(range(1, len(args))):
        with contextlib.suppress(SystemExit):
            read(args=args[:end], return_unknown_args=True, **_QUIET)
            return args[end]
    return args[0]


def _refuse_unknown(unknown: Sequence[str], options: Any, prog: str) -> None:
    named = [arg.partition("=")[0] for arg in unknown if arg.startswith("-")]
    if named:
        known = [name for names, _ in _values(options) for name in names]
        close = difflib.get_close_matches(named[0], known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ValueError(f"unknown option {named[0]}; {hint}see {prog} --help")
    if unknown:
        raise ValueError(f"unexpected argument {unknown[0]!r}; see {prog} --help")


def existing_run(run_dir: Path | None, prog: str, checkpoint: str | None = None) -> Path:
    """Refuse a folder that was not named or is not there.

    Args:
        run_dir: the folder of a run.
        prog: the command.
        checkpoint: which of the run's checkpoints is meant, see `choose_checkpoint`.

    Returns:
        The folder, or that of the checkpoint.

    Raises:
        ValueError: there is none.
    """
    if run_dir is None:
        raise ValueError(f"{prog} takes the folder of a run; see {prog} --help")
    if not run_dir.is_dir():
        raise ValueError(f"run folder {str(run_dir)!r} does not exist{_newest_beside(run_dir)}")
    if checkpoint is None:
        return run_dir
    from jaxmarl_ppo.runs.checkpoints import choose_checkpoint
    from jaxmarl_ppo.runs.run_folder import read_record

    config = read_record(run_dir)["config"]
    objective = config.get("objective") if isinstance(config, dict) else None
    goal = objective.get("goal") if isinstance(objective, dict) else None
    return choose_checkpoint(run_dir, checkpoint, goal or "maximise")


def _newest_beside(run_dir: Path) -> str:
    """Name the newest run beside a folder that is not there, one of a similar name if there is."""
    # The record of a run, by its name in `runs.files`, the import of which brings JAX along.
    runs = [path.parent for path in run_dir.parent.glob("*/config.json")]
    alike = [run for run in runs if run.name.startswith(run_dir.name)]
    newest = max(alike or runs, key=lambda run: run.stat().st_mtime, default=None)
    return "" if newest is None else f"; the newest one there is {str(newest)!r}"


def names_of(allow_import: tuple[tuple[str], ...]) -> list[str]:
    """List the names that `--allow-import` was given with."""
    return [name for (name,) in allow_import]


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
    """Tell how many letters a line of the terminal has; None where output goes elsewhere."""
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
