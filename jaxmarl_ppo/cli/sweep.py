"""`jaxmarl-ppo sweep`: search for the configuration that optimises an objective."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand, Option, options_of
from jaxmarl_ppo.cli.run_options import find_option, run_options, to_table
from jaxmarl_ppo.config.annotations import attributes_of, field_hints
from jaxmarl_ppo.config.env_as_json import params_from_json
from jaxmarl_ppo.config.search import SearchConfig
from jaxmarl_ppo.config.search_file import SearchFile, read_search_file
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.runs.named_env import as_options, check_effect, make_env

if TYPE_CHECKING:  # its import takes a while, and help does without it
    from jaxmarl_ppo.sweeps.results import SweepResult
    from jaxmarl_ppo.sweeps.sweep import MakeWorkers, Sweep

PROG = "jaxmarl-ppo sweep"
Space = Annotated[Path | None, Operand("SPACE")]


@dataclass(frozen=True)
class SweepOptions:
    """Search for the configuration that optimises an objective.

    Beside the options below, every value of the configuration that is not searched is an option of
    all runs under its full path, as for `train`; `--seed`, `--num-seeds` and `--max-minutes` are
    those of the search.

    Attributes:
        space: a file (.toml, .yaml, .json) that describes a run as for `train --config`, and in the
            tables `space` and `search` what is searched and how. Or the folder of a search, to
            resume it.
        run_dir: folder of the search. If it exists, the search is resumed; several processes may
            run the same search at once. None for `runs/<env>-search-<time>`.
        env: name of the environment as it stands in the file, if it is code of your own.
        allow_import: further code of your own that the file's environment imports by name; may be
            given more than once.
        ray: address of a Ray cluster, each of whose workers trains `num_members` runs side by side:
            `auto` for the cluster of this machine, HOST:PORT, or ray://HOST:PORT.
        cpus_per_worker: CPUs of each worker of a cluster without GPUs; None for one worker on each
            node, with all of its CPUs. With GPUs there is one worker for each.
        progress: show progress.
        quiet: print nothing but warnings and errors.
        check_env: as for `train`.
    """

    space: Space = None
    run_dir: Path | None = None
    env: str | None = None
    allow_import: session.AllowImport = ()
    ray: str | None = None
    cpus_per_worker: int | None = None
    progress: bool = True
    quiet: bool = False
    check_env: bool = True


def main(args: Sequence[str], prog: str = PROG) -> int:
    """Search, and print the result.

    Raises:
        ValueError: If the options or the file are inconsistent, or the search cannot be resumed.
    """
    own, of_search = options_of(SweepOptions), _search_options()
    taken = {option.flag for option in (*own, *of_search)}
    of_run = [option for option in run_options() if option.flag not in taken]
    if session.asks_for_help(args):
        shown = [*own, *of_search]
        session.print_help(SweepOptions, prog, args, shown, [*shown, *of_run])
    options, given = session.parse_with(
        SweepOptions, args, prog, [*of_search, *of_run], find_option(of_run)
    )
    changes = {path[-1]: value for path, value in given.items() if path[0] == "search"}
    of_runs = to_table({path: value for path, value in given.items() if path[0] != "search"})
    if options.space is None:
        raise ValueError(f"{prog} takes a file or the folder of a search; see {prog} --help")
    if options.cpus_per_worker is not None and options.ray is None:
        raise ValueError("--cpus-per-worker has no effect without --ray")
    # What is said may be wrong in itself, which costs nothing to find out.
    said = None
    if not options.space.is_dir():
        said = read_search_file(options.space, options.env, changes, of_runs)
    elif of_runs:
        raise ValueError(
            f"options of its runs ({', '.join(of_runs)}) have no effect on the search in "
            f"{options.space}, whose runs stay as it began; drop them, or begin another search"
        )
    session.use_cpu_cores()
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    _check_installed()
    make_workers = None if options.ray is None else _workers_on_ray(options)
    sweep = _resumed(options, changes) if said is None else _made(options, said)
    result = sweep.run(make_workers)
    return print_end(result, sweep.config, sweep.env, prints=not options.quiet)


def _search_options() -> list[Option]:
    """List the options for the fields of a search, which override the file's."""
    about = attributes_of(SearchConfig)
    return [
        Option(session.flag(name), ("search", name), hint, about[name], group="search")
        for name, hint in field_hints(SearchConfig).items()
    ]


