"""SMAX of JaxMARL at ten million steps: with and without memory, with and without a central critic.

    python benchmarks/smax_at_length.py --checkout ../JaxMARL

trains, on one core, for every map each of four networks with seed 0, the best of them with seed 1,
and JaxMARL's own IPPO with both, by its own code (see benchmarks/compare_jaxmarl.py, whose
evaluation it shares). It enters each run into benchmarks/smax-cpu.json. A run that the record holds
is not repeated. One of ours that was interrupted resumes, since its folder is under `--runs` until
it is recorded; one of JaxMARL's begins anew. `--table` prints what has been recorded as the table
of docs/learning.md.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import compare_jaxmarl
from compare_jaxmarl import PACKAGES, Team, evaluate, run_theirs, team_of
from whole_runs import commit_of, enter_run, train_in

import jaxmarl_envs
from jaxmarl_ppo import GRU, MLP, Trainer
from jaxmarl_ppo.config.jaxmarl_presets import GAMES, KINDS, KnownGame
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.machine.hardware import describe_hardware

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "smax-cpu.json"
MAPS = ("2s3z", "3s5z", "5m_vs_6m", "3s5z_vs_3s6z")
ENV_STEPS = 9_994_240  # whole iterations of both trainers
THEIRS = "jaxmarl"
NETWORKS = {
    "mlp": MLP(hidden_sizes=(128, 128), separate_critic=True),
    "gru": GRU(hidden_sizes=(128,), gru_size=128, separate_critic=True),
}
# By name: the network, and whether its critic sees the state of the battle.
VARIANTS = {
    f"{name}{'_central' if is_central else ''}": (network, is_central)
    for name, network in NETWORKS.items()
    for is_central in (False, True)
}
WHAT = (
    "SMAX battles against JaxMARL's heuristic enemy. The result is the share of 1,024 fresh "
    "battles that the last policies won, with sampled actions. cpu_seconds are one core's work "
    "while training, without compilation; None for a run that was resumed. Where other programs "
    "share the core, seconds are longer."
)
Run = Mapping[str, Any]


def battle(name: str) -> KnownGame:
    """Describe a map as a game, with the budget of this comparison."""
    known = GAMES["smax_3m"]
    return dataclasses.replace(
        known, env_kwargs={**known.env_kwargs, "scenario": name}, total_env_steps=ENV_STEPS
    )


def config_of(variant: str, game: KnownGame, seed: int) -> TrainConfig:
    """Configure a run of ours: as the presets of SMAX, but for the network and the budget."""
    network, is_central = VARIANTS[variant]
    ours = KINDS[game.kind].ours
    policy = dataclasses.replace(ours.default_policy, network=network, central_critic=is_central)
    return dataclasses.replace(
        ours,
        total_env_steps=game.total_env_steps,
        mapping=game.mapping,
        default_policy=policy,
        seed=seed,
        num_devices=1,
    )


def train_ours(game: KnownGame, config: TrainConfig, folder: Path) -> tuple[dict[str, Any], Team]:
    """Train with this trainer, or resume; returns what the run took, and its policies."""

    def begin(**options: Any) -> Trainer:
        env, params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
        return Trainer(env, params, config, folder, **options)

    trainer, result, cpu_seconds = train_in(folder, begin)
    seconds = round(result.history[-1]["wall_s"], 1)
    took = {"env_steps": result.env_steps, "seconds": seconds, "cpu_seconds": cpu_seconds}
    return took, team_of(trainer.learner, result.population, config)


def run_one(map_name: str, variant: str, seed: int, folder: Path, checkout: Path) -> dict[str, Any]:
    """Train and evaluate one run; returns what the record holds of it."""
    before = {"load_before": os.getloadavg()[0], "commit": commit_of(ROOT)}
    game = battle(map_name)
    if variant == THEIRS:
        took, team = run_theirs(game, checkout, seed)
        took["seconds"] = round(sum(took["seconds"].values()), 1)
        took["cpu_seconds"] = round(took["cpu_seconds"], 1)
        before["jaxmarl_commit"] = commit_of(checkout)
    else:
        took, team = train_ours(game, config_of(variant, game, seed), folder)
    return {
        "map": map_name,
        "variant": variant,
        "seed": seed,
        **took,
        "episodes": compare_jaxmarl.EPISODES,
        **evaluate(game, team, seed, compare_jaxmarl.EPISODES),
        **before,
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/smax_at_length.py --checkout ../JaxMARL",
        "hardware": describe_hardware(),
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
    }


def key_of(run: Run) -> tuple[int, int, int]:
    """Return a run's place in the record."""
    return MAPS.index(run["map"]), [*VARIANTS, THEIRS].index(run["variant"]), run["seed"]


