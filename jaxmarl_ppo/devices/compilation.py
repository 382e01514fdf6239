"""Compiler options, and the compiled first half of an iteration."""

from typing import Any

import jax

from jaxmarl_ppo.devices.sharding import BY_ENV, SAME, Devices, rollout_specs, state_specs
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.collectives import split_key
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import RolloutState, TrainState


def options_of_once() -> dict[str, Any] | None:
    """Return the compiler options of programs for which compilation takes longer than running."""
    # The compiler of JAX 0.11 no longer accepts CPU options.
    return (jax.__version_info__ < (0, 11) and tuning().options_of_once) or None


def jit_rollout(learner: Learner, devices: Devices) -> Any:
    """Make a function of the first half of an iteration, from a state, which stays, and a key."""

    def play(
        state: TrainState, key: jax.Array, axis_name: str | None
    ) -> tuple[RolloutState, Rollout]:
        return learner.play(state, split_key(key, 1, axis_name)[1][0])

    return devices.jit(play, (state_specs(), SAME), (BY_ENV, rollout_specs()))
