"""Progress of a step: deliveries counted in instalments, as a reward with little chance in it.

A job takes `remaining` steps of work without others in the way. Whoever is on its way gets a step's
worth nearer to its delivery at every step, who waits does not, and a detour costs what it is
longer. All that is left of chance is who stands in whose way: how long jobs are, which makes up
most of the variance of deliveries, cancels. In units of a mean job the progress of a shift is what
is delivered, but for the jobs that its end interrupts, since the jobs are drawn independently of
what anybody does (Wald's equation: Wald 1944, "On cumulative sums of random variables").
"""

import jax
import jax.numpy as jnp

from jaxmarl_envs.shuttle_grid.routes import COLUMN, Guidepath
from jaxmarl_envs.shuttle_grid.state import ShuttleState


def remaining(state: ShuttleState, path: Guidepath) -> jax.Array:
    """Compute the steps until delivery of present jobs without others in the way, `[A]` float32.

    Along which axis a shuttle will reach its load is not known before its last move: the mean of
    the ways on from there is taken until then.
    """
    handling = path.timings.handling
    moves = state.reserved != state.cell
    handles = ~moves & (state.busy > 0)
    # Entering its target it has arrived; `exit_times` are those of a way that leads out of there.
    enters = moves & (state.reserved == state.target)
    served = jnp.where(handles, 0, handling) + state.busy
    served = jnp.where(handles | enters, served, state.exit_times.min(axis=1))
    carrying = jnp.asarray(path.travel_times[1])[state.storage, :, state.port]  # [A, 2]
    along = jnp.where(state.axis == COLUMN, carrying[:, 1], carrying[:, 0])
    carry = jnp.where(handles | enters, along, carrying.mean(axis=1)) + handling
    return served + jnp.where(state.loaded, 0.0, carry)


def progress(
    before: ShuttleState,
    after: ShuttleState,
    delivered: jax.Array,
    time_left: jax.Array,
    path: Guidepath,
) -> jax.Array:
    """Compute how much nearer to its delivery each shuttle came in a step, `[A]`, in deliveries.

    What can no longer be delivered before the end of the shift comes no nearer.

    Args:
        before: the state before the step.
        after: the state after it.
        delivered: `[A]` bool, who delivered in it, and so has another job afterwards.
        time_left: `()` int, steps of the shift after it.
        path: the streets.
    """
    left = jnp.where(delivered, 0.0, remaining(after, path))
    gained = (remaining(before, path) - left) / path.mean_job
    return jnp.where(left <= time_left, gained, 0.0)
