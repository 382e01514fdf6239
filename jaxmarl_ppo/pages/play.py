"""Tables for playing against the policies of a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.opponents import seat_opponent
from jaxmarl_ppo.pages.game_table import Table
from jaxmarl_ppo.runs.run_folder import load_run


def table_of_run(
    run_dir: str | Path,
    seed: int = 0,
    greedy: bool = False,
    opponent: str | None = None,
    env: MultiAgentEnv | str | None = None,
    allow_imports: Sequence[str] = (),
) -> Callable[[], Table]:
    """Load a run; return a function that makes tables for play against its policies.

    Args:
        run_dir: the run's folder, or that of one of its checkpoints.
        seed: of all games at a table.
        greedy: policies take the most likely actions instead of samples.
        opponent: player of the slots that no person holds, where it can: a policy or snapshot of
            the run, `random`, or a scripted policy of the environment; None for the players of
            training.
        env: as `load_run` needs it.
        allow_imports: as `load_run` needs it.

    Raises:
        ValueError: If there is no such run or opponent.
    """
    run = load_run(run_dir, env=env, allow_imports=allow_imports)
    learner, population = run.learner, run.population
    players = None
    if opponent is not None:
        learner = with_baselines(learner)
        players = seat_opponent(learner, population, opponent)
    return lambda: Table(learner, population, players, greedy, seed)
