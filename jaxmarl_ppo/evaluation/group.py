"""Evaluation of all runs of a group: means over seeds, with their uncertainty."""

from collections.abc import Sequence
from pathlib import Path

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies
from jaxmarl_ppo.evaluation.scenarios.base import Report
from jaxmarl_ppo.evaluation.seeds import IQM, SPREAD, summarise_seeds
from jaxmarl_ppo.runs.files import CHECKPOINTS
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.runs.run_folder import load_run, members_of

# Entries of a report that describe the evaluation, not the policies' performance.
_NOT_RESULTS = ("seed", "episodes", "unfinished")


def evaluate_group(
    group_dir: str | Path,
    episodes: int | None = None,
    seed: int = 0,
    greedy: bool = False,
    env: MultiAgentEnv | str | None = None,
    checkpoint: str | None = None,
    allow_imports: Sequence[str] = (),
    exact: bool = False,
) -> Report:
    """Evaluate every run of a group, and aggregate the reports.

    Args:
        group_dir: the folder of the group.
        episodes: of each run; None for the environment's default.
        seed: of the episodes, the same for all runs.
        greedy: take each policy's most probable action instead of drawing one.
        env: as `load_run` needs it.
        checkpoint: the name of one of the group's checkpoints; None for the newest policies.
        allow_imports: as `load_run` needs it.
        exact: as in `evaluate_policies`.

    Returns:
        `{"env", "episodes", "acting", "seed", "numbers": {path: {"mean", "iqm", "ci95_low",
        "ci95_high"}}, "members": {name: report}}`: the numbers of the reports of
        `evaluate_policies` by their paths, such as `agents/x/return_mean`, over seeds; the interval
        is that of the interquartile mean. The members' reports are unchanged.

    Raises:
        ValueError: If there is no group, one of its runs cannot be read, or `exact` has no effect.
    """
    members = members_of(Path(group_dir))
    if not members:
        raise ValueError(f"{show(str(group_dir))} holds no group of runs")
    reports: dict[str, Report] = {}
    learner = None
    for folder in members:
        where = folder if checkpoint is None else folder / CHECKPOINTS / checkpoint
        if not where.is_dir():
            continue
        run = load_run(where, env=env, allow_imports=allow_imports)
        # All share one program, which is compiled once.
        learner = run.learner if learner is None else learner
        reports[folder.name] = evaluate_policies(
            learner, run.population, episodes, seed, greedy, exact=exact
        )
    first = next(iter(reports.values()))
    return {
        "env": first["env"],
        "episodes": first["episodes"],
        "acting": first["acting"],
        "seed": first["seed"],
        "numbers": _numbers(list(reports.values())),
        "members": reports,
    }


def _numbers(reports: Sequence[Report]) -> dict[str, dict[str, float | None]]:
    """Join the numbers of several reports, by their paths."""
    results = [{k: v for k, v in own.items() if k not in _NOT_RESULTS} for own in reports]
    joined = summarise_seeds(results, has_counts=False)
    columns = {"mean": dict(scalars(joined))}
    columns |= {name: dict(scalars(joined.get(name, {}))) for name in SPREAD}
    paths = columns[IQM]
    return {path: {name: column.get(path) for name, column in columns.items()} for path in paths}
