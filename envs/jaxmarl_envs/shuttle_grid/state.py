"""Actions, parameters and state of a shift of `shuttle_grid`."""

import jax
import jax.numpy as jnp
from flax import struct

HOLD, LEAVE_BY_ROW, LEAVE_BY_COLUMN = 0, 1, 2  # actions


@struct.dataclass
class ShuttleParams:
    """Numeric parameters; timings shape the route tables and belong to the environment itself."""

    max_steps: int | jax.Array = 256  # steps of a shift


@struct.dataclass
class ShuttleState:
    """A shift in progress; a shuttle is moving exactly while `reserved != cell`."""

    cell: jax.Array  # [A] int32, where the shuttle stands, or the cell that it is leaving
    reserved: jax.Array  # [A] int32, the cell that it is entering, else `cell`
    axis: jax.Array  # [A] int32, of its last or present move: 0 row, 1 column
    loaded: jax.Array  # [A] bool
    busy: jax.Array  # [A] int32, steps until it has moved or handled; 0 is idle
    wait: jax.Array  # [A] int32, steps in a row that it was idle and did not get to leave
    storage: jax.Array  # [A] int32, the cell of its present job's load
    port: jax.Array  # [A] int32, the cell that its present job's load goes to
    num_delivered: jax.Array  # [A] int32, so the index of its present job
    job_keys: jax.Array  # [A] PRNG keys of the job streams
    exit_times: jax.Array  # [A, 2] int32, follows from the rest: see `ShuttleGrid.exit_times`
    time: jax.Array  # int32, steps since the shift began

    @property
    def target(self) -> jax.Array:
        """Return the cell where each shuttle picks up or puts down next, `[A]` int32."""
        return jnp.where(self.loaded, self.port, self.storage)
