"""The `evaluate` command: evaluation of a run's policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.cli import session


@dataclass(frozen=True)
class EvaluateOptions(session.RunOptions):
    """Evaluate a run on fresh episodes, or each seed of a group.

    Attributes:
        run_dir: the run's folder, or that of a group of seeds.
        episodes: number of episodes; None for as many as the environment needs.
        seed: seed of the episodes.
        greedy: play each policy's most likely action, instead of sampling.
        exact: also compute exact measures that take long: of `phantom_tic_tac_toe`, exploitability
            and value.
        cross_play: also evaluate cross-play: all policies, snapshots, random play and the
            environment's scripted policies play against each other. The matrix is drawn into the
            run's folder.
        row_agents: agents of one side, with `--cross-play`; None for the first agent.
        record: new `.npz` file for the episodes, step by step: observations, actions and rewards.
        json: print one JSON object instead of a table.
    """

    episodes: int | None = None
    seed: int = 0
    greedy: bool = False
    exact: bool = False
    cross_play: bool = False
    row_agents: tuple[str, ...] | None = None
    record: Path | None = None
    json: bool = False


def main(args: Sequence[str], prog: str = "jaxmarl-ppo evaluate") -> int:
    """Evaluate a run and print a report.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(EvaluateOptions, args, prog)
    run_dir = options.open_run(prog)
    from jaxmarl_ppo.config.as_json import dump_json
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.evaluation import (
        evaluate_group,
        evaluate_run,
        format_group_report,
        format_report,
    )
    from jaxmarl_ppo.runs.run_folder import members_of

    common: dict[str, Any] = {
        "episodes": options.episodes,
        "seed": check_seed("seed", options.seed),
        "greedy": options.greedy,
        "env": options.env,
        "allow_imports": options.allow_import,
        "exact": options.exact,
    }
    group = Path(str(options.run_dir))
    if members_of(group):
        for name in ("cross_play", "row_agents", "record"):
            if getattr(options, name):
                raise ValueError(
                    f"{session.flag(name)} has no effect on a group of seeds; evaluate one of its "
                    f"members, such as {group}/members/seed-0"
                )
        checkpoint = None if options.checkpoint is None else run_dir.name
        report = evaluate_group(group, checkpoint=checkpoint, **common)
        text = format_group_report(report)
    else:
        report = evaluate_run(
            run_dir,
            matrix=options.cross_play,
            row_agents=options.row_agents,
            record=options.record,
            **common,
        )
        text = format_report(report, session.terminal_width())
    if options.json:
        print(dump_json(report))
        return 0
    session.show(text)
    if options.record is not None:
        session.show(f"recorded in {options.record}")
    return 0
