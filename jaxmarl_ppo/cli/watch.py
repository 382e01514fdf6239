"""The `watch` command: a page that plays a run's episodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmarl_ppo.cli import session


@dataclass(frozen=True)
class WatchOptions:
    """Write a page that plays a run's episodes step by step.

    Attributes:
        run_dir: the run's folder.
        checkpoint: checkpoint to use: `newest`, `best` by the run's objective, or the number of an
            iteration; None for what was saved at the end of the run.
        episodes: number of episodes on the page, the most interesting of eight times as many.
        seed: seed of the episodes.
        greedy: play each policy's most likely action, instead of sampling.
        opponent: player that controls all agents but one, in turn: a policy or a snapshot of the
            run, `random`, or a scripted policy of the environment; None for the policies of
            training, with `random` in half of the episodes of a turn-based zero-sum game of two
            trained players.
        env: name of the run's environment, if it is code of your own, as in training:
            `package.module:Class` or `path/to/file.py:Class`; for a run that was started from
            Python, the name of what makes the environment.
        allow_import: further code of your own that the run's environment imports by name; may be
            given more than once.
        out: file of the page; None for `watch.html` in the run's folder.
        gif: file for an animation of the first episode.
        svg: new folder for pictures of the first episode.
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
    session.print_page(watched.page().save(out))
    return 0
