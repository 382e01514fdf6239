"""The `play` command: a page on which you play against a run's policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmarl_ppo.cli import session

if TYPE_CHECKING:
    from jaxmarl_ppo.pages.game_table import Table


@dataclass(frozen=True)
class PlayOptions(session.RunOptions):
    """Open a page on this machine on which you play against a run's policies.

    Attributes:
        opponent: player of the sides that no person controls: a policy or a snapshot of the run,
            `random`, or a scripted policy of the environment; None for the policies of training.
        greedy: play each policy's most likely action, instead of sampling.
        seed: seed of the games.
        port: port of the server on this machine; 0 for any that is free.
        export: file for a page that needs no server, instead of serving one.
    """

    opponent: str | None = None
    greedy: bool = False
    seed: int = 0
    port: int = 0
    export: Path | None = None


def main(args: Sequence[str], prog: str = "jaxmarl-ppo play") -> int:
    """Serve a page until interrupted, or write one.

    Raises:
        ValueError: If options are inconsistent, or a run cannot be played.
    """
    options = session.parse(PlayOptions, args, prog)
    if options.export is not None and options.port:
        raise ValueError("--port has no effect with --export; drop one of them")
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, got {options.port}")
    run_dir = options.open_run(prog)
    from jaxmarl_ppo.config.checks import check_seed
    from jaxmarl_ppo.pages.play import table_of_run
    from jaxmarl_ppo.pages.play_server import serve

    make_table = table_of_run(
        run_dir,
        seed=check_seed("seed", options.seed),
        greedy=options.greedy,
        opponent=options.opponent,
        env=options.env,
        allow_imports=options.allow_import,
    )
    if options.export is not None:
        return _export(make_table(), str(options.run_dir), options.export)

    def tell(address: str) -> None:
        session.show(f"play at {address}\nCtrl-C ends it.")

    serve(make_table, str(options.run_dir), options.port, tell)
    return 0


def _export(table: "Table", title: str, path: Path) -> int:
    from jaxmarl_ppo.pages.play_page import play_page

    session.print_page(play_page(table, f"{table.env.name}: {title}").save(path))
    return 0
