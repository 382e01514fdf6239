"""`jaxmarl-ppo watch`: a page on which a run's policies are watched."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmarl_ppo.cli import session


@dataclass(frozen=True)
class WatchOptions:
    """Write a page on which what a run has learnt is watched, step by step.

    Attributes:
        run_dir: the run's folder.
        checkpoint: of the run, `newest`, `best` by its objective, or the number of an iteration;
            None for what was saved at its end.
        episodes: how many are on the page, the most interesting of eight times as many.
        seed: of the episodes.
        greedy: take each policy's most probable action instead of drawing one.
        opponent: who plays all agents but one, in turn: a policy or a snapshot of the run,
            `random`, or a scripted policy of the environment; None for whoever plays in training,
            with `random` in half of the episodes of a zero-sum game of turns for two trained
            players.
        env: where the run's environment is code of your own, its name once more, as it was trained:
            `package.module:Class` or `path/to/file.py:Class`; of a
            run that Python code began, the name of what makes it.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        out: the file; None for `watch.html` in the run's folder.
        gif: also write the first of the episodes as an animation into this file.
        svg: also write its pictures into this new folder.
    """

    run_dir: session.RunDir = None
    checkpoint: str | None = None
    episodes: int = 4
    seed: int = 0
    greedy: bool = False
    opponent: str | None = None
    env: str | None = None
    allow_import: session.AllowImport = ()
    out: Path | None = None
    gif: Path | None = None
    svg: Path | None = None


def main(args: Sequence[str], prog: str = "jaxmarl-ppo watch") -> int:
    """Write a page and print its path.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(WatchOptions, args, prog)
    run_dir = session.existing_run(options.run_dir, prog, options.checkpoint)
    session.find_modules_here(options.env, *options.allow_import)
    session.enable_compilation_cache()
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.pages.pictures import check_can_animate, write_gif, write_svgs
    from jaxmarl_ppo.pages.watch import WATCH_FILE, watch_run

    assert options.run_dir is not None
    if options.gif is not None:
        check_can_animate()
    watched = watch_run(
        run_dir,
        episodes=options.episodes,
        seed=check_seed("seed", options.seed),
        greedy=options.greedy,
        opponent=options.opponent,
        env=options.env,
        allow_imports=options.allow_import,
    )
    if options.svg is not None:
        write_svgs(options.svg, watched.replays[0])
        session.show(f"saved in {options.svg}: {len(watched.replays[0].drawings)} pictures")
    if options.gif is not None:
        write_gif(options.gif, watched.replays[0])
        session.show(f"saved in {options.gif}")
    # Beside a run's other files, whichever checkpoint it is of.
    out = options.run_dir / WATCH_FILE if options.out is None else options.out
    path = watched.page().save(out)
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    session.show(f"saved in {path} ({size}); open it in a browser")
    return 0
