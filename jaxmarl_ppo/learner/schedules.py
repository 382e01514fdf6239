"""Schedules of several numbers stacked into one, for compiled programs."""

from collections.abc import Sequence

import jax.numpy as jnp

from jaxmarl_ppo.config.schedules import ScheduleSpec, schedule_points
from jaxmarl_ppo.types import Schedule


def make_schedule(specs: Sequence[ScheduleSpec], total_env_steps: int) -> Schedule:
    """Stack `K` schedules of a run of so many environment steps."""
    points = [list(schedule_points(spec, total_env_steps)) for spec in specs]
    longest = max(len(p) for p in points)
    # Padded to equal length for stacking. Schedules are constant after their last point anyway.
    for p in points:
        while len(p) < longest:
            p.append((p[-1][0] + 1.0, p[-1][1]))
    table = jnp.array(points, jnp.float32)
    return Schedule(steps=table[..., 0], values=table[..., 1])