def next_run(runs: Sequence[Run], map_names: Sequence[str]) -> tuple[str, str, int] | None:
    """Choose what is run next: map, variant and seed; None once nothing is left.

    First every network with seed 0, the cheapest on all maps first; then, map by map, the best
    one and JaxMARL's.
    """
    done = {(run["map"], run["variant"], run["seed"]) for run in runs}
    for variant in VARIANTS:
        for name in map_names:
            if (name, variant, 0) not in done:
                return name, variant, 0
    for name in map_names:
        own = {(run["variant"], run["seed"]): run["result"] for run in runs if run["map"] == name}
        best = max(VARIANTS, key=lambda variant, own=own: own[variant, 0])
        for variant, seed in ((best, 1), (THEIRS, 0), (THEIRS, 1)):
            if (variant, seed) not in own:
                return name, variant, seed
    return None


def make_table(runs: Sequence[Run]) -> str:
    """Make a table of the maps: the share of battles that each variant won, seed by seed."""
    names = [*VARIANTS, THEIRS]
    lines = [
        "| map | " + " | ".join(f"`{name}`" for name in VARIANTS) + " | JaxMARL's IPPO |",
        "| --- |" + " --- |" * len(names),
    ]
    for name in MAPS:
        cells = []
        for variant in names:
            own = [r for r in runs if (r["map"], r["variant"]) == (name, variant)]
            won = " / ".join(f"{run['result']:.3f}" for run in own)
            minutes = [run["cpu_seconds"] / 60 for run in own if run["cpu_seconds"] is not None]
            cost = f"; {sum(minutes) / len(minutes):.0f} min" if minutes else ""
            cells.append(f"{won}{cost}" if own else "not run yet")
        if any(run["map"] == name for run in runs):
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Keep to one core and run what is not recorded yet, or print what is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("maps", nargs="*", metavar="MAP", help=f"of {', '.join(MAPS)}")
    parser.add_argument("--checkout", type=Path, help="of JaxMARL, for its baseline")
    parser.add_argument("--runs", type=Path, default=Path("runs/smax_at_length"))
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    args = parser.parse_args()
    unknown = [name for name in args.maps if name not in MAPS]
    if unknown:
        parser.error(f"unknown map {unknown[0]!r}; valid: {', '.join(MAPS)}")
    if args.table:
        print(make_table(_recorded()))
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while (chosen := next_run(_recorded(), args.maps or MAPS)) is not None:
        map_name, variant, seed = chosen
        if variant == THEIRS and args.checkout is None:
            parser.error("--checkout is missing: what is left are runs of JaxMARL's baseline")
        folder = args.runs / f"{map_name}-{variant}-{seed}"
        run = run_one(map_name, variant, seed, folder, args.checkout)
        enter_run(RECORD, run, key_of, what=WHAT)
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{map_name}, {variant}, seed {seed}: {run['result']:.3f}", flush=True)


def _recorded() -> list[Run]:
    return json.loads(RECORD.read_text())["runs"] if RECORD.exists() else []


if __name__ == "__main__":
    main()
