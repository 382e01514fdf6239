"""Detection of values that cannot be trained on: non-finite numbers, and unusable masks."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.backend import skip_unless
from jaxmarl_envs.core import Observation
from jaxmarl_ppo.ops.collectives import device_index, first_of

FAULT_FIELDS = ("features", "state", "action_mask", "agent_mask", "reward", "final_observation")
# What can be wrong with a number.
FINE, INFINITE, NAN = range(3)


class Fault(struct.PyTreeNode):
    """The first value from an environment that cannot be trained on, and where it stands."""

    found: jax.Array  # () bool
    iteration: jax.Array  # () int
    step: jax.Array  # () int: within the rollout; `T` for the observation after its last step
    env: jax.Array  # () int
    agent: jax.Array  # () int
    field: jax.Array  # () int: index into FAULT_FIELDS
    is_nan: jax.Array  # () bool: not-a-number rather than infinite


def no_fault() -> Fault:
    """Make the fault of a rollout in which nothing is wrong."""
    no, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    return Fault(no, zero, zero, zero, zero, zero, no)


def health(x: jax.Array) -> jax.Array:
    """Return whether the numbers `[E, A, ...]` of each slot are `FINE`, `INFINITE` or `NAN`."""
    x = x.reshape(*x.shape[:2], -1)
    return jnp.where(jnp.isnan(x).any(-1), NAN, jnp.where(jnp.isinf(x).any(-1), INFINITE, FINE))


def health_of_state(obs: Observation) -> jax.Array:
    """Tell likewise of the state for critics, `[E, 1]` for all slots; without one it is `FINE`."""
    if obs.state is None:
        return jnp.full((*obs.alive.shape[:1], 1), FINE)
    return health(obs.state[:, None])


def check(
    obs: Observation, reward: jax.Array, final_value: jax.Array, max_actors: int
) -> jax.Array:
    """Code what is wrong at a step, `[E, A]` uint8: 0 for nothing, else read by `find_fault`.

    Args:
        obs: `[E, A, ...]`, before the step; without a state if no critic reads it.
        reward: `[E, A]`.
        final_value: `[E, A]`, V(final observation), which is as its features are.
        max_actors: how many the environment says can act at once; of more all are at fault.

    Returns:
        `[E, A]` uint8: 0 where nothing is wrong, else a code that `find_fault` reads.
    """
    acts = obs.agent_mask
    crowded = acts.sum(-1, dtype=jnp.int32, keepdims=True) > max_actors
    # Masks are wrong in one way only, for which INFINITE stands.
    return _code(
        health(obs.features),
        health_of_state(obs),
        jnp.where(obs.action_mask.any(-1), FINE, INFINITE),
        jnp.where(acts & crowded, INFINITE, FINE),
        health(reward),
        health(final_value),
    )


def check_final(codes: jax.Array, final_value: jax.Array) -> jax.Array:
    """Add to codes what is wrong with final observations that were valued after the rollout.

    Args:
        codes: `[T, E, A]`, from `check`.
        final_value: `[T, E, A]`, V(final observation).
    """
    field = FAULT_FIELDS.index("final_observation")
    kind = health(final_value.reshape(-1, 1, 1)).reshape(codes.shape)
    untold = (codes == 0) & (kind != FINE)
    return jnp.where(untold, (2 * field + kind).astype(jnp.uint8), codes)


def check_last(obs: Observation) -> jax.Array:
    """Code likewise what is wrong with the observation after a rollout, before anybody acts on it.

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
    """Find the first fault of a rollout: the earliest step, and at it the first of the fields.

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
        # If all steps are fine, it is the observation after them, which the appended True is for.
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

    # Where it is takes long to find, and hardly ever anything is wrong. Then only `found` counts.
    fault = skip_unless(found, look, lambda: no_fault().replace(iteration=iteration))
    return first_of(jnp.where(found, fault.step, num_steps + 1), fault, axis_name)


def _code(*kinds: jax.Array) -> jax.Array:
    """Code the kinds of the first of `FAULT_FIELDS`, `[E, A]` or `[E, 1]` each, as `[E, A]` uint8.

    A byte for each slot and step is all that a rollout keeps, so the table costs next to nothing.
    """
    code = jnp.zeros(jnp.broadcast_shapes(*(kind.shape for kind in kinds)), jnp.uint8)
    # The first field last, so that of several faults in a slot it is the one that remains.
    for field, kind in reversed(list(enumerate(kinds))):
        code = jnp.where(kind == FINE, code, (2 * field + kind).astype(jnp.uint8))
    return code
