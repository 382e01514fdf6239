"""Data parallelism: environments spread over devices, parameters the same on all.

Every device plays its own environments and computes gradients of its own decisions; each optimiser
step takes the sum. On a CPU a core is worth more as a device of its own than as half a team: matrix
products of this size take about as long as waking another thread for half of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import PyTree, TrainState

AXIS = "devices"
# Compiler options on a CPU. XLA keeps to vectors of 256 bits where a core has 512; others are not
# affected.
WIDE_VECTORS: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}
# CPU devices are cores here, so none is to share its operations out.
ONE_CORE_EACH: dict[str, Any] = {"xla_cpu_multi_thread_eigen": False}
# Where arguments and results lie, for trees of any kind.
SAME: Any = PartitionSpec()
BY_ENV: Any = PartitionSpec(AXIS)
BY_TICK_AND_ENV: Any = PartitionSpec(None, AXIS)


class Devices:
    """The devices of a run: what of it lies where, and functions that run on all.

    Args:
        num_devices: how many, the first that JAX sees.
    """

    def __init__(self, num_devices: int) -> None:
        self.num_devices = num_devices
        self.mesh = Mesh(np.array(jax.local_devices()[:num_devices]), (AXIS,))

    def place(self, state: TrainState) -> TrainState:
        """Spread a state that lies on one device over all of them."""
        if self.num_devices == 1:
            return state
        shardings = jax.tree.map(
            lambda spec, part: jax.tree.map(lambda _: NamedSharding(self.mesh, spec), part),
            state_specs(),
            state,
            is_leaf=lambda x: isinstance(x, PartitionSpec),
        )
        # By way of the host, since each shape that a device slices is a program to compile. Copied,
        # since memory that something else owns could not be donated.
        return jax.device_put(jax.tree.map(_to_host, state), shardings, may_alias=False)

    def jit(
        self,
        function: Callable[..., Any],
        in_specs: tuple[PyTree, ...],
        out_specs: PyTree,
        donate: tuple[int, ...] = (),
    ) -> Any:
        """Compile a function of one device's part to run on all devices.

        Args:
            function: takes `axis_name` beside its arguments.
            in_specs: where the arguments lie: prefixes of their trees.
            out_specs: where the results lie.
            donate: arguments whose memory may be reused.
        """
        options = WIDE_VECTORS if jax.default_backend() == "cpu" else None
        if self.num_devices == 1:
            # Without an axis nothing is exchanged, and there is no program to partition.
            alone = partial(function, axis_name=None)
            return jax.jit(alone, donate_argnums=donate, compiler_options=options)
        spread = jax.shard_map(
            partial(function, axis_name=AXIS),
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )
        if options is not None:
            options = options | ONE_CORE_EACH
        return jax.jit(spread, donate_argnums=donate, compiler_options=options)


def _to_host(x: jax.Array) -> jax.Array | np.ndarray:
    """Copy an array to the host as a NumPy array; keys, which NumPy lacks, stay as they are."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


def state_specs() -> TrainState:
    """Tell which parts of a state are spread over devices: all that belongs to environments."""
    return TrainState(
        population=SAME,
        training=SAME,
        per_env=BY_ENV,
        env_params=SAME,
        key=SAME,
        iteration=SAME,
    )


def rollout_specs() -> Rollout:
    """Tell which parts of what was played are spread over devices, and along which axis."""
    return Rollout(
        decisions=BY_TICK_AND_ENV,
        outcomes=BY_TICK_AND_ENV,
        faults=BY_TICK_AND_ENV,
        last_fault=BY_ENV,
        bootstrap_value=BY_ENV,
        start_hidden=BY_ENV,
        tracker=BY_ENV,
    )
