"""Cores of a virtual machine, kept awake while they wait for each other.

The devices of a CPU wait for each other at every optimiser step. A virtual core that waits goes
back to its host, and what runs on it afterwards runs slowly for up to a second. So a process of the
lowest priority spins on every core: it only gets time that nothing else wants, and the host leaves
the cores to this machine. Linux first divides the cores between sessions, and only then by
priority, so the spinning yields to programs of its own session only. Compared with other sessions
it counts as part of the run.

JAX is not imported before it is needed: programs that do without it keep cores awake, too.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxmarl_envs.backend import usable_cores

# Ends with the process that started it, however that ends. Ctrl-C is for that one alone.
SPIN = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
parent, core = map(int, sys.argv[1:])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
os.sched_setaffinity(0, {core})
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""


def helps(num_devices: int) -> bool:
    """Return whether a run gains by cores that are kept awake.

    That is on a virtual machine all of whose cores are devices of the run, and without a quota that
    spinning would use up.

    Args:
        num_devices: how many devices the run is spread over.
    """
    all_cores = num_devices == usable_cores() > 1
    return _obstacle() is None and all_cores and is_virtual() and not has_cpu_quota()


def check_possible() -> None:
    """Reject to keep cores awake where that cannot be done or has no effect.

    Raises:
        ValueError: If training does not run on the CPU, or the system has no such processes.
    """
    obstacle = _obstacle()
    if obstacle:
        raise ValueError(f"keep_cores_awake=True, but {obstacle}; leave it out")


def _obstacle() -> str | None:
    """Explain why cores cannot be kept awake; None where they can."""
    import jax

    if jax.default_backend() != "cpu":
        return f"training runs on a {jax.default_backend()}"
    if not hasattr(os, "SCHED_IDLE"):
        return f"{sys.platform} has no priority that yields to everything else"
    return None if sys.executable else "there is no Python interpreter to start"


@contextlib.contextmanager
def cores_awake(wanted: bool) -> Iterator[None]:
    """Keep all cores that this process may use awake for as long as the body runs.

    Args:
        wanted: where False, nothing is done.
    """
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        for core in sorted(os.sched_getaffinity(0)) if wanted else ():
            # Isolated and without site packages, so that it starts at once and stays small.
            command = [sys.executable, "-I", "-S", "-c", SPIN, str(os.getpid()), str(core)]
            none = subprocess.DEVNULL
            spinners.append(subprocess.Popen(command, stdin=none, stdout=none, stderr=none))
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def is_virtual(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this is a virtual machine, as x86 processors report."""
    with contextlib.suppress(OSError):
        return any(
            line.startswith("flags") and "hypervisor" in line.split()
            for line in cpuinfo.read_text().splitlines()
        )
    return False


def has_cpu_quota(
    groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> bool:
    """Return whether the time on all cores together is limited, as it often is in containers."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        place, name = (mount / "cpu", "cpu.cfs_quota_us") if controllers else (mount, "cpu.max")
        for folder in (place / path.lstrip("/"), place):  # a container sees its own as the root
            with contextlib.suppress(OSError):
                if (folder / name).read_text().split()[0] not in ("max", "-1"):
                    return True
    return False
