"""Several choices at once: what they cost a step, and how soon they are learned.

    python benchmarks/several_choices.py --json benchmarks/several-choices-cpu.json

Both measurements are of `combination_lock`, whose agent sees a code and sets wheels to it. Time per
step: six wheels of six options, beside the same lock with one wheel that is set, `Discrete(6)`, and
the same network; training steps take turns. Time to the optimum: four wheels as a choice each,
beside one choice over all 1,296 combinations, until a policy that samples sets .99 of the wheels.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmarl_envs
from jaxmarl_envs.actions import Action
from jaxmarl_envs.core import StepResult
from jaxmarl_envs.spaces import Discrete
from jaxmarl_envs.toy.factored import CombinationLock, LockParams
from jaxmarl_ppo import MLP, PolicySpec, TrainConfig, Trainer, use_cpu_cores
from jaxmarl_ppo.bench.timing import time_in_turn
from jaxmarl_ppo.bench.training import WARM_UP_STEPS, TrainingSteps
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.machine.hardware import describe_hardware

HIDDEN_SIZES = ((64, 64), (256, 256))
CONFIG = TrainConfig(num_envs=256, num_steps=16, num_devices=1)
OPTIMUM = "all.return_mean >= 0.99"
MOST_STEPS = 1_500_000


class OneWheel(CombinationLock):
    """A lock whose agent sees all wheels, and sets the first."""

    name = "one_wheel"

    def action_space(self, agent: str, params: LockParams) -> Discrete:
        """Return the space of the first wheel."""
        return Discrete(self.num_options)

    def step_env(
        self, key: jax.Array, state: jax.Array, action: Any, params: LockParams
    ) -> StepResult[jax.Array]:
        """Leave the other wheels at 0; `action` is `[1]` int32."""
        others = jnp.zeros((1, self.num_wheels - 1), jnp.int32)
        choices = jnp.concatenate([action[:, None], others], axis=-1)
        return super().step_env(key, state, Action(choices, None), params)


def training_step(env: CombinationLock, hidden_sizes: Sequence[int]) -> Callable[[], Any]:
    """Make a call that takes one training step on one device."""
    policy = PolicySpec(network=MLP(hidden_sizes=hidden_sizes))
    config = replace(CONFIG, default_policy=policy)
    learner, devices = make_learner(env, env.default_params, config), Devices(1)
    state = devices.place(jax.jit(learner.init)(jax.random.key(0)))
    return TrainingSteps(learner, devices, state)


def time_steps(repeats: int) -> list[dict[str, Any]]:
    """Time training steps of six choices, and of one, with networks of equal layers."""
    found = []
    for hidden_sizes in HIDDEN_SIZES:
        calls = [training_step(lock(), hidden_sizes) for lock in (OneWheel, CombinationLock)]
        one, six = map(np.array, time_in_turn(calls, repeats, WARM_UP_STEPS))
        ratio = float(np.median(six / one))
        seconds = {"one_choice_s": float(np.median(one)), "six_choices_s": float(np.median(six))}
        found.append({"hidden_sizes": hidden_sizes, **seconds, "ratio": ratio})
        print(f"{hidden_sizes}: six choices take {ratio:.2f} times as long as one", flush=True)
    return found


def time_to_optimum(joint: bool, seed: int) -> dict[str, Any]:
    """Train a lock of four wheels until it is opened."""
    env, params = jaxmarl_envs.make("combination_lock", num_wheels=4, joint=joint)
    config = replace(CONFIG, seed=seed, total_env_steps=MOST_STEPS, until=(OPTIMUM,))
    with tempfile.TemporaryDirectory() as folder:
        result = Trainer(env, params, config, f"{folder}/run", progress=False).train()
        *_, last = map(json.loads, Path(folder, "run", "metrics.jsonl").read_text().splitlines())
    found = {
        "joint": joint,
        "seed": seed,
        "solved": last["all"]["return_mean"] >= 0.99,
        "env_steps": result.env_steps,
        "training_s": last["seconds"]["training"],
    }
    print(found, flush=True)
    return found


def main() -> None:
    """Measure both, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=31, help="timed steps of each")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each to the optimum")
    parser.add_argument("--json", type=Path, help="file to write the record to")
    options = parser.parse_args()
    record: dict[str, Any] = {"steps": time_steps(options.repeats)}
    runs = [(joint, seed) for seed in range(options.seeds) for joint in (False, True)]
    record["optimum"] = [time_to_optimum(*run) for run in runs]
    record["hardware"] = describe_hardware()
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    use_cpu_cores()
    main()
