"""Detection of values that cannot be trained on: non-finite numbers, and unusable masks."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.backend import skip_unless
from jaxmarl_envs.core import Observation
from jaxmarl_ppo.ops.collectives import device_index, first_of

FAULT_FIELDS = ("features", "state", "action_mask", "agent_mask", "reward", "final_observation")
# Kinds of faults of a number.
FINE, INFINITE, NAN = range(3)


class Fault(struct.PyTreeNode):
    """The first value from an environment that cannot be trained on, and its place."""

    found: jax.Array  # () bool
    iteration: jax.Array  # () int
    step: jax.Array  # () int: within the rollout; `T` for the observation after its last step
    env: jax.Array  # () int
    agent: jax.Array  # () int
    field: jax.Array  # () int: index into FAULT_FIELDS
    is_nan: jax.Array  # () bool: not-a-number rather than infinite


def no_fault() -> Fault:
    """Make the result for a rollout without a fault."""
    no, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    return Fault(no, zero, zero, zero, zero, zero, no)


def health(x: jax.Array) -> jax.Array:
    """Return whether the numbers `[E, A, ...]` of each slot are `FINE`, `INFINITE` or `NAN`."""
    x = x.reshape(*x.shape[:2], -1)
    return jnp.where(jnp.isnan(x).any(-1), NAN, jnp.where(jnp.isinf(x).any(-1), INFINITE, FINE))


def health_of_state(obs: Observation) -> jax.Array:
    """Classify the critics' state alike, `[E, 1]` for all slots; without one it is `FINE`."""
    if obs.state is None:
        return jnp.full((*obs.alive.shape[:1], 1), FINE)
    return health(obs.state[:, None])


def check(
    obs: Observation,
    reward: jax.Array,
    final_value: jax.Array,
    max_actors: int,
    layout: ActionLayout,
) -> jax.Array:
    """Encode the faults of a step, `[E, A]` uint8: 0 for none, else read by `find_fault`.

    Args:
        obs: `[E, A, ...]`, before the step; without a state if no critic reads it.
        reward: `[E, A]`.
        final_value: `[E, A]`, V(final observation), finite only if its features are.
        max_actors: how many agents can act at once, as declared; if more act, all are at fault.
        layout: of the environment's masks.

    Returns:
        `[E, A]` uint8: 0 where nothing is wrong, else a code that `find_fault` reads.
    """
    acts = obs.agent_mask
    crowded = acts.sum(-1, dtype=jnp.int32, keepdims=True) > max_actors
    # Masks have a single kind of fault, encoded as INFINITE.
    return _code(
        health(obs.features),
        health_of_state(obs),
        jnp.where(layout.all_legal(obs.action_mask), FINE, INFINITE),
        jnp.where(acts & crowded, INFINITE, FINE),
        health(reward),
        health(final_value),
    )


def check_final(codes: jax.Array, final_value: jax.Array) -> jax.Array:
    """Add the faults of final observations that were valued after the rollout.

    Args:
        codes: `[T, E, A]`, from `check`.
        final_value: `[T, E, A]`, V(final observation).
    """
    field = FAULT_FIELDS.index("final_observation")
    kind = health(final_value.reshape(-1, 1, 1)).reshape(codes.shape)
    untold = (codes == 0) & (kind != FINE)
    return jnp.where(untold, (2 * field + kind).astype(jnp.uint8), codes)


def check_last(obs: Observation) -> jax.Array:
    """Encode the faults of the observation after a rollout, before any agent acts on it.

    Args:
        obs: `[E, A, ...]`; without a state if no critic reads it.
    """
    return _code(health(obs.features), health_of_state(obs))


def find_fault(
    codes: jax.Array,
    last: jax.Array,
    iteration: jax.Array,
    axis_name: str | None = None,
) -> Fault:
    """Find the first fault of a rollout: the earliest step, then the first field.

    Environments spread over the devices of an axis are counted device by device.

    Args:
        codes: `[T, E, A]`, from `check`.
        last: `[E, A]`, from `check_last`.
        iteration: of the rollout.
        axis_name: of the devices.
    """
    num_steps, num_envs, num_agents = codes.shape
    found = codes.any() | last.any()

    def look() -> Fault:
        # If all steps are fine, it is the observation after them: the appended True.
        step = jnp.argmax(jnp.append(codes.any((1, 2)), True))
        row = jnp.where(step < num_steps, codes[jnp.minimum(step, num_steps - 1)], last).ravel()
        field = jnp.where(row > 0, (row - 1) // 2, len(FAULT_FIELDS))
        place = jnp.argmin(field)
        return Fault(
            found=found,
            iteration=iteration,
            step=step,
            env=place // num_agents + num_envs * device_index(axis_name),
            agent=place % num_agents,
            field=field[place].astype(jnp.int32),
            is_nan=row[place] % 2 == 0,
        )

    # Locating a fault is slow, and faults are rare. Without one, only `found` counts.
    fault = skip_unless(found, look, lambda: no_fault().replace(iteration=iteration))
    return first_of(jnp.where(found, fault.step, num_steps + 1), fault, axis_name)


def _code(*kinds: jax.Array) -> jax.Array:
    """Encode kinds of the first of `FAULT_FIELDS`, `[E, A]` or `[E, 1]` each, as `[E, A]` uint8.

    A rollout keeps only one byte for each slot and step, so the table costs next to nothing.
    """
    code = jnp.zeros(jnp.broadcast_shapes(*(kind.shape for kind in kinds)), jnp.uint8)
    # The first field comes last, so that it remains if a slot has several faults.
    for field, kind in reversed(list(enumerate(kinds))):
        code = jnp.where(kind == FINE, code, (2 * field + kind).astype(jnp.uint8))
    return code
