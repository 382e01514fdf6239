"""The pages of episodes that the documents show: one of each scenario, played by trained policies.

    python scripts/make_replays.py runs/tic_tac_toe runs/crypto ... --out docs/replays

Every run gives a page named after its environment. To be made anew whenever the page of `watch`
or a picture has changed; what the runs are is told in `docs/gallery.md`.
"""

import argparse
from pathlib import Path

from jaxmarl_ppo import watch_run

EPISODES = 4


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pages")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for run_dir in options.run_dirs:
        watched = watch_run(run_dir, EPISODES)
        path = watched.page().save(options.out / f"{watched.env.name}.html")
        print(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")


if __name__ == "__main__":
    main()
