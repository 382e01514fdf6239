"""The command line: `jaxmarl-ppo train`, `evaluate`, `export`, `envs` and `bench`.

Only what a command needs is imported, so that help and usage errors come at once.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

USAGE = """\
usage: jaxmarl-ppo COMMAND ...

Multi-agent PPO in JAX.

commands:
  train ENV         train on an environment; its own options: train ENV --help
  evaluate RUN_DIR  evaluate what a run has learnt
  export RUN_DIR    write one of its policies into a file that acts with JAX alone
  envs              list the environments
  bench             measure how fast training is here

Set JAXMARL_PPO_TRACEBACK=1 to see where an error comes from.
"""
INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended


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
    if args[0] not in _COMMANDS:
        _fail(f"unknown command {args[0]!r}; valid: {', '.join(_COMMANDS)}")
    try:
        status = _COMMANDS[args[0]](args[1:])
    except (ValueError, OSError) as error:
        if os.environ.get("JAXMARL_PPO_TRACEBACK"):
            raise
        _fail(str(error))
    except KeyboardInterrupt as error:
        print(str(error) or "stopped at once; nothing was saved", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # A compilation that was given up may still run in its thread, and an ordinary exit would
        # pull the ground from under it.
        os._exit(INTERRUPTED)
    sys.exit(status)


def _train(args: list[str]) -> int:
    from jaxmarl_ppo.cli import options as cli_options
    from jaxmarl_ppo.cli import values as cli_values

    options = cli_options.parse_train(args)
    config = options.to_config()
    env_kwargs = cli_values.parse_env_kwargs(options.env_kwargs)

    from jaxmarl_envs import make

    _use_cpu_cores(config.num_devices)
    env, env_params = make(options.env, **env_kwargs)
    _enable_compilation_cache()
    from jaxmarl_ppo.training.trainer import Trainer

    trainer = Trainer(
        env,
        env_params,
        config,
        options.run_dir,
        progress=options.progress,
        keep_cores_awake=options.keep_cores_awake,
        check_env=options.check_env,
    )
    result = trainer.train()
    total = config.num_iterations * config.num_envs * config.num_steps
    if result.interrupted:
        print(f"interrupted after {result.env_steps:,} of {total:,} environment steps")
    else:
        seconds = result.history[-1]["wall_s"]
        print(f"trained {result.env_steps:,} environment steps in {seconds:.1f} s")
    print(f"saved in {result.run_dir}")
    print(f"next: jaxmarl-ppo evaluate {result.run_dir}")
    return INTERRUPTED if result.interrupted else 0


def _evaluate(args: list[str]) -> int:
    from jaxmarl_ppo.cli import options as cli_options

    options = cli_options.parse_evaluate(args)
    if not options.run_dir.is_dir():
        raise ValueError(f"run folder {str(options.run_dir)!r} does not exist")
    _enable_compilation_cache()
    from jaxmarl_ppo.evaluation.evaluate import evaluate_run, format_report

    report = evaluate_run(
        options.run_dir,
        episodes=options.episodes,
        seed=options.seed,
        greedy=options.greedy,
        matrix=options.cross_play,
        row_agents=options.row_agents,
    )
    if options.json:
        from jaxmarl_ppo.config.as_json import dump_json

        print(dump_json(report))
    else:
        _print(format_report(report))
    return 0


def _export(args: list[str]) -> int:
    from jaxmarl_ppo.cli import options as cli_options

    options = cli_options.parse_export(args)
    if not options.run_dir.is_dir():
        raise ValueError(f"run folder {str(options.run_dir)!r} does not exist")
    _enable_compilation_cache()
    from jaxmarl_ppo.deploy.export import check_new_file
    from jaxmarl_ppo.deploy.policy import Policy

    if options.out is not None:
        check_new_file(options.out)  # before anything that takes time
    policy = Policy.load(options.run_dir, options.policy, options.agent)
    name = policy.signature.policy
    path = Path(f"{name}.jaxexport") if options.out is None else options.out
    policy.export(path, options.platforms)
    print(f"policy {name}, which plays {', '.join(policy.agents)}; checked: it acts as before")
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    print(f"saved in {path} ({size}, for {', '.join(options.platforms)})")
    print(f"next, in Python: jaxmarl_ppo.load_exported({str(path)!r})")
    return 0


def _envs(args: list[str]) -> int:
    from jaxmarl_ppo.cli import options as cli_options

    cli_options.parse_envs(args)
    from jaxmarl_ppo.cli.env_table import env_table
    from jaxmarl_ppo.config.presets import variants

    _print(env_table())
    print("more presets: " + ", ".join(f"{env} --preset {variant}" for env, variant in variants()))
    print("of every environment: --preset rllib, the defaults of RLlib's PPO")
    print(
        "made of others, by --env-kwargs: grouped (shared rewards), and any game of gymnax, "
        "jaxmarl, pgx or pettingzoo (Python, slow), such as `pgx --env-kwargs env_id=connect_four`"
    )
    return 0


def _bench(args: list[str]) -> int:
    from jaxmarl_ppo.cli.bench import main

    _use_cpu_cores()
    return main(args)


def _use_cpu_cores(num_cores: int | None = None) -> None:
    """Spread training over the CPU's cores, unless JAX runs already and has its devices."""
    from jaxmarl_ppo.machine.cores import use_cpu_cores

    with contextlib.suppress(ValueError):
        use_cpu_cores(num_cores)


def _enable_compilation_cache() -> None:
    """Let a second start with the same shapes skip compilation, unless the user configured it."""
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(cache, "jaxmarl_ppo", "jax"))


def _print(report: Any) -> None:
    from rich.console import Console

    if isinstance(report, str):
        print(report)
    else:
        Console().print(report)


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "evaluate": _evaluate,
    "export": _export,
    "envs": _envs,
    "bench": _bench,
}

if __name__ == "__main__":
    main()
