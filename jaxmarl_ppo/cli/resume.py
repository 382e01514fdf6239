"""`jaxmarl-ppo resume`: resume a run from its newest checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import options_of
from jaxmarl_ppo.cli.processes import (
    JobOptions,
    launch,
    launch_on_ray,
    prepare,
    without_ray,
)
from jaxmarl_ppo.cli.run_options import find_option, run_options
from jaxmarl_ppo.config.paths import join_path
from jaxmarl_ppo.config.schema import find_place

# Of its own options, what help shows first.
_SHOWN = ("env", "allow_import", "log", "progress", "quiet", "plays")


@dataclass(frozen=True)
class ResumeOptions(session.TrainingOptions):
    """Resume a run from its newest checkpoint, as if it had never stopped.

    A different length, `--total-env-steps`, stretches schedules that span the whole run. With a
    different number of devices, random numbers differ from then on.

    Attributes:
        run_dir: the run's folder, in which the run continues.
        env: name of the environment as it was given to `train`, if it is code of your own; None for
            a registered environment.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        log: `wandb` or `mlflow`, as for `train`; a service that has logged the run continues its
            entry.
        job: several processes that train the run together. With a different number of devices,
            random numbers differ from then on.
        without_callbacks: resume without the callbacks that changed parameters of the run from
            Python; these keep their newest values.
    """

    run_dir: session.RunDir = None
    env: str | None = None
    without_callbacks: bool = False
    job: JobOptions = field(default_factory=JobOptions)


def main(args: Sequence[str], prog: str = "jaxmarl-ppo resume") -> int:
    """Resume a run, and print its result.

    Raises:
        ValueError: If options do not fit the run, or the run cannot be resumed.
    """
    of_run = run_options()
    if session.asks_for_help(args):
        may = [option for option in of_run if find_place(option.key).metadata.resumable]
        own = options_of(ResumeOptions)
        first = [option for option in own if option.key in _SHOWN]
        session.print_help(ResumeOptions, prog, args, [*may, *first], [*may, *own])
    options, given = session.parse_with(ResumeOptions, args, prog, of_run, find_option(of_run))
    changes = {join_path(path): value for path, value in given.items()}
    run_dir = session.existing_run(options.run_dir, prog)
    if options.job.ray is not None:
        rest = without_ray(args)
        return launch_on_ray(options.job, "resume", rest, run_dir, rest)
    if options.job.processes is not None:
        return launch(options.job, "resume", args)
    prepare(options.job, changes.get("num_devices"))
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    from jaxmarl_ppo.cli.run_end import print_end, show_plays
    from jaxmarl_ppo.devices.joining import current
    from jaxmarl_ppo.runs.loggers import make_loggers
    from jaxmarl_ppo.training.trainer import Trainer

    trainer = Trainer.resume(
        run_dir,
        env=options.env,
        allow_imports=options.allow_import,
        changes=changes,
        without_callbacks=options.without_callbacks,
        callbacks=make_loggers(options.log),
        progress=options.progress and not options.quiet,
        keep_cores_awake=options.keep_cores_awake,
        check_env=options.check_env,
    )
    result = trainer.train()
    is_first = current().is_first
    prints = is_first and not options.quiet
    status = print_end(result, trainer.config, trainer.env, prints=prints)
    if is_first:
        show_plays(trainer, result, options.plays, prints=prints)
    return status
