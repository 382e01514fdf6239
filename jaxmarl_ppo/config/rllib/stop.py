"""Tune's `stop={...}`, which ends a run of RLlib, translated into our stopping options."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmarl_ppo.config.rllib.findings import Findings, show

ENDLESS = 10**15  # environment steps, beyond any real run
# RLlib counts these, and a run of so many is as long here.
_STEPS = (
    "timesteps_total",
    "num_env_steps_sampled",
    "num_env_steps_sampled_lifetime",
    "num_env_steps_trained",
    "num_env_steps_trained_lifetime",
)
_ITERATIONS, _SECONDS = ("training_iteration",), ("time_total_s",)
# The number of our log that is compared with the value.
_METRICS = {
    **{
        f"episode_{name}_{part}": f"all.return_{part}"
        for name in ("reward", "return")
        for part in ("mean", "min", "max")
    },
    "episode_len_mean": "all.length_mean",
    "agent_timesteps_total": "decisions",
    "num_agent_steps_sampled": "decisions",
    "num_agent_steps_sampled_lifetime": "decisions",
}
# The same by policy or agent, whose name follows.
_TABLES = {
    "policy_reward_mean": "policies.{}.return_mean",
    "policy_reward_min": "policies.{}.return_min",
    "policy_reward_max": "policies.{}.return_max",
    "module_episode_returns_mean": "policies.{}.return_mean",
    "agent_episode_returns_mean": "agents.{}.return_mean",
}
_ROOTS = ("env_runners", "sampler_results")


def read_stop(stop: Mapping[str, Any], iteration_steps: int, findings: Findings) -> dict[str, Any]:
    """Translate what ends a run: as in Tune, the first number that is reached does.

    Args:
        stop: numbers by their names in a result, in tables or with `/` between the parts.
        iteration_steps: environment steps of an iteration.
        findings: what there is to tell.

    Returns:
        `total_env_steps`, `until` and `max_minutes` of `TrainConfig`, as far as they follow.

    Raises:
        ValueError: For a value that is no number above 0, or that no run reaches.
    """
    if not isinstance(stop, Mapping):
        raise ValueError(f"stop must be a table from a metric to a number, got {show(stop)}")
    steps, seconds, until = [], [], []
    for path, value in _flat(stop):
        key, name = _key(path), f"stop.{path}"
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise ValueError(f"{name} must be a number, got {show(value)}")
        table, _, member = key.partition("/")
        if key in _METRICS:
            until.append(f"{_METRICS[key]} >= {value!r}")
        elif table in _TABLES and member:
            until.append(f"{_TABLES[table].format(member)} >= {value!r}")
        elif key in (*_STEPS, *_ITERATIONS, *_SECONDS):
            if value <= 0:
                raise ValueError(f"{name} must be a number above 0, got {show(value)}")
            if key in _SECONDS:
                seconds.append(value)
            else:
                steps.append(value * (iteration_steps if key in _ITERATIONS else 1))
        else:
            findings.lose(name, value, "a metric of the log can be given as until=")
    told: dict[str, Any] = {
        "total_env_steps": max(1, math.ceil(min([*steps, ENDLESS]))),
        "until": tuple(until),
    }
    if seconds and min(seconds) < math.inf:
        told["max_minutes"] = min(seconds) / 60
    return told


def _flat(stop: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in stop.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}/")
        else:
            yield f"{before}{key}", value


def _key(path: str) -> str:
    root, _, rest = path.partition("/")
    return rest if root in _ROOTS and rest else path
