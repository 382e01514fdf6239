"""`jaxmarl-ppo resume`: go on with a run from its newest checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.processes import (
    JobOptions,
    launch,
    launch_on_ray,
    prepare,
    without_ray,
)


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with a run from its newest checkpoint, as if it had never stopped.

    Attributes:
        run_dir: the run's folder, in which it also goes on.
        env: of one's own, as it was named for `train`; None for a registered environment.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        total_env_steps: another length of the whole run, such as 5e6; None for its own. Schedules
            over the whole run are stretched to it.
        num_devices: another number of devices, which is another random draw from here on; None for
            as many as it had.
        num_envs: what it had; another number needs a run of its own, see `train --load`.
        max_minutes: minutes after which it stops again; None for what it was configured with.
        until: end once this holds, such as `"all.return_mean > 20"`, instead of what it was
            configured with; may be given more than once.
        log: as for `train`; a service that logged the run before goes on where it was.
        progress: show progress.
        keep_cores_awake: as for `train`.
        check_env: as for `train`.
        job: as for `train`; with another number of processes, random numbers are others from here
            on unless the number of devices stays the same.
        plays: as for `train`.
    """

    run_dir: session.RunDir = None
    env: str | None = None
    allow_import: session.AllowImport = ()
    total_env_steps: int | None = None
    num_devices: int | None = None
    num_envs: int | None = None
    max_minutes: float | None = None
    until: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    log: Annotated[tuple[tuple[str], ...], tyro.conf.UseAppendAction] = ()
    progress: bool = True
    keep_cores_awake: bool = False
    check_env: bool = True
    plays: session.Switch = None
    job: Annotated[JobOptions, tyro.conf.OmitArgPrefixes] = field(default_factory=JobOptions)


def main(args: Sequence[str], prog: str = "jaxmarl-ppo resume") -> int:
    """Go on with a run, and say what it came to.

    Raises:
        ValueError: options that do not fit the run, or a run that cannot go on.
    """
    options = session.parse(ResumeOptions, args, prog)
    run_dir = session.existing_run(options.run_dir, prog)
    if options.job.ray is not None:
        rest = without_ray(args)
        return launch_on_ray(options.job, "resume", rest, run_dir, rest)
    if options.job.processes is not None:
        return launch(options.job, "resume", args)
    prepare(options.job, options.num_devices)
    session.find_modules_here(options.env, *session.names_of(options.allow_import))
    session.enable_compilation_cache()
    from jaxmarl_ppo.cli.run_end import show_plays, tell_end
    from jaxmarl_ppo.devices.joining import current
    from jaxmarl_ppo.runs.loggers import make_loggers
    from jaxmarl_ppo.training.resume import check_num_envs
    from jaxmarl_ppo.training.trainer import Trainer

    if options.num_envs is not None:
        check_num_envs(run_dir, options.num_envs)
    trainer = Trainer.resume(
        run_dir,
        env=options.env,
        allow_imports=session.names_of(options.allow_import),
        total_env_steps=options.total_env_steps,
        num_devices=options.num_devices,
        max_minutes=options.max_minutes,
        until=options.until or None,
        callbacks=make_loggers([name for (name,) in options.log]),
        progress=options.progress,
        keep_cores_awake=options.keep_cores_awake,
        check_env=options.check_env,
    )
    result = trainer.train()
    is_first = current().is_first
    status = tell_end(result, trainer.config, trainer.env, tells=is_first)
    if is_first:
        show_plays(trainer, result, options.plays)
    return status
