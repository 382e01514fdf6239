"""Data parallelism: environments spread over devices, parameters the same on all.

Every device plays its own environments and computes gradients of its own decisions; each optimiser
step takes the sum. On a CPU a core is worth more as a device of its own than as half a team: matrix
products of this size take about as long as waking another thread for half of them.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.machine.awake import usable_cores
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import BankState, FrozenBank, PyTree, TrainState

AXIS = "devices"
# Unless a configuration says otherwise, no device has fewer environments: with so few, exchanging
# gradients costs more than another core gains.
MIN_ENVS_PER_DEVICE = 8
# Compiler options on a CPU. XLA keeps to vectors of 256 bits where a core has 512; others are not
# affected.
WIDE_VECTORS: dict[str, Any] = {"xla_cpu_prefer_vector_width": 512}
# CPU devices are cores here, so none is to share its operations out.
ONE_CORE_EACH: dict[str, Any] = {"xla_cpu_multi_thread_eigen": False}
# Where arguments and results lie, for trees of any kind.
SAME: Any = PartitionSpec()
BY_ENV: Any = PartitionSpec(AXIS)
BY_TICK_AND_ENV: Any = PartitionSpec(None, AXIS)


def use_cpu_cores(num_cores: int | None = None) -> None:
    """Make every CPU core a device; to be called before anything else is done with JAX.

    Training then spreads its environments over them. Where JAX runs on accelerators nothing
    changes.

    Args:
        num_cores: how many; None for all that this process may use.

    Raises:
        ValueError: fewer than one, or JAX has started already.
    """
    if num_cores is not None and num_cores < 1:
        raise ValueError(f"num_cores must be at least 1, got {num_cores}")
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return  # the user has said it already, and JAX takes only one of the two
    try:
        jax.config.update("jax_num_cpu_devices", num_cores or usable_cores())
    except RuntimeError as error:
        raise ValueError(
            "use_cpu_cores must be called before JAX starts, which the first array or environment "
            "makes it do; call it right after the imports"
        ) from error


def can_spread() -> bool:
    """Whether this JAX compiles a training step for several devices; that of 0.11 crashes on it."""
    return jax.__version_info__ < (0, 11)


def even_share(num_envs: int, most: int) -> int:
    """Devices, at most so many, over which environments can be spread evenly."""
    return max(n for n in range(1, most + 1) if num_envs % n == 0)


def choose_num_devices(config: TrainConfig, steps_on_host: bool = False) -> int:
    """How many devices a run is spread over; one where environments are stepped on the host.

    Raises:
        ValueError: more than there are or than can be used, or environments that cannot be shared
            out evenly.
    """
    if steps_on_host:
        if config.num_devices not in (None, 1):
            raise ValueError(
                f"num_devices={config.num_devices}: an environment that is stepped in Python runs "
                "beside one device; use num_devices=1"
            )
        return 1
    available, num_envs = jax.local_device_count(), config.num_envs
    if not can_spread():
        if config.num_devices not in (None, 1):
            raise ValueError(
                f"num_devices={config.num_devices}: the compiler of JAX {jax.__version__} crashes "
                "on several devices; use num_devices=1, or JAX 0.10"
            )
        return 1
    if config.num_devices is None:
        most = max(1, min(available, num_envs // MIN_ENVS_PER_DEVICE))
        return even_share(num_envs, most)
    if config.num_devices > available:
        raise ValueError(
            f"num_devices={config.num_devices} exceeds the {available} that JAX sees here"
            + ("; call use_cpu_cores first" if jax.default_backend() == "cpu" else "")
        )
    if num_envs % config.num_devices:
        raise ValueError(
            f"num_envs={num_envs} cannot be shared out evenly over num_devices="
            f"{config.num_devices}; make it a multiple"
        )
    return config.num_devices


class Devices:
    """The devices of a run: what of it lies where, and functions that run on all.

    Args:
        num_devices: how many, the first that JAX sees.
    """

    def __init__(self, num_devices: int) -> None:
        self.num_devices = num_devices
        self._mesh = Mesh(np.array(jax.local_devices()[:num_devices]), (AXIS,))

    def place(self, state: TrainState) -> TrainState:
        """Spread a state that lies on one device."""
        if self.num_devices == 1:
            return state
        specs = state_specs(state)
        shardings = jax.tree.map(lambda spec: NamedSharding(self._mesh, spec), specs)
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
            alone = partial(function, axis_name=None)
            return jax.jit(alone, donate_argnums=donate, compiler_options=options)
        spread = jax.shard_map(
            partial(function, axis_name=AXIS),
            mesh=self._mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )
        if options is not None:
            options = options | ONE_CORE_EACH
        return jax.jit(spread, donate_argnums=donate, compiler_options=options)


def _to_host(x: jax.Array) -> jax.Array | np.ndarray:
    """The same as a NumPy array; keys, which are none, stay as they are."""
    return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)


def state_specs(state: TrainState) -> TrainState:
    """Which parts of a state are spread over devices: all that belongs to environments."""
    return TrainState(
        banks=tuple(_bank_specs(bank) for bank in state.banks),
        league=SAME,
        games=BY_ENV,
        slots=BY_ENV,
        episode_stats=BY_ENV,
        env_params=SAME,
        key=SAME,
        iteration=SAME,
    )


def _bank_specs(bank: BankState | FrozenBank) -> Any:
    if isinstance(bank, FrozenBank):
        return SAME
    return BankState(
        policies=SAME,
        opt_state=SAME,
        kl_coef=SAME,
        hyperparams=SAME,
        pending=BY_ENV,
        return_trace=BY_ENV,
    )


def rollout_specs() -> Rollout:
    """The same of a rollout's record."""
    return Rollout(
        decisions=BY_TICK_AND_ENV,
        lanes=BY_TICK_AND_ENV,
        outcomes=BY_TICK_AND_ENV,
        faults=BY_TICK_AND_ENV,
        bootstrap_value=BY_ENV,
        start_hidden=BY_ENV,
        followed=BY_ENV,
    )
