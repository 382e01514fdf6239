"""Parameters of environments in files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxmarl_ppo.config.env_as_json import params_from_json, params_to_json


@struct.dataclass
class Numbers:
    count: int = 3
    speed: float = 0.1
    free: bool = True
    table: jax.Array = struct.field(default_factory=lambda: jnp.array([1.5, 2.0], jnp.float32))


def test_parameters_of_an_environment_are_checked():
    read = params_from_json({"table": [1, 3], "speed": 2}, Numbers(), partial=True)
    assert (read.count, read.speed) == (3, 2.0)
    assert read.table.dtype == jnp.float32
    np.testing.assert_array_equal(read.table, [1.0, 3.0])
    whole = params_to_json(Numbers())
    for key, value, message in [
        ("count", 2.5, "env.params.count must be a whole number"),
        ("speed", "fast", "env.params.speed must be a finite number, got 'fast'"),
        ("free", 1, "env.params.free must be True or False"),
        ("table", "x", "env.params.table holds no numbers"),
        ("table", [[1.0]], "env.params.table must have 1 dimensions"),
        ("sped", 1, "env.params has no 'sped'; did you mean 'speed'"),
    ]:
        with pytest.raises(ValueError, match=message):
            params_from_json({**whole, key: value}, Numbers())
