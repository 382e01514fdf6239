"""The `watch` command: a page that plays a run's episodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxmarl_ppo.cli import session


@dataclass(frozen=True)
class WatchOptions(session.RunOptions):
    """Write a page that plays a run's episodes step by step.

    Attributes:
        episodes: number of episodes on the page, the most interesting of eight times as many.
        seed: seed of the episodes.
        greedy: play each policy's most likely action, instead of sampling.
        opponent: player that controls all agents but one, in turn: a policy or a snapshot of the
            run, `random`, or a scripted policy of the environment; None for the policies of
            training, with `random` in half of the episodes of a turn-based zero-sum game of two
            trained players.
        out: file of the page; None for `watch.html` in the run's folder.
        gif: file for an animation of the first episode.
        svg: new folder for pictures of the first episode.
    """

    episodes: int = 4
    seed: int = 0
    greedy: bool = False
    opponent: str | None = None
    out: Path | None = None
    gif: Path | None = None
    svg: Path | None = None


def main(args: Sequence[str], prog: str = "jaxmarl-ppo watch") -> int:
    """Write a page and print its path.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be read.
    """
    options = session.parse(WatchOptions, args, prog)
    run_dir = options.open_run(prog)
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
