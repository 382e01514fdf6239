"""Small checkpoints that nobody has trained."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.manifest import RunPosition

TREE = {
    "floats": jnp.arange(6.0).reshape(2, 3),
    "half": jnp.ones(2, jnp.bfloat16),
    "flags": jnp.array([True, False]),
    "count": jnp.int32(7),
    "nothing": jnp.zeros((0, 3)),
    "keys": jax.random.split(jax.random.key(3), 2),
    "raw": jax.random.PRNGKey(4),
    "nested": (jnp.float32(1.5), [jnp.uint8(2)], ()),
}


def position(iteration, **changes):
    values = {
        "iteration": iteration,
        "logged_iteration": iteration,
        "env_steps": 10 * iteration,
        "decisions": 20 * iteration,
        "num_entries": 1,
        "num_evaluations": 0,
        "log_interval": 1,
        "wall_s": 0.5,
        "objective": None,
        "best": None,
        "num_worse": 0,
        "saved_by": "interval",
    }
    return RunPosition(**{**values, **changes})


def snapshot(iteration, run_id=None, **changes):
    population = {"weights": np.full(3, iteration, np.float32)}
    record = {"format": 2, "env": {}, "config": {}, "versions": {"jax": "0"}}
    record |= {} if run_id is None else {"id": run_id}
    where = position(iteration, **changes)
    return CheckpointData(to_arrays(TREE), population, ("p",), record, where)
