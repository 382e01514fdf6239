"""Accelerators as compilation targets, without the hardware.

XLA compiles for a GPU from a description of it, and for a TPU from the name of its topology. It
also needs the platform's compiler, from the extras `gpu-aot` and `tpu-aot`.
"""

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jax.experimental import topologies

from jaxmarl_ppo.machine.extras import how_to_install


@dataclass(frozen=True)
class Chip:
    """Specification of a device, from its maker's data sheet.

    Attributes:
        platform: as JAX names its backend.
        name: in full.
        memory_gb: its memory, in 10^9 bytes.
        gb_per_s: memory bandwidth, in 10^9 bytes per second.
        tflops: multiplications and additions of matrices, in 10^12 per second, by
            `matmul_precision`. A TPU has only bfloat16, and makes a float32 product of six.
        compute_capability: of a GPU, major and minor.
        cores: of a GPU, its multiprocessors.
        clock_ghz: of a GPU.
        cache_mb: of a GPU, its second-level cache.
    """

    platform: Literal["gpu", "tpu"]
    name: str
    memory_gb: float
    gb_per_s: float
    tflops: Mapping[str, float]
    compute_capability: tuple[int, int] = (0, 0)
    cores: int = 0
    clock_ghz: float = 0.0
    cache_mb: int = 0


def _gpu_rates(float32: float, tf32: float) -> dict[str, float]:
    # On all of them bfloat16 matrices are twice as fast as TF32.
    return {"float32": float32, "tf32": tf32, "bfloat16": 2 * tf32}


def _tpu_rates(bfloat16: float) -> dict[str, float]:
    return {"float32": bfloat16 / 6, "bfloat16": bfloat16}


_H100 = _gpu_rates(67, 495)
CHIPS = {
    "a100": Chip(
        "gpu", "NVIDIA A100 80GB", 85.0, 2039, _gpu_rates(19.5, 156), (8, 0), 108, 1.41, 40
    ),
    "h100": Chip("gpu", "NVIDIA H100 80GB HBM3", 85.0, 3350, _H100, (9, 0), 132, 1.98, 50),
    "h200": Chip("gpu", "NVIDIA H200 141GB HBM3e", 151.4, 4800, _H100, (9, 0), 132, 1.98, 50),
    "b200": Chip("gpu", "NVIDIA B200", 191.5, 8000, _gpu_rates(75, 1100), (10, 0), 148, 1.97, 126),
    "v5e": Chip("tpu", "TPU v5e", 17.2, 819, _tpu_rates(197)),
    "v5p": Chip("tpu", "TPU v5p", 102.0, 2765, _tpu_rates(459)),
    "v6e": Chip("tpu", "TPU v6e", 34.4, 1640, _tpu_rates(918)),
}
GPUS = tuple(name for name, chip in CHIPS.items() if chip.platform == "gpu")
TPUS = tuple(name for name, chip in CHIPS.items() if chip.platform == "tpu")
# XLA's description of a GPU. Fixed values are the same from Ampere to Blackwell.
_DESCRIPTION = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  threads_per_core_limit: 2048
  core_count: {cores}
  fpus_per_core: {units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {shared_optin}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""


@dataclass(frozen=True)
class Target:
    """Compilation target: a chip, and devices of it.

    Attributes:
        chip: each of the devices.
        devices: for which JAX compiles; they cannot run programs.
    """

    chip: Chip
    devices: tuple[Any, ...]


def check_target(name: str, num_devices: int | None) -> Chip:
    """Look a target up.

    Args:
        name: a GPU, or a TPU and its topology, such as `v5e:2x2`.
        num_devices: number to use; None for one GPU or all of a topology.

    Raises:
        ValueError: If it is unknown, has fewer devices, or what compiles for it is not installed.
    """
    kind, _, topology = name.partition(":")
    valid = f"valid: {', '.join(GPUS)}, or {', '.join(TPUS)} with a topology, such as v5e:2x2"
    if kind not in CHIPS:
        raise ValueError(f"unknown target {name!r}; {valid}")
    chip = CHIPS[kind]
    if chip.platform == "gpu" and topology:
        raise ValueError(f"target {name!r}: a GPU has no topology; say --num-devices; {valid}")
    if chip.platform == "tpu" and not re.fullmatch(r"\d+x\d+(x\d+)?", topology):
        raise ValueError(f"target {name!r} lacks its topology; {valid}")
    if num_devices is not None and num_devices < 1:
        raise ValueError(f"num_devices must be at least 1, got {num_devices}")
    package, extra = (
        ("jax_plugins.xla_cuda13", "gpu-aot") if chip.platform == "gpu" else ("libtpu", "tpu-aot")
    )
    if not _is_there(package):
        raise ValueError(
            f"target {name!r} needs a compiler that is not installed: {how_to_install(extra)}"
        )
    return chip


def make_target(name: str, num_devices: int | None) -> Target:
    """Make the devices to compile for.

    Args:
        name: as `check_target` takes it.
        num_devices: as `check_target` takes it.

    Raises:
        ValueError: As `check_target`, or if the topology does not exist.
    """
    chip = check_target(name, num_devices)
    if chip.platform == "gpu":
        return Target(chip, _gpus(chip, num_devices or 1))
    found = _tpus(name)
    if num_devices is not None and num_devices > len(found):
        raise ValueError(f"num_devices={num_devices} exceeds the {len(found)} of target {name!r}")
    return Target(chip, found[: num_devices or len(found)])


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _gpus(chip: Chip, count: int) -> tuple[Any, ...]:
    shape = f"1x1x{count}"
    description = describe(chip)
    found = topologies.get_topology_desc(
        shape, platform="cuda", topology=shape, target_config=description
    )
    return tuple(found.devices)


def describe(chip: Chip) -> str:
    """Describe a GPU in XLA's format."""
    major, minor = chip.compute_capability
    newer = chip.compute_capability >= (9, 0)
    return _DESCRIPTION.format(
        shared=233472 if newer else 167936,
        shared_optin=232448 if newer else 166912,
        cores=chip.cores,
        units=128 if newer else 64,
        bandwidth=int(1e9 * chip.gb_per_s),
        cache=chip.cache_mb << 20,
        clock=chip.clock_ghz,
        memory=int(1e9 * chip.memory_gb),
        major=major,
        minor=minor,
        name=chip.name,
    )


def _tpus(topology: str) -> tuple[Any, ...]:
    # Otherwise the compiler queries the network about this machine.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # No chip is taken, so several processes may compile at once.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except Exception as error:
        raise ValueError(f"target {topology!r} is no topology of a TPU: {error}") from error
    return tuple(found.devices)
