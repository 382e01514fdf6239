"""Environment parameters that change during a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.schedules import ScheduleSpec
from jaxmarl_ppo.learner.env_params import parameters, with_parameters
from jaxmarl_ppo.learner.schedules import make_schedule
from jaxmarl_ppo.types import PyTree, Schedule


@dataclass(frozen=True, eq=False)
class EnvSchedules:
    """Schedules of some of an environment's parameters during training.

    Attributes:
        names: of the parameters, `S` of them, as `env.params` of a file has them; nested ones as
            `outer.inner`.
        schedule: their values, `[S]` at every time.
    """

    names: tuple[str, ...]
    schedule: Schedule

    def at(self, env_params: PyTree, env_steps: jax.Array) -> PyTree:
        """Replace these parameters by their values after `env_steps ()` environment steps."""
        given = parameters(env_params)
        values = zip(self.names, self.schedule(env_steps), strict=True)
        return with_parameters(
            env_params, {name: value.astype(jnp.result_type(given[name])) for name, value in values}
        )

    def values(self, env_steps: int) -> dict[str, float]:
        """Return their values after so many environment steps, by name."""
        rows = zip(np.asarray(self.schedule.steps), np.asarray(self.schedule.values), strict=True)
        found = (float(np.interp(env_steps, *row)) for row in rows)
        return dict(zip(self.names, found, strict=True))


def make_env_schedules(
    env_params: PyTree, specs: Mapping[str, ScheduleSpec], total_env_steps: int
) -> EnvSchedules | None:
    """Make the schedules of a run; None without any.

    Args:
        env_params: of its environment.
        specs: by the parameters' names.
        total_env_steps: of the run.

    Raises:
        ValueError: If there is no such parameter, or it is not a single float.
    """
    if not specs:
        return None
    given = parameters(env_params)
    for name in specs:
        if name not in given:
            valid = ", ".join(key for key, leaf in given.items() if _is_real(leaf))
            raise ValueError(
                f"env_schedules has the key {show(name)}, which is no parameter of the environment "
                f"that could change; valid: {valid or 'none'}"
            )
        if not _is_real(given[name]):
            raise ValueError(
                f"env_schedules has the key {show(name)}, which cannot change during a run, "
                f"since it is {show(given[name])} and not a single number of floating point"
            )
    return EnvSchedules(tuple(specs), make_schedule(list(specs.values()), total_env_steps))


def _is_real(leaf: Any) -> bool:
    return np.ndim(leaf) == 0 and jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
