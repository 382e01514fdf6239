"""Devices as a mesh of runs and environments: several runs side by side, each on several devices.

Within a run every device plays its own environments and computes gradients of its own decisions;
each optimiser step takes the sum, so parameters are the same on all. Runs exchange nothing. On a
CPU one core per device is faster than sharing: matrix products of this size take about as long as
waking another thread for half of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_envs.backend import local_devices
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import PyTree, TrainState

AXIS, RUNS = "devices", "runs"
# Where arguments and results lie, for trees of any kind.
SAME: Any = PartitionSpec()
BY_ENV: Any = PartitionSpec(AXIS)
BY_STEP_AND_ENV: Any = PartitionSpec(None, AXIS)
BY_RUN: Any = PartitionSpec(RUNS)


class Devices:
    """The devices of a run or of several: placement of data, and functions that run on all.

    Args:
        num_devices: of each run: the first that JAX sees, as many of every process of the job, or
            one of this process.
        num_rows: how many runs have devices of their own.
    """

    def __init__(self, num_devices: int, num_rows: int = 1) -> None:
        self.num_devices, self.num_rows = num_devices, num_rows
        found = np.array(_first_devices(num_devices * num_rows))
        self.mesh = Mesh(found.reshape(num_rows, num_devices), (RUNS, AXIS))

    def row(self, index: int) -> Mesh:
        """Return the devices of one of the runs."""
        return Mesh(self.mesh.devices[index], (AXIS,))

    def place(self, state: TrainState) -> TrainState:
        """Spread the state of a run, on one device, over all of them."""
        if self.num_devices == 1:
            return state
        shardings = self.shardings(state_specs(), state)
        if jax.process_count() > 1:
            return jax.tree.map(_own_part, state, shardings)
        # Via the host, since each shape sliced on a device is a program to compile. Copied, since
        # memory with another owner could not be donated.
        return jax.device_put(jax.tree.map(_to_host, state), shardings, may_alias=False)

    def shardings(self, specs: PyTree, tree: PyTree) -> PyTree:
        """Return where every leaf of a tree lies; `specs` is a prefix of it."""
        return jax.tree.map(
            lambda spec, part: jax.tree.map(lambda _: NamedSharding(self.mesh, spec), part),
            specs,
            tree,
            is_leaf=lambda x: isinstance(x, PartitionSpec),
        )

    def jit(
        self,
        function: Callable[..., Any],
        in_specs: tuple[PyTree, ...],
        out_specs: PyTree,
        donate: tuple[int, ...] = (),
    ) -> Any:
        """Compile a function of one device's part to run on all devices.

        Args:
            function: takes `axis_name`, of the devices of a run, beside its arguments.
            in_specs: where the arguments lie: prefixes of their trees.
            out_specs: where the results lie.
            donate: arguments whose memory may be reused.
        """
        options = tuning().compiler_options
        if jax.device_count() > 1:
            # Also for functions on one device, which then round like those on all.
            options = options | tuning().options_of_many
        # Without an axis nothing is exchanged.
        function = partial(function, axis_name=None if self.num_devices == 1 else AXIS)
        if self.mesh.size == 1:  # there is no program to partition
            return jax.jit(function, donate_argnums=donate, compiler_options=options or None)
        spread = jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )
        return jax.jit(spread, donate_argnums=donate, compiler_options=options or None)


def _first_devices(num_devices: int) -> list[Any]:
    if num_devices == 1:
        return local_devices()[:1]
    if jax.process_count() == 1:
        return local_devices()[:num_devices]
    # By process, so that each holds a row of environments without gaps.
    count = jax.process_count()
    share = num_devices // count
    return [d for index in range(count) for d in jax.local_devices(process_index=index)[:share]]


def _own_part(x: jax.Array, sharding: NamedSharding) -> jax.Array:
    """Place this process's part of an array that every process has completely."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        words = _own_part(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(x))
    whole = np.asarray(x)
    own = sharding.addressable_devices_indices_map(x.shape)
    # Copied, as above.
    parts = [jax.device_put(whole[rows], device, may_alias=False) for device, rows in own.items()]
    return jax.make_array_from_single_device_arrays(x.shape, sharding, parts)


def own_rows(x: Any) -> Any:
    """Return the rows of an array on this process's devices, or all if it is replicated."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return x
    shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def _to_host(x: jax.Array) -> jax.Array | np.ndarray:
    """Copy an array to the host as a NumPy array; keys, which NumPy lacks, stay as they are."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


def state_specs() -> TrainState:
    """Return which parts of a state are spread over devices: all that belongs to environments."""
    return TrainState(
        population=SAME,
        training=SAME,
        per_env=BY_ENV,
        env_params=SAME,
        key=SAME,
        iteration=SAME,
    )


def of_runs(specs: PyTree) -> PyTree:
    """Return where data lies that has a leading axis of runs, from where a single run's does."""
    return jax.tree.map(
        lambda spec: PartitionSpec(RUNS, *spec),
        specs,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
    )


def rollout_specs() -> Rollout:
    """Return which parts of a rollout are spread over devices, and along which axis."""
    return Rollout(
        decisions=BY_STEP_AND_ENV,
        outcomes=BY_STEP_AND_ENV,
        faults=BY_STEP_AND_ENV,
        last_fault=BY_ENV,
        bootstrap_value=BY_ENV,
        tracker=BY_ENV,
    )
