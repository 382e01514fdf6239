"""Cores of the CPU as devices, and how many devices a run is spread over."""

import os

import jax

from jaxmarl_envs.backend import backend, local_devices, usable_cores
from jaxmarl_ppo.machine.memory import keep_freed_memory

# By default no device has fewer environments: with so few, exchanging gradients costs more than
# another core gains.
MIN_ENVS_PER_DEVICE = 8


def use_cpu_cores(num_cores: int | None = None) -> None:
    """Make every CPU core a device; to be called before anything else is done with JAX.

    Training then spreads its environments over them, and freed memory is kept for the next
    iteration (`memory.keep_freed_memory`). Where JAX runs on accelerators nothing else changes.

    Args:
        num_cores: how many devices; None for one on each core that this process may use. More than
            there are cores share them: no faster, but a way to try out what several devices do.

    Raises:
        ValueError: If there is fewer than one, or JAX has started already.
    """
    if num_cores is not None and num_cores < 1:
        raise ValueError(f"num_cores must be at least 1, got {num_cores}")
    keep_freed_memory()
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return  # the user has said it already, and JAX takes only one of the two
    try:
        jax.config.update("jax_num_cpu_devices", num_cores or usable_cores())
    except RuntimeError as error:
        raise ValueError(
            "use_cpu_cores must be called before JAX starts, which the first array or environment "
            "makes it do; call it right after the imports"
        ) from error


def even_share(num_envs: int, most: int) -> int:
    """Count the devices, up to a limit, over which environments can be spread evenly."""
    return max(n for n in range(1, most + 1) if num_envs % n == 0)


def choose_num_devices(num_envs: int, wanted: int | None, steps_on_host: bool = False) -> int:
    """Choose how many devices a run is spread over; one where environments are stepped on the host.

    In a job of several processes as many of each, or a single one for what every process does for
    itself.

    Args:
        num_envs: parallel environments.
        wanted: the user's choice; None for as many as share `num_envs` evenly and leave each at
            least `MIN_ENVS_PER_DEVICE`.
        steps_on_host: whether environments are stepped in Python.

    Raises:
        ValueError: If there are not as many, not all can be used, or environments cannot be shared
            evenly.
    """
    if steps_on_host:
        if wanted not in (None, 1):
            raise ValueError(
                f"num_devices={wanted}: an environment that is stepped in Python runs beside one "
                "device; use num_devices=1"
            )
        return 1
    processes = jax.process_count()
    available = processes * len(local_devices())
    if wanted is None:
        if num_envs % processes:
            raise ValueError(
                f"num_envs={num_envs} cannot be shared out evenly over {processes} processes; make "
                "it a multiple"
            )
        most = min(available, num_envs // MIN_ENVS_PER_DEVICE) // processes
        return processes * even_share(num_envs // processes, max(1, most))
    if wanted > 1 and wanted % processes:
        raise ValueError(
            f"num_devices={wanted} cannot be shared out evenly over {processes} processes; make it "
            "a multiple, or leave it out"
        )
    _check_available(wanted, available)
    if num_envs % wanted:
        raise ValueError(
            f"num_envs={num_envs} cannot be shared out evenly over num_devices={wanted}; make it a "
            "multiple"
        )
    return wanted


def choose_devices_per_run(num_runs: int, num_envs: int, wanted: int | None) -> int:
    """Choose how many devices each of several runs side by side is spread over.

    Args:
        num_runs: number of runs.
        num_envs: parallel environments of each.
        wanted: the user's choice for all runs together; None for as many as there are for each run,
            as `choose_num_devices` chooses for a single one.

    Raises:
        ValueError: If there are not as many, or runs or environments cannot be shared evenly.
    """
    available = len(local_devices())
    if wanted is None:
        most = min(available // num_runs, num_envs // MIN_ENVS_PER_DEVICE)
        return even_share(num_envs, max(1, most))
    _check_available(wanted, available)
    if wanted <= num_runs:
        return 1
    if wanted % num_runs or num_envs % (wanted // num_runs):
        raise ValueError(
            f"num_devices={wanted} cannot be shared out evenly over {num_runs} runs of "
            f"{num_envs} envs each; make it at most {num_runs}, or {num_runs} times a divisor of "
            "num_envs"
        )
    return wanted // num_runs


def _check_available(wanted: int, available: int) -> None:
    if wanted > available:
        is_cpu = backend() == "cpu"
        raise ValueError(
            f"num_devices={wanted} exceeds the {available} that JAX sees here"
            + ("; call use_cpu_cores first" if is_cpu and available < usable_cores() else "")
        )
