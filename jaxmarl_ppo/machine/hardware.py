"""Descriptions of the computer that a benchmark ran on."""

import platform
import sys
from typing import Any

import jax

from jaxmarl_envs.backend import usable_cores


def describe_hardware() -> dict[str, Any]:
    """Describe the machine that figures were taken on."""
    return {
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "num_devices": jax.device_count(),
        "cpus": usable_cores(),
        "processor": processor_name(),
        "jax": jax.__version__,
        "python": sys.version.split()[0],
    }


def processor_name() -> str:
    """Read what the CPU calls itself."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        return names[0] if names else "unknown"
    except OSError:
        return platform.processor() or platform.machine()
