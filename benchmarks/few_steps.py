"""Environment steps until a target is reached: the preset `slow_env`, and what each part brings.

    python benchmarks/few_steps.py --json benchmarks/few-steps-cpu.json
    python benchmarks/few_steps.py --table      # the table of docs/learning.md

Every row trains with the preset, changed in what the row says, until the mean return of the latest
episodes reaches the workload's target. The games are compiled, as the number of steps that learning
takes does not depend on who steps them: two are workloads of `scripts/compare_ray.py`, with its
networks and mappings, and one is Gymnax's CartPole.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import Linear, PPOConfig, TrainConfig
from jaxmarl_ppo.config.presets import SLOW_ENV, preset
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.summary import summarise
from jaxmarl_ppo.machine.hardware import describe_hardware

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from ray_baseline.our_side import make_config, make_run  # pyright: ignore[reportMissingImports]
from ray_baseline.scenarios import (  # pyright: ignore[reportMissingImports]
    SCENARIOS,
    Measure,
    Scenario,
)

RECORD = Path(__file__).with_name("few-steps-cpu.json")
MOST_STEPS = 400_000
_USUAL = PPOConfig()
_DEFAULTS = TrainConfig()


class Workload(NamedTuple):
    """What is trained, and until when."""

    env: MultiAgentEnv
    env_params: Any
    config: TrainConfig
    measure: Measure
    smoothing: int  # the fewest episodes that a mean is taken over


def of_scenario(scenario: Scenario) -> Workload:
    """Make a workload of `compare_ray.py`."""
    env, env_params, _ = make_run(scenario, 0)
    config = make_config(scenario, 0, "slow_env")
    return Workload(env, env_params, config, scenario.measures[0], scenario.smoothing)


def cartpole() -> Workload:
    """Make CartPole-v1 of one agent, whose return is at most 500."""
    env, env_params = jaxmarl_envs.make("gymnax", env_id="CartPole-v1")
    measure = Measure("return", {env.agents[0]: 1.0}, target=450.0)
    return Workload(env, env_params, preset("gymnax", SLOW_ENV).config, measure, smoothing=20)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "tic_tac_toe": lambda: of_scenario(SCENARIOS["tic_tac_toe"]),
    "shuttle_grid": lambda: of_scenario(SCENARIOS["shuttle_grid"]),
    "cartpole": cartpole,
}
# By row, changes of the configuration; `ppo.` and `policy.` are those of all policies.
ROWS: dict[str, dict[str, Any]] = {
    "the preset": {},
    "256 environments of 128 steps": {
        "num_envs": _DEFAULTS.num_envs,
        "num_steps": _DEFAULTS.num_steps,
    },
    "64 environments of 64 steps": {"num_envs": 64},
    "8 environments of 64 steps": {"num_envs": 8},
    "16 environments of 128 steps": {"num_steps": 128},
    "4 epochs": {"ppo.num_epochs": _USUAL.num_epochs},
    "16 epochs": {"ppo.num_epochs": 16},
    "4 minibatches": {"ppo.num_minibatches": _USUAL.num_minibatches},
    "16 minibatches": {"ppo.num_minibatches": 16},
    "learning rate 5e-4 to 0": {"ppo.learning_rate": Linear(5e-4, 0.0)},
    "learning rate 2e-3 to 0": {"ppo.learning_rate": Linear(2e-3, 0.0)},
    "learning rate 1e-3 throughout": {"ppo.learning_rate": 1e-3},
    "observations as they are": {"policy.normalise_observations": False},
    "rewards as they are": {"policy.normalise_rewards": False},
    "early stop at a KL of .02": {"ppo.kl_control": "early_stop", "ppo.target_kl": 0.02},
    "no staggered starts": {"stagger_starts": False},
    "none of it: TrainConfig()": {
        "num_envs": _DEFAULTS.num_envs,
        "num_steps": _DEFAULTS.num_steps,
        "policy.normalise_observations": False,
        "policy.normalise_rewards": False,
        **{
            f"ppo.{name}": getattr(_USUAL, name)
            for name in ("num_epochs", "num_minibatches", "learning_rate")
        },
    },
}


def changed(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """Return a configuration with the changes of a row."""

    def part(prefix: str) -> dict[str, Any]:
        found = {n.removeprefix(prefix): v for n, v in changes.items() if n.startswith(prefix)}
        return {name: value for name, value in found.items() if "." not in name}

    return dataclasses.replace(
        config,
        **part(""),
        default_ppo=dataclasses.replace(config.default_ppo, **part("ppo.")),
        default_policy=dataclasses.replace(config.default_policy, **part("policy.")),
    )


def steps_to_target(workload: Workload, changes: Mapping[str, Any], seed: int) -> int | None:
    """Train until the target is reached; None if it is not within `MOST_STEPS`."""
    config = changed(workload.config, changes)
    config = dataclasses.replace(config, seed=seed, total_env_steps=MOST_STEPS)
    learner = make_learner(workload.env, workload.env_params, config)
    compiled = CompiledRuns(learner)
    compiled.compile()
    state, empty = compiled.init([jax.random.key(seed)])
    recent: list[dict[str, tuple[int, float]]] = []  # by iteration: episodes and mean return
    env_steps = 0
    while env_steps < MOST_STEPS:
        state, metrics = compiled.train(state, np.array([1]), empty)
        found = summarise(learner, metrics)
        env_steps += found["env_steps"]
        groups = {**found["policies"], **found["agents"]}
        ended = {n: groups[n] for n in workload.measure.returns_of if n in groups}
        recent.append(
            {n: (g["episodes"], g["return_mean"]) for n, g in ended.items() if g["episodes"]}
        )
        value = smoothed(recent, workload.measure, workload.smoothing)
        if value is not None and value >= (workload.measure.target or 0.0):
            return env_steps
    return None


def smoothed(
    recent: Sequence[Mapping[str, tuple[int, float]]], measure: Measure, smoothing: int
) -> float | None:
    """Return a measure over the latest iterations with so many episodes; None if too few ended."""
    counts = dict.fromkeys(measure.returns_of, 0)
    totals = dict.fromkeys(measure.returns_of, 0.0)
    for iteration in reversed(recent):
        for name, (episodes, mean) in iteration.items():
            counts[name] += episodes
            totals[name] += episodes * mean
        if sum(counts.values()) >= smoothing and all(counts.values()):
            means = {name: totals[name] / counts[name] for name in counts}
            return measure.constant + sum(w * means[n] for n, w in measure.returns_of.items())
    return None


def make_table(env_steps: Mapping[str, Mapping[str, Sequence[int | None]]]) -> str:
    """Write the steps of all seeds, in thousands, as a table in Markdown."""
    lines = [f"| | {' | '.join(env_steps)} |", f"| --- |{' --- |' * len(env_steps)}"]
    for row in next(iter(env_steps.values())):
        cells = [
            ", ".join("-" if n is None else f"{n / 1000:.0f}" for n in env_steps[name][row])
            for name in env_steps
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, print it, and write it where a file is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--table", action="store_true", help="only print what is recorded")
    options = parser.parse_args(arguments)
    if options.table:
        print(make_table(json.loads(RECORD.read_text())["env_steps"]))
        return
    found: dict[str, dict[str, list[int | None]]] = {}
    for name in options.workloads:
        workload = WORKLOADS[name]()
        found[name] = {}
        for row in options.rows:
            steps = [steps_to_target(workload, ROWS[row], seed) for seed in options.seeds]
            found[name][row] = steps
            shown = ", ".join("not reached" if n is None else f"{n:,}" for n in steps)
            print(f"{name}: {row}: {shown}", flush=True)
    if options.json is not None:
        record = {
            "command": "python benchmarks/few_steps.py",
            "machine": describe_hardware(),
            "seeds": options.seeds,
            "most_steps": MOST_STEPS,
            "env_steps": found,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
