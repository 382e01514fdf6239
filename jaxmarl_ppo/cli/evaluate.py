"""`jaxmarl-ppo evaluate`: how good what a run has learnt is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmarl_ppo.cli import session


@dataclass(frozen=True)
class EvaluateOptions:
    """Evaluate what a run has learnt, on fresh episodes; of a group of seeds, what each has.

    Attributes:
        run_dir: the run's folder, or that of a group of seeds.
        checkpoint: of the run, `newest`, `best` by its objective, or the number of an iteration;
            None for what was saved at its end.
        episodes: how many; None for as many as the environment needs.
        seed: of the episodes.
        greedy: take each policy's most probable action instead of drawing one.
        exact: also compute exact measures that take long: of `phantom_tic_tac_toe`, exploitability
            and value.
        cross_play: also play all policies, snapshots, random play and the environment's scripted
            policies against each other; draws the matrix into the run's folder.
        row_agents: with `--cross-play`, the agents of one side; None for the first agent.
        env: where the run's environment is code of your own, its name once more, as it was trained:
            `package.module:Class` or `path/to/file.py:Class`; of a
            run that Python code began, the name of what makes it.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        record: a new `.npz` file for the episodes, step by step: what agents saw, did and earned.
        json: print one JSON object instead of a table.
    """

    run_dir: session.RunDir = None
    checkpoint: str | None = None
    episodes: int | None = None
    seed: int = 0
    greedy: bool = False
    exact: bool = False
    cross_play: bool = False
    row_agents: tuple[str, ...] | None = None
    env: str | None = None
    allow_import: session.AllowImport = ()
    record: Path | None = None
    json: bool = False


def main(args: Sequence[str], prog: str = "jaxmarl-ppo evaluate") -> int:
    """Evaluate a run and print a report.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(EvaluateOptions, args, prog)
    run_dir = session.existing_run(options.run_dir, prog, options.checkpoint)
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.evaluation import evaluate_run, format_report
    from jaxmarl_ppo.runs.run_folder import members_of

    if members_of(Path(str(options.run_dir))):
        return _evaluate_group(options, run_dir)
    report = evaluate_run(
        run_dir,
        episodes=options.episodes,
        seed=check_seed("seed", options.seed),
        greedy=options.greedy,
        matrix=options.cross_play,
        row_agents=options.row_agents,
        env=options.env,
        record=options.record,
        allow_imports=options.allow_import,
        exact=options.exact,
    )
    if options.json:
        from jaxmarl_ppo.config.as_json import dump_json

        print(dump_json(report))
    else:
        session.show(format_report(report, session.terminal_width()))
        if options.record is not None:
            session.show(f"recorded in {options.record}")
    return 0


def _evaluate_group(options: EvaluateOptions, folder: Path) -> int:
    """Evaluate all members of a group; `folder` is the group's, or that of its checkpoint."""
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.evaluation import evaluate_group, format_group_report

    for name in ("cross_play", "row_agents", "record"):
        if getattr(options, name):
            raise ValueError(
                f"--{name.replace('_', '-')} has no effect on a group of seeds; evaluate one of "
                f"its members, such as {options.run_dir}/members/seed-0"
            )
    report = evaluate_group(
        Path(str(options.run_dir)),
        episodes=options.episodes,
        seed=check_seed("seed", options.seed),
        greedy=options.greedy,
        env=options.env,
        checkpoint=None if options.checkpoint is None else folder.name,
        allow_imports=options.allow_import,
        exact=options.exact,
    )
    if options.json:
        from jaxmarl_ppo.config.as_json import dump_json

        print(dump_json(report))
    else:
        session.show(format_group_report(report))
    return 0
