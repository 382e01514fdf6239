"""What an entry of the log is made of."""

from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.runs.log import peak_memory_mb


def log_entry(
    summary: Mapping[str, Any],
    iteration: int,
    env_steps: int,
    decisions: int,
    wall_s: float,
    env_steps_per_s: float,
) -> dict[str, Any]:
    """Make an entry of the log.

    Args:
        summary: of the interval since the entry before, as `summarise` makes it.
        iteration: iterations since training began, as all that follow.
        env_steps: environment steps.
        decisions: decisions.
        wall_s: seconds.
        env_steps_per_s: rate of the interval.
    """
    entry = {
        "env_steps": env_steps,
        "decisions": decisions,
        "iteration": iteration,
        "wall_s": wall_s,
        "env_steps_per_s": env_steps_per_s,
        "decisions_per_s": env_steps_per_s * summary["decisions_per_tick"],
        "decisions_per_tick": summary["decisions_per_tick"],
        "episodes": summary["episodes"],
        "all": summary["all"],
        "policies": summary["policies"],
        "agents": summary["agents"],
        "peak_memory_mb": peak_memory_mb(),
    }
    if "league" in summary:
        entry["league"] = summary["league"]
    return entry
