"""Attack runs in every way that is known, and count what was lost.

    python scripts/attacks.py --out attacks.json
    python scripts/attacks.py --kinds odd_paths strangers_records

Kills at random moments, full disks, links, odd paths, damaged and foreign checkpoints, records of
strangers, and environments that hang, end, fork and print. An attempt is lost where something that
was saved is gone or different, code ran that nobody named, a file outside the run's folder was
written, or a command hung beyond its limit or ended with a traceback. Exit status 1 says that one
was lost.
"""

import argparse
import functools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import jax
from attack_kinds import damage, disks, kills, paths, python_envs, strangers
from attack_kinds.attempts import Attempt

from jaxmarl_ppo import use_cpu_cores


def kinds(num_kills: int) -> dict[str, Callable[[Path], Iterator[Attempt]]]:
    """List the kinds of attacks by name, those in this process first."""
    killing = {"killed_runs": kills.killed_runs, "killed_searches": kills.killed_searches}
    killing["killed_processes"] = kills.killed_processes
    return {
        "strangers_records": strangers.strangers_records,
        "odd_paths": paths.odd_paths,
        "damaged_checkpoints": damage.damaged_checkpoints,
        "foreign_checkpoints": damage.foreign_checkpoints,
        "newer_formats": damage.newer_formats,
        "damaged_files": damage.damaged_files,
        "links": disks.links_out_of_the_folder,
        "full_disks": disks.full_disks,
        "moved_folders": disks.moved_folders,
        "bad_environments": python_envs.bad_environments,
        "signals_while_hung": python_envs.signals_while_hung,
        "killed_launchers": kills.killed_launchers,
        **{name: functools.partial(kill, kills=num_kills) for name, kill in killing.items()},
    }


def main() -> int:
    """Make all attempts, print those that were lost, and a line for each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=list(kinds(0)), default=list(kinds(0)))
    parser.add_argument("--kills", type=int, default=5, help="of every run, search and job")
    parser.add_argument("--verbose", action="store_true", help="print every attempt")
    parser.add_argument("--out", type=Path, help="a file for the results, as JSON")
    options = parser.parse_args()
    use_cpu_cores(1)
    found: dict[str, list[Attempt]] = {}
    with tempfile.TemporaryDirectory() as cache:
        # All runs of a kind compile the same, again and again.
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        for name in options.kinds:
            attack = kinds(options.kills)[name]
            with tempfile.TemporaryDirectory() as place:
                found[name] = []
                for attempt in attack(Path(place)):
                    found[name].append(attempt)
                    if attempt.wrong or options.verbose:
                        print(f"{attempt.kind}: {attempt.name}: {attempt.wrong}", flush=True)
                        print(f"    {attempt.said}", flush=True)
            # Every compiled program holds mappings of memory, of which a process has some 65,000.
            jax.clear_caches()
            lost = sum(bool(attempt.wrong) for attempt in found[name])
            total = len(found[name])
            print(f"{name}: {total} attempts, {total - lost} survived, {lost} lost", flush=True)
    if options.out:
        told = {name: [asdict(a) for a in attempts] for name, attempts in found.items()}
        options.out.write_text(json.dumps(told, indent=2) + "\n")
    return int(any(attempt.wrong for attempts in found.values() for attempt in attempts))


if __name__ == "__main__":
    sys.exit(main())
