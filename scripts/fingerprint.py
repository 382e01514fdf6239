"""Print a hash of what a dozen small runs learn and report, to show that a change changes nothing.

    python scripts/fingerprint.py --record before.json     # before the change
    python scripts/fingerprint.py --check before.json      # after it, on the same machine

Each line covers parameters, the log and an evaluation, to the bit. A hash depends on the processor
and on the versions of JAX and XLA, so it means nothing on another machine.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmarl_envs
from jaxmarl_ppo import (
    CNN,
    LSTM,
    MLP,
    Ensemble,
    Linear,
    Matchups,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
    Trainer,
    use_cpu_cores,
)
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.runs.log import WALL_CLOCK_FIELDS

# Logs and reports are hashed with the words that they had first, so that hashes can be compared.
FIRST_WORDS = {
    "decisions_per_step": "decisions_per_tick",
    "% of the steps": "% of the ticks",
    "steps; best scripted": "ticks; best scripted",
}
SMALL_MLP = PolicySpec(network=MLP(hidden_sizes=(16, 16)))
SMALL_LSTM = LSTM(hidden_sizes=(16,), lstm_size=16)
SHORT = PPOConfig(num_epochs=2, num_minibatches=2)

Run = tuple[str, dict[str, Any], TrainConfig]


def config(num_iterations: int, num_envs: int, num_steps: int, **kwargs: Any) -> TrainConfig:
    """Make a small configuration of so many iterations, with other fields as given."""
    kwargs = {"default_policy": SMALL_MLP, "default_ppo": SHORT, "num_devices": 1, **kwargs}
    total = num_iterations * num_envs * num_steps
    return TrainConfig(
        total_env_steps=total, num_envs=num_envs, num_steps=num_steps, log_interval=2, **kwargs
    )


def self_play_runs() -> dict[str, Run]:
    """List runs with mappings of policies to agents, ensembles and a league."""
    return {
        "per_agent": ("crypto", {}, config(4, 16, 16, mapping="per_agent", num_devices=2)),
        "ensemble": ("crypto", {}, config(4, 16, 16, mapping="ensemble:3")),
        "lives": (
            "flex_agents",
            {},
            config(4, 16, 16, mapping=Ensemble(2, weights=(0.7, 0.3), joint=True)),
        ),
        "two_groups": ("multi_spaces", {}, config(3, 16, 8, mapping="ensemble:2")),
        "league": (
            "tic_tac_toe",
            {},
            config(
                8,
                32,
                16,
                mapping=Matchups(
                    (
                        {"x": "main", "o": "main"},
                        {"x": "main", "o": "past"},
                        {"x": "frozen", "o": "main"},
                        {"x": "random", "o": "main"},
                    ),
                    weights=(0.3, 0.3, 0.2, 0.2),
                ),
                policies={
                    "past": Snapshots("main", size=3, add_every=2, draw="prioritised"),
                    "frozen": PolicySpec(network=MLP(hidden_sizes=(16, 16)), trainable=False),
                    "random": Scripted("random"),
                },
                num_devices=2,
            ),
        ),
    }


def memory_runs() -> dict[str, Run]:
    """List runs with policies with memory, and what a policy sees."""
    return {
        "one_step": (
            "tic_tac_toe",
            {},
            config(
                12,
                8,
                1,
                mapping="per_agent",
                default_policy=PolicySpec(network=SMALL_LSTM, prev_action=True, prev_reward=True),
                default_ppo=PPOConfig(num_epochs=2, num_minibatches=1, bptt_length=3),
            ),
        ),
        "shuttle_lstm": (
            "shuttle_grid",
            {},
            config(
                4,
                8,
                24,
                default_policy=PolicySpec(network=SMALL_LSTM, append_agent_id=True),
                default_ppo=PPOConfig(
                    num_epochs=2,
                    num_minibatches=2,
                    bptt_length=6,
                    discount_by="step",
                    learning_rate=Linear(2e-3, 1e-4),
                ),
                num_devices=2,
            ),
        ),
        "continuous": (
            "gymnax",
            {"env_id": "Pendulum-v1", "num_agents": 2},
            config(3, 8, 16, default_policy=PolicySpec(network=SMALL_LSTM, prev_action=True)),
        ),
        "cnn": (
            "tic_tac_toe",
            {"planes": True},
            config(
                3,
                8,
                8,
                mapping="per_agent",
                default_policy=PolicySpec(network=CNN(hidden_sizes=(16,), channels=(4,))),
            ),
        ),
        "normalised": (
            "tic_tac_toe",
            {},
            config(
                4,
                16,
                16,
                default_policy=PolicySpec(
                    network=MLP(hidden_sizes=(16,), separate_critic=True),
                    normalise_observations=True,
                    normalise_rewards=True,
                    central_critic=True,
                ),
            ),
        ),
    }


def update_runs() -> dict[str, Run]:
    """List runs with kinds of updates, alike for all policies or not."""
    return {
        "unequal_ppo": (
            "asymmetric_play",
            {},
            config(
                4,
                16,
                16,
                mapping="per_agent",
                policies={
                    "alice": PolicySpec(
                        network=MLP(hidden_sizes=(16, 16)),
                        ppo=PPOConfig(num_epochs=3, num_minibatches=1, gamma=0.9, gae_lambda=0.8),
                    )
                },
            ),
        ),
        "kl_penalty": (
            "crypto",
            {},
            config(
                4,
                8,
                16,
                default_ppo=PPOConfig(
                    num_epochs=2,
                    num_minibatches=2,
                    value_clip="ppo2",
                    value_clip_eps=0.2,
                    kl_control="penalty",
                    target_kl=0.01,
                ),
            ),
        ),
        "early_stop": (
            "early_done",
            {},
            config(
                4,
                8,
                8,
                mapping="ensemble:2",
                default_ppo=PPOConfig(
                    num_epochs=4,
                    num_minibatches=1,
                    learning_rate=3e-2,
                    value_clip="squared_error",
                    value_clip_eps=0.5,
                    kl_control="early_stop",
                    target_kl=1e-3,
                ),
            ),
        ),
    }


def fingerprint(run: Run, folder: Path) -> dict[str, str]:
    """Hash what one run learnt, logged and evaluated to."""
    name, env_kwargs, config = run
    env, params = jaxmarl_envs.make(name, **env_kwargs)
    trainer = Trainer(env, params, config, folder, progress=False)
    result = trainer.train()
    history = [{k: v for k, v in e.items() if k not in WALL_CLOCK_FIELDS} for e in result.history]
    hashes = {
        "parameters": hash_leaves(jax.tree.leaves(result.population.policy_groups)),
        "state": hash_leaves(sorted(jax.tree.leaves(result.state), key=sort_key)),
        "log": hash_text(history),
    }
    population = jax.device_get(result.population)
    report = evaluate_policies(trainer.learner, population, episodes=16, seed=1)
    hashes["evaluation"] = hash_text(report)
    if trainer.learner.rated:
        table = cross_play(trainer.learner, population, episodes=8, seed=2)
        hashes["cross_play"] = hash_text(table)
    return hashes


def sort_key(leaf: Any) -> tuple[str, str]:
    """Give leaves an order that does not depend on where they stand in a tree."""
    array = as_numpy(leaf)
    return f"{array.dtype}{array.shape}", hash_leaves([leaf])


def hash_leaves(leaves: list[Any]) -> str:
    """Hash the bits of arrays, one after the other."""
    digest = hashlib.sha256()
    for leaf in leaves:
        array = as_numpy(leaf)
        digest.update(
            f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        )
    return digest.hexdigest()[:16]


def as_numpy(leaf: Any) -> np.ndarray:
    """Read an array; keys give their data."""
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def hash_text(data: Any) -> str:
    """Hash plain data; Python writes floats so that no bit is lost."""
    text = json.dumps(data, sort_keys=True)
    for word, first in FIRST_WORDS.items():
        text = text.replace(word, first)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> int:
    """Print the hashes of runs; record them or compare them with a record."""
    runs = self_play_runs() | memory_runs() | update_runs()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--record", type=Path, help="write the hashes to this file")
    group.add_argument("--check", type=Path, help="compare with the hashes in this file")
    parser.add_argument("--only", nargs="+", choices=runs, default=list(runs), help="some of them")
    options = parser.parse_args()
    use_cpu_cores(2)
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            found[name] = fingerprint(runs[name], Path(folder) / name)
            print(name, *(f"{part} {value}" for part, value in found[name].items()), flush=True)
    if options.record:
        options.record.write_text(json.dumps(found, indent=2) + "\n")
    if options.check:
        before = json.loads(options.check.read_text())
        changed = [
            f"{name}: {part}"
            for name in found
            for part in found[name]
            if before.get(name, {}).get(part) != found[name][part]
        ]
        print("changed: " + ("; ".join(changed) or "nothing"))
        return int(bool(changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
