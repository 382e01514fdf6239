"""A Ray cluster: how it is reached, what it has, and whether it runs what we run."""

# pyright: reportMissingImports=false

import importlib
import logging
import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_env_names import is_own
from jaxmarl_envs.user_envs import import_factory
from jaxmarl_ppo.config.checks import check_name, show
from jaxmarl_ppo.machine.extras import how_to_install

# What the driver and all others must have of the same version: what they exchange depends on it.
_PACKAGES = ("jaxmarl-ppo", "jaxmarl-envs", "jax", "flax", "optax")
KNOCK_S = 10.0


def import_ray(module: str = "ray") -> Any:
    """Import Ray, or one of its modules.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"a Ray cluster needs {error.name or 'ray'}: {how_to_install('ray')}"
        ) from error


def connect(address: str, *, shows_output: bool) -> Any:
    """Connect this process to a cluster, unless it is connected already.

    Args:
        address: as Ray takes it: `auto` for the cluster of this machine, HOST:PORT,
            `ray://HOST:PORT`, or `local` for a cluster that is started here and ends with this
            process.
        shows_output: whether what others print is shown here.

    Returns:
        The module `ray`.

    Raises:
        ValueError: If Ray is not installed, or nothing can be reached there.
    """
    check_name("address", address)
    ray = import_ray()
    if ray.is_initialized():
        return ray
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=shows_output, logging_level=logging.ERROR)
    # Ray's own versions differ: RuntimeError; what it cannot reach or read is all the others.
    except (ConnectionError, OSError, RuntimeError, ValueError, AssertionError) as error:
        raise ValueError(
            f"no Ray cluster can be reached at {show(address)}: {first_line(error)}"
        ) from error
    return ray


def _knock(address: str) -> None:
    """Check within seconds that a cluster answers, which Ray tries for two minutes.

    Raises:
        OSError: If no process is.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()


def alive_nodes(ray: Any) -> list[dict[str, float]]:
    """List what the nodes of a cluster that live have, such as `{"CPU": 8.0, "GPU": 1.0}`."""
    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def worker_resources(
    nodes: Sequence[Mapping[str, float]], num_cpus: int | None
) -> list[dict[str, float]]:
    """Choose workers for the nodes of a cluster: one for each GPU, else one for each node.

    Args:
        nodes: what each has.
        num_cpus: of a worker, where there are no GPUs, in which case there are as many as a node
            has room for; None for all of its node.

    Returns:
        What each worker takes.

    Raises:
        ValueError: If no node has what a worker needs.
    """
    gpus = sum(int(node.get("GPU", 0)) for node in nodes)
    if gpus:
        if num_cpus is not None:
            raise ValueError(
                f"cpus_per_worker={num_cpus} has no effect in a cluster with GPUs, where every "
                "worker has one; drop it"
            )
        return [
            {"GPU": 1.0, "CPU": min(1.0, node.get("CPU", 0.0) // node["GPU"])}
            for node in nodes
            for _ in range(int(node.get("GPU", 0)))
        ]
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if num_cpus is None:
        found = [{"CPU": float(count)} for count in cpus if count]
    else:
        found = [{"CPU": float(num_cpus)} for count in cpus for _ in range(count // num_cpus)]
    if not found:
        wanted = "a CPU or GPU" if num_cpus is None else f"{num_cpus} CPUs"
        there = ", ".join(map(str, cpus)) or "none"
        raise ValueError(f"no node of the cluster has {wanted}; CPUs of its nodes: {there}")
    return found


def versions() -> dict[str, str]:
    """Return the versions that must agree on all machines."""
    found = {name: metadata.version(name) for name in _PACKAGES}
    return found | {"python": platform.python_version()}


def check_versions(drivers: Mapping[str, str]) -> None:
    """Reject a machine whose versions differ from the driver's.

    Raises:
        ValueError: For the first that does.
    """
    for name, own in versions().items():
        if drivers.get(name) != own:
            raise ValueError(
                f"{platform.node()} has {name} {own}, but the driver has {drivers.get(name)}; "
                "install the same on all nodes of the cluster"
            )


@dataclass(frozen=True)
class Pickled:
    """Holds something about an environment as other machines can unpack it.

    Attributes:
        code: how an environment of one's own is named, whose code is imported first; None for an
            installed one.
        here: the folder in which that was named.
        content: as cloudpickle wrote it.
    """

    code: str | None
    here: str
    content: bytes


def pack(value: Any, env: MultiAgentEnv) -> Pickled:
    """Pack something that refers to an environment.

    Raises:
        ValueError: If other machines cannot import the environment's class.
    """
    if type(env).__module__ == "__main__":
        raise ValueError(
            f"environment {env.name!r} is a class of the script that runs, which workers cannot "
            "import; put it in a module beside the script, or install it"
        )
    name = None if env.made_as is None else env.made_as[0]
    code = name if name is not None and is_own(name) else None
    return Pickled(code, os.getcwd(), import_ray("ray.cloudpickle").dumps(value))


def unpack(packed: Pickled) -> Any:
    """Unpack what `pack` has packed, on a machine that has the environment's code too.

    Raises:
        ValueError: If it has not.
    """
    if packed.here not in sys.path:
        sys.path.append(packed.here)  # last, so that it hides nothing that is installed
    if packed.code is not None:
        import_factory(packed.code)
    try:
        return import_ray("ray.cloudpickle").loads(packed.content)
    except ImportError as error:
        raise ValueError(
            f"{platform.node()} cannot import what the driver has: {error}; install it on all "
            "nodes of the cluster"
        ) from error


def first_line(error: BaseException) -> str:
    """Describe an error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