def _workers_on_ray(options: SweepOptions) -> "MakeWorkers":
    """Choose the workers of a Ray cluster.

    Raises:
        ValueError: If the cluster cannot be reached, or has nothing for a worker.
    """
    import jax

    from jaxmarl_ppo.on_ray.cluster import alive_nodes, connect, worker_resources
    from jaxmarl_ppo.on_ray.workers import RayCluster

    assert options.ray is not None
    cluster = RayCluster(options.ray, options.cpus_per_worker)
    ray = connect(options.ray, shows_output=False)
    # Accelerators are for those who train, who may be on this machine too.
    jax.config.update("jax_platforms", "cpu")
    worker_resources(alive_nodes(ray), options.cpus_per_worker)
    return cluster.workers


def _made(options: SweepOptions, said: SearchFile) -> "Sweep":
    """Make the search that a file describes."""
    from jaxmarl_ppo.sweeps.sweep import Sweep

    start = said.settings
    if start.env is None:
        raise ValueError(f"{options.space} names no environment; add env, or give --env")
    allowed = options.allow_import
    named = [] if options.env is None else [options.env]
    env, env_params = make_env(start.env, start.env_kwargs, [*named, *allowed], str(options.space))
    check_effect(env, allowed)
    if start.env_params is not None:
        env_params = params_from_json(start.env_params, env_params, partial=not start.whole_params)
    return Sweep(
        env,
        env_params,
        start.config,
        said.space,
        said.search,
        options.run_dir,
        progress=options.progress and not options.quiet,
        check_env=options.check_env,
    )


def _resumed(options: SweepOptions, changes: Mapping[str, Any]) -> "Sweep":
    """Make the search that a folder holds."""
    from jaxmarl_ppo.sweeps.sweep import Sweep

    if options.run_dir is not None:
        raise ValueError(f"--run-dir has no effect beside the folder {options.space}; drop it")
    assert options.space is not None
    return Sweep.resume(
        options.space,
        env=options.env,
        allow_imports=options.allow_import,
        progress=options.progress and not options.quiet,
        check_env=options.check_env,
        **changes,
    )


def _check_installed() -> None:
    try:
        importlib.import_module("jaxmarl_ppo.sweeps")
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from error


def print_end(
    result: "SweepResult", config: TrainConfig, env: MultiAgentEnv, *, prints: bool = True
) -> int:
    """Print the result of a search and possible next steps.

    Args:
        result: of the search.
        config: common to its runs.
        env: of them.
        prints: whether to print anything.

    Returns:
        The exit status: 0, or 128 and the number of the signal that ended it.
    """
    if prints:
        _print_result(result, config, env)
    return session.signal_status(result.stopped_by)


def _print_result(result: "SweepResult", config: TrainConfig, env: MultiAgentEnv) -> None:
    from jaxmarl_ppo.sweeps.page import PAGE_FILE
    from jaxmarl_ppo.sweeps.progress import ranked, trials_table
    from jaxmarl_ppo.sweeps.sweep import BEST_FILE

    over, again = ranked(result.trials, config), as_options(env.imports)
    session.show(trials_table(over))
    stopped = f", stopped: {result.stopped_by}" if result.stopped_by else ""
    session.show(f"{len(over)} of {result.num_trials} trials are over{stopped}")
    session.show(f"saved in {result.run_dir}; open {result.run_dir / PAGE_FILE} in a browser")
    if len(over) < result.num_trials:
        session.show(f"continue: jaxmarl-ppo sweep {result.run_dir}{again}")
    if result.best is not None:
        session.show(
            f"best: trial {result.best.number}, {config.objective.measure} {result.best.value:g}"
        )
        allowed = as_options(env.imports, "--allow-import")
        session.show(f"train it: jaxmarl-ppo train --config {result.run_dir / BEST_FILE}{allowed}")
        session.show(f"evaluate it: jaxmarl-ppo evaluate {result.best.run_dir}{again}")
