"""`jaxmarl-ppo export`: a policy of a run in one file that acts with JAX alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jaxmarl_ppo.cli import session

Platform = Literal["cpu", "cuda", "rocm", "tpu"]


@dataclass(frozen=True)
class ExportOptions:
    """Write a policy into one file that acts with JAX alone; it is checked against the original.

    Attributes:
        run_dir: the run's folder.
        checkpoint: of the run, `newest`, `best` by its objective, or the number of an iteration;
            None for what was saved at its end.
        policy: name of the policy, such as `bob` or `past@3`; None where there is only one, or only
            one that plays `agent`.
        agent: the agent that it is to play; None for all that it can play.
        env: where the run's environment is code of your own, its name once more, as it was trained:
            `package.module:Class` or `path/to/file.py:Class`; of a
            run that Python code began, the name of what makes it.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        out: a new file; None for `<policy>.jaxexport`.
        platforms: that it is to run on.
    """

    run_dir: session.RunDir = None
    checkpoint: str | None = None
    policy: str | None = None
    agent: str | None = None
    env: str | None = None
    allow_import: session.AllowImport = ()
    out: Path | None = None
    platforms: tuple[Platform, ...] = ("cpu", "cuda", "tpu")


def main(args: Sequence[str], prog: str = "jaxmarl-ppo export") -> int:
    """Export a policy and print its path.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(ExportOptions, args, prog)
    run_dir = session.existing_run(options.run_dir, prog, options.checkpoint)
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    from jaxmarl_ppo.deploy.export import check_new_file
    from jaxmarl_ppo.deploy.policy import Policy
    from jaxmarl_ppo.machine.files import path_part

    if options.out is not None:
        check_new_file(options.out)  # before anything that takes time
    policy = Policy.load(
        run_dir,
        options.policy,
        options.agent,
        env=options.env,
        allow_imports=options.allow_import,
    )
    name = policy.signature.policy
    path = Path(f"{path_part(name)}.jaxexport") if options.out is None else options.out
    policy.export(path, options.platforms)
    session.show(
        f"policy {name}, which plays {', '.join(policy.agents)}; checked: it acts as before"
    )
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    session.show(f"saved in {path} ({size}, for {', '.join(options.platforms)})")
    session.show(f"next, in Python: jaxmarl_ppo.load_exported({str(path)!r})")
    return 0
