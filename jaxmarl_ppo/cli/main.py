"""The command line: `jaxmarl-ppo train`, `resume`, `evaluate`, `envs`, `new-env` and others.

Only what a command needs is imported, so that help and usage errors come at once.
"""

import contextlib
import difflib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn

from jaxmarl_ppo.machine.text import LINES, printable

USAGE = """\
usage: jaxmarl-ppo COMMAND ...

Multi-agent PPO in JAX.

commands:
  train ENV          train on an environment
  resume RUN_DIR     resume a run from its newest checkpoint
  sweep SPACE        search for the configuration that optimises an objective
  evaluate RUN_DIR   evaluate a run's policies on fresh episodes
  report RUN_DIR ... write an HTML report of runs, or serve it while they train
  watch RUN_DIR      write a page that plays a run's episodes step by step
  play RUN_DIR       open a page on which you play against a run's policies
  runs [DIR]         list runs, or remove what they no longer need
  export RUN_DIR     write a policy into a file that acts without its run
  config ENV         print an environment's preset as a configuration file
  envs [ENV]         list the environments, or describe one
  new-env NAME       write a template for an environment of your own
  check-env ENV      check that an environment keeps the contract
  bench              measure the speed of training on this machine
  completion SHELL   print a script that completes commands and options

Options of a command: jaxmarl-ppo COMMAND --help.
ENV is a name, or your own code: package.module:Class or path/to/file.py:Class.
Set JAXMARL_PPO_TRACEBACK=1 to see where an error comes from.
"""

COMMANDS = (
    *("train", "resume", "sweep", "evaluate", "report", "watch", "play", "runs", "export"),
    *("config", "envs", "new-env", "check-env", "bench", "completion"),
)


def module_of(command: str) -> str:
    """Name the module of a command, which has a function `main(args) -> exit status`."""
    return f"jaxmarl_ppo.cli.{command.replace('-', '_')}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; user errors are one line on standard error and exit status 2."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["help"] and args[1:2]:
        args = [args[1], "--help"]
    if not args or args[0] in ("-h", "--help", "--help-all", "help"):
        print(USAGE, end="")
        sys.exit(0 if args else 2)
    if args[0] in ("--version", "version"):
        from jaxmarl_ppo import __version__

        print(__version__)
        return
    if args[0] not in COMMANDS:
        _fail(_unknown_command(args[0]))
    from jaxmarl_ppo.machine.interruption import ending_on_interrupt

    try:
        with _plain_warnings(), ending_on_interrupt():
            status = importlib.import_module(module_of(args[0])).main(args[1:])
    except Exception as error:
        interrupt = _interrupt_behind(error)
        if interrupt is not None:
            _end_by(interrupt)
        message = _in_a_sentence(error)
        if message is None or os.environ.get("JAXMARL_PPO_TRACEBACK"):
            raise
        _fail(message)
    except KeyboardInterrupt as error:
        _end_by(error)
    sys.exit(status)


def _unknown_command(word: str) -> str:
    """Report an unknown command, with the closest one."""
    from jaxmarl_ppo.cli.foreign import COMMANDS as THEIRS

    close = [THEIRS[word]] if word in THEIRS else difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown command {word!r}; {hint}valid: {', '.join(COMMANDS)}"


def _end_by(interrupt: KeyboardInterrupt) -> NoReturn:
    from jaxmarl_ppo.machine.interruption import end_process

    message = str(interrupt) or "stopped at once; nothing was saved"
    end_process(message, getattr(interrupt, "signal", signal.SIGINT))


def _interrupt_behind(error: Exception) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that reaches us as an error of JAX's, in which a callback raised it."""
    if "jaxmarl_envs" not in sys.modules:
        return None
    from jaxmarl_envs.user_code import host_errors

    try:
        with host_errors():
            raise error
    except KeyboardInterrupt as interrupt:
        return interrupt
    except Exception:
        return None


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings without the line of this package that gives them."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_args, **_kwargs: (
        f"warning: {printable(str(message), keep=LINES)}\n"
    )
    try:
        yield
    finally:
        warnings.formatwarning = before


def _in_a_sentence(error: Exception) -> str | None:
    """Describe an error; for errors of the operating system, also the file.

    None for errors that are ours, not the user's.
    """
    if "jaxmarl_envs" in sys.modules:  # else no environment raised it
        from jaxmarl_envs.adapters import MissingExtraError
        from jaxmarl_envs.user_code import HostEnvironmentError, describe_traced

        if isinstance(error, HostEnvironmentError | MissingExtraError):
            return str(error)
        traced = describe_traced(error)
        if traced is not None:
            return traced
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{os.fsdecode(error.filename)!r} cannot be used: {error.strerror}"
    return str(error) if isinstance(error, ValueError | OSError) else None


def _fail(message: str) -> NoReturn:
    print(f"error: {printable(message, keep=LINES)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
