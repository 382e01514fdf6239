"""Settings of RLlib that `compare_ray.py --tune` tries, and the fastest of them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ray_baseline.scenarios import SCENARIOS

_FREE = [
    *({"num_envs": envs, "num_runners": 0} for envs in (1, 32, 128)),
    {"num_envs": 32, "num_runners": 0, "torch_threads": 1},
    {"num_envs": 32, "num_runners": 1},
    *({"num_envs": envs, "num_runners": 2} for envs in (8, 32, 64, 128)),
]


def _whole_episodes(length: int) -> list[dict[str, Any]]:
    """Widths that make an iteration of whole episodes, and the same with everybody observing."""
    ways = [
        {"num_envs": envs, "num_runners": n, "batch_steps": max(max(n, 1) * envs, 8) * length}
        for n, envs in ((0, 1), (0, 32), (1, 32), (2, 8), (2, 16), (2, 32))
    ]
    truncated = {"batch_mode": "truncate_episodes", "num_envs": 32, "num_runners": 2}
    return [
        *ways,
        {**truncated, "batch_steps": 4096},
        {**truncated, "batch_steps": 4096, "all_observe": True},
    ]


CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "tic_tac_toe": _FREE,
    "crypto": _FREE,
    "shuttle_grid": _whole_episodes(256),
    "noise": _whole_episodes(200),
}


def changed(name: str, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """All settings of a scenario, with these changes."""
    return vars(dataclasses.replace(SCENARIOS[name].rllib, **(changes or {})))


def fastest(tuning: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Per scenario the settings with the most environment steps per second that did not fail."""
    best = {}
    for name, rows in tuning["scenarios"].items():
        sound = [row for row in rows if row["env_steps_per_s"] and not row["error"]]
        if sound:
            best[name] = max(sound, key=lambda row: row["env_steps_per_s"])["settings"]
    return best
