"""Record the episodes that the documents show: some of each scenario, played by trained policies.

    python scripts/make_replays.py runs/tic_tac_toe runs/crypto ... --out docs/replays

Every run gives a file of data named after its environment, which `make docs` makes a page of. To be
made anew when these data or a picture change; which runs they are is told in `docs/gallery.md`.
"""

import argparse
import gzip
import json
from pathlib import Path

from jaxmarl_ppo import watch_run

EPISODES = 4


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dirs", type=Path, nargs="+", metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for run_dir in options.run_dirs:
        watched = watch_run(run_dir, EPISODES)
        path = options.out / f"{watched.env.name}.json.gz"
        content = json.dumps(watched.data(), separators=(",", ":"), allow_nan=False).encode()
        path.write_bytes(gzip.compress(content, 9, mtime=0))
        print(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")


if __name__ == "__main__":
    main()
