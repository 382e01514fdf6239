"""The command line: `jaxmarl-ppo train`, `evaluate`, `export`, `envs` and `bench`.

Only what a command needs is imported, so that help and usage errors come at once.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

USAGE = """\
usage: jaxmarl-ppo COMMAND ...

Multi-agent PPO in JAX.

commands:
  train ENV         train on an environment; its own options: train ENV --help
  evaluate RUN_DIR  evaluate what a run has learnt
  export RUN_DIR    write one of its policies into a file that acts with JAX alone
  config ENV        print the configuration of an environment's preset as a file to go on from
  envs              list the environments
  bench             measure how fast training is here

Set JAXMARL_PPO_TRACEBACK=1 to see where an error comes from.
"""
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended
# Modules, each with a function `main(args) -> exit status`.
COMMANDS = {
    "train": "jaxmarl_ppo.cli.train",
    "evaluate": "jaxmarl_ppo.cli.evaluate",
    "export": "jaxmarl_ppo.cli.export",
    "config": "jaxmarl_ppo.cli.config",
    "envs": "jaxmarl_ppo.cli.envs",
    "bench": "jaxmarl_ppo.cli.bench",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; user errors are one line on standard error and exit status 2."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
        sys.exit(0 if args else 2)
    if args[0] == "--version":
        from jaxmarl_ppo import __version__

        print(__version__)
        return
    if args[0] not in COMMANDS:
        _fail(f"unknown command {args[0]!r}; valid: {', '.join(COMMANDS)}")
    try:
        status = importlib.import_module(COMMANDS[args[0]]).main(args[1:])
    except (ValueError, OSError) as error:
        if os.environ.get("JAXMARL_PPO_TRACEBACK"):
            raise
        _fail(_in_a_sentence(error))
    except KeyboardInterrupt as error:
        print(str(error) or "stopped at once; nothing was saved", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # A compilation that was given up may still run in its thread, and an ordinary exit would
        # pull the ground from under it.
        os._exit(INTERRUPTED)
    sys.exit(status)


def _in_a_sentence(error: Exception) -> str:
    """Say what is wrong; of what the operating system refuses, also with what."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{os.fsdecode(error.filename)!r} cannot be used: {error.strerror}"
    return str(error)


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
