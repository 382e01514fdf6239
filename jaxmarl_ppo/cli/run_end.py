"""End of a training command: the printed summary, and the report with sample episodes."""

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.pages.report import REPORT_FILE, report_runs
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.files import BEST_FILE, MEMBERS
from jaxmarl_ppo.runs.named_env import as_options
from jaxmarl_ppo.training.trainer import Trainer


def print_end(
    result: TrainResult, config: TrainConfig, env: MultiAgentEnv, prints: bool = True
) -> int:
    """Print the result of a run and possible next steps.

    Args:
        result: of the run.
        config: its configuration.
        env: its environment.
        prints: False to print nothing, as in all processes of a job except the first.

    Returns:
        The exit status: 0 where the run was completed or ended as configured, and 128 and the
        number of the signal, as a shell reports it, where a signal ended it.
    """
    status = session.signal_status(result.stopped_by)
    if not prints:
        return status
    total = config.env_steps(config.num_iterations)
    if result.interrupted:
        session.show(
            f"stopped after {result.env_steps:,} of {total:,} environment steps: "
            f"{result.stopped_by}"
        )
    else:
        seconds = result.history[-1]["wall_s"]
        each = f" of each of {config.num_seeds} seeds" if config.num_seeds > 1 else ""
        session.show(f"trained {result.env_steps:,} environment steps{each} in {seconds:.1f} s")
    for name, why in result.stopped_members.items():
        session.show(f"{name} was stopped: {why}")
    if result.best_member is not None:
        session.show(f"the best member is {result.best_member}")
    session.show(f"saved in {result.run_dir}")
    best = result.run_dir / BEST_FILE
    if result.best_member is not None and best.is_file():
        allowed = as_options(env.imports, "--allow-import")
        session.show(
            f"train with the numbers that led to it: jaxmarl-ppo train --config {best}{allowed}"
        )
    again = as_options(env.imports)
    if result.interrupted and config.checkpoints.keep:
        session.show(f"continue: jaxmarl-ppo resume {result.run_dir}{again}")
    shown = result.members[0].run_dir if result.members else result.run_dir
    if result.best_member is not None:
        shown = result.run_dir / MEMBERS / result.best_member
    session.show(f"watch it: jaxmarl-ppo watch {shown}{again}")
    session.show(f"next: jaxmarl-ppo evaluate {result.run_dir}{again}")
    return status


def show_plays(
    trainer: Trainer, result: TrainResult, plays: bool | None, prints: bool = True
) -> None:
    """Add an evaluation and episodes to the report of a run, unless a signal has ended it.

    An existing page stays until the new one is complete, so that whoever has no time for it can
    leave.

    Args:
        trainer: of the run.
        result: of the run.
        plays: whether to do so; None for where the environment is compiled, and therefore fast.
        prints: whether to print where the report is.
    """
    wanted = not trainer.env.steps_on_host if plays is None else plays
    if wanted and not session.signal_status(result.stopped_by):
        page = report_runs([result.run_dir], env=trainer.env).save(result.run_dir / REPORT_FILE)
        if prints:
            session.show(f"results, with episodes to watch: {page}")
