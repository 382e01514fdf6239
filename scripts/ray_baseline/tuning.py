"""Settings of RLlib that `compare_ray.py --tune` tries, and the record of the fastest of them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray_baseline.scenarios import SCENARIOS

# A list of what was tried, by machine; what ships was measured on the one that it names.
RECORD = Path(__file__).with_name("tuning.json")
SAME = ("processor", "cores")
# Beside where the environments are played: who learns, and by which code.
_KINDS: tuple[dict[str, Any], ...] = ({"num_learners": 1}, {"api_stack": "former"})


def candidates(name: str, cores: int) -> list[dict[str, Any]]:
    """Changes to a scenario's settings that are worth a try on so many cores."""
    runners = sorted({2, cores // 2, cores} - {0, 1})
    if SCENARIOS[name].rllib.batch_mode == "complete_episodes":
        return _whole_episodes(SCENARIOS[name].episode_steps, runners)
    many = [(n, envs) for n in runners for envs in (8, 32, 64, 128)]
    places = [(0, 1), (0, 32), (0, 128), (1, 32), (1, 128), *many]
    ways = [{"num_envs": envs, "num_runners": n} for n, envs in places]
    return [
        *ways,
        *({"num_envs": 32, "num_runners": 0, "torch_threads": t} for t in {1, cores} - {2}),
        *({**way, **kind} for kind in _KINDS for way in ways if way["num_envs"] >= 64),
    ]


def _whole_episodes(length: int, runners: Sequence[int]) -> list[dict[str, Any]]:
    """Widths that make an iteration of whole episodes, and the same with everybody observing."""
    places = [(0, 1), (0, 32), (1, 32), *((n, envs) for n in runners for envs in (8, 16, 32))]
    ways = [
        {"num_envs": envs, "num_runners": n, "batch_steps": max(max(n, 1) * envs, 8) * length}
        for n, envs in places
    ]
    truncated = {"batch_mode": "truncate_episodes", "num_envs": 32, "num_runners": 2}
    return [
        *ways,
        *({**way, **kind} for kind in _KINDS for way in ways if way["num_envs"] == 32),
        {**truncated, "batch_steps": 4096},
        {**truncated, "batch_steps": 4096, "all_observe": True},
        {**truncated, "batch_steps": 4096, "api_stack": "former"},
    ]


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


def read_record(path: Path) -> list[dict[str, Any]]:
    """Read what was tried on which machines; nothing where there is no such file.

    Raises:
        ValueError: the file is no record of `--tune`.
    """
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    if not isinstance(found, list) or not all({"machine", "scenarios"} <= set(r) for r in found):
        raise ValueError(f"{path}: no record of compare_ray.py --tune")
    return found


def choose(record: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> Mapping[str, Any]:
    """Choose what was tried on a machine: this one, else one with as many cores, else the latest.

    Raises:
        ValueError: nothing was tried anywhere.
    """
    if not record:
        raise ValueError("no record of RLlib's fastest settings; run compare_ray.py --tune")

    def likeness(tried: Mapping[str, Any]) -> tuple[bool, bool, str]:
        there = tried["machine"]
        return is_same(there, machine), there["cores"] == machine["cores"], there["date"]

    return max(record, key=likeness)


def is_same(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    """Return whether two descriptions are of machines of one kind."""
    return all(there[key] == here[key] for key in SAME)


def enter(record: Sequence[Mapping[str, Any]], tried: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Put what was tried into a record, in place of the same scenarios on the same machine."""
    others, scenarios = [], {}
    for earlier in record:
        if is_same(earlier["machine"], tried["machine"]):
            left = {k: v for k, v in earlier["scenarios"].items() if k not in tried["scenarios"]}
            # With other versions all that is left may be other figures, and is dropped.
            if earlier["machine"]["versions"] == tried["machine"]["versions"]:
                scenarios |= left
        else:
            others.append(earlier)
    return [*others, {**tried, "scenarios": scenarios | tried["scenarios"]}]
