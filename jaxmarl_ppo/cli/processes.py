"""One command in several processes: join a job that is already started, or start one here."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from jaxmarl_envs.backend import usable_cores
from jaxmarl_envs.lifeline import BoundProcess
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.main import module_of
from jaxmarl_ppo.devices.processes import ENDED_FOR_ANOTHER
from jaxmarl_ppo.machine.interruption import SIGNALS
from jaxmarl_ppo.machine.text import LINES, printable

# What a process of the job runs: the command that `sys.argv` holds.
_CODE = (
    "import sys; from jaxmarl_envs.lifeline import hold; hold(int(sys.argv.pop(1))); "
    "from jaxmarl_ppo.cli.main import main; main()"
)
_POLL_S = 0.05
# When a process has died, the others end by themselves within this many seconds, or are ended.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class JobOptions:
    """Options of commands that several processes can run together.

    Attributes:
        processes: start this many processes on this machine, which share its cores and train the
            run together.
        distributed: join a job of several processes that were started alike on all machines. Under
            SLURM, Open MPI and Kubernetes, the next three options are detected.
        coordinator: HOST:PORT of the first process of the job.
        num_processes: number of processes of the job.
        process_id: index of this process, from 0.
        ray: address of a Ray cluster that places and watches the processes: `auto` for the cluster
            of this machine, HOST:PORT, or ray://HOST:PORT.
        num_hosts: number of processes on the cluster, each on a host of its own with all of its
            devices.
        max_failures: number of times that the processes resume from the newest checkpoint after one
            is lost; None for three.
    """

    processes: int | None = None
    distributed: bool = False
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    ray: str | None = None
    num_hosts: int | None = None
    max_failures: int | None = None


def prepare(options: JobOptions, num_devices: int | None) -> None:
    """Make devices of this process's cores, and join the job that the options name.

    Args:
        options: what the command line says.
        num_devices: how many the whole job is to have; None for one on each core.

    Raises:
        ValueError: For options without effect, or a job that cannot be joined.
    """
    named = ("coordinator", "num_processes", "process_id")
    for name in ("num_hosts", "max_failures"):
        if getattr(options, name) is not None:
            raise ValueError(f"{session.flag(name)} has no effect without --ray")
    if not options.distributed:
        for name in named:
            if getattr(options, name) is not None:
                raise ValueError(f"{session.flag(name)} has no effect without --distributed")
        session.use_cpu_cores(num_devices)
        return
    from jaxmarl_ppo.devices.joining import join_processes

    job = join_processes(*(getattr(options, name) for name in named))
    session.use_cpu_cores(None if num_devices is None else -(-num_devices // job.count))


def launch(options: JobOptions, command: str, args: Sequence[str]) -> int:
    """Run a command in several processes on this machine, and end when they have.

    The first one's output is shown, and what the others write to standard error. They end with this
    process, whatever ends it.

    Args:
        options: with `processes`.
        command: such as `train`.
        args: what was typed after it.

    Returns:
        The exit status: of the first process that did not end well, else 0.

    Raises:
        ValueError: If options are inconsistent.
    """
    count = options.processes
    assert count is not None
    if count < 1:
        raise ValueError(f"--processes must be at least 1, got {count}")
    if options.distributed:
        raise ValueError("--processes starts a job and --distributed joins one; drop one of them")
    common = [command, *_without(args, "--processes")]
    common += ["--distributed", "--coordinator", f"127.0.0.1:{_free_port()}"]
    common += ["--num-processes", str(count)]
    children = []
    for index, cores in enumerate(shares(usable_cores(), count)):
        with _on_cores(cores):
            children.append(_start(common, index))
    tellers = [
        threading.Thread(target=_tell, args=(index, child), daemon=True)
        for index, child in enumerate(children)
        if index
    ]
    for teller in tellers:
        teller.start()
    with _passing_on(children[0]):
        status = _wait(children)
    for teller in tellers:
        teller.join(timeout=1.0)
    return status


def launch_on_ray(
    options: JobOptions,
    command: str,
    args: Sequence[str],
    run_dir: Path | None,
    resume_args: Sequence[str],
) -> int:
    """Run a command in processes on the hosts of a Ray cluster.

    Args:
        options: with `ray`.
        command: such as `train`.
        args: what was typed after it.
        run_dir: the folder of the run.
        resume_args: what is to be typed after `resume` where a process was lost.

    Returns:
        The exit status.

    Raises:
        ValueError: If options are inconsistent, or anything else went wrong.
    """
    from jaxmarl_ppo.on_ray.job import DEFAULT_FAILURES, Plan, train_on_hosts

    others = ("processes", "coordinator", "num_processes", "process_id")
    for name in ("distributed", *others):
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--ray starts a job; drop {session.flag(name)}")
    if options.num_hosts is None:
        raise ValueError("--ray needs --num-hosts, how many hosts are to train")
    if options.num_hosts < 1:
        raise ValueError(f"--num-hosts must be at least 1, got {options.num_hosts}")
    failures = DEFAULT_FAILURES if options.max_failures is None else options.max_failures
    if failures < 0:
        raise ValueError(f"--max-failures must be at least 0, got {failures}")
    if run_dir is None:
        raise ValueError("--ray needs --run-dir, a folder that all hosts share")
    assert options.ray is not None
    plan = Plan(
        begin=(module_of(command), without_ray(args)),
        go_on=(module_of("resume"), resume_args),
        run_dir=str(run_dir.absolute()),
        here=os.getcwd(),
        num_cpus=0,
    )
    return train_on_hosts(options.ray, options.num_hosts, failures, plan)


def shares(num_cores: int, count: int) -> list[range]:
    """Share cores out to processes: each has its own, or they take turns where there are fewer."""
    if count > num_cores:
        return [range(index % num_cores, index % num_cores + 1) for index in range(count)]
    ends = [index * num_cores // count for index in range(count + 1)]
    return [range(ends[index], ends[index + 1]) for index in range(count)]


def _start(common: Sequence[str], index: int) -> "subprocess.Popen[bytes]":
    # In sessions of their own, so that Ctrl-C in the terminal reaches them once, by this process.
    return BoundProcess(
        _CODE,
        [*common, "--process-id", str(index)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if index else None,
        stderr=subprocess.PIPE if index else None,
    )


@contextlib.contextmanager
def _on_cores(cores: range) -> Iterator[None]:
    """Let processes that are started meanwhile run on some of the usable cores only."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(own)[core] for core in cores})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextlib.contextmanager
def _passing_on(first: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass termination signals to the first process, which notifies the others."""

    def handle(signum: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            first.send_signal(signum)

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(children: "Sequence[subprocess.Popen[bytes]]") -> int:
    """Wait for all processes; where one does not end well, the others have little time left."""
    cause, deadline = 0, float("inf")
    while not cause or any(child.poll() is None for child in children):
        codes = [child.poll() for child in children]
        if not cause:
            cause = _cause(codes)
            if None not in codes and not cause:
                return 0
            deadline = time.monotonic() + _PATIENCE_S if cause else deadline
            if cause < 0:
                index, name = codes.index(cause), signal.Signals(-cause).name
                _say(f"error: process {index} was ended by {name}")
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(_POLL_S)
    return 128 - cause if cause < 0 else cause


def _cause(codes: Sequence[int | None]) -> int:
    """Return the status that best explains a failed job; 0 where no process failed.

    Those that ended for another's sake come last, and whom a signal ended, first.
    """
    failed = [code for code in codes if code]
    return min(failed, key=lambda code: (code == ENDED_FOR_ANOTHER, code > 0), default=0)


def _tell(index: int, child: "subprocess.Popen[bytes]") -> None:
    """Copy a process's standard error, with its number."""
    assert child.stderr is not None
    with child.stderr:
        for line in child.stderr:
            _say(f"process {index}: {line.decode(errors='replace').rstrip()}")


def _say(line: str) -> None:
    print(printable(line, keep=LINES), file=sys.stderr, flush=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def without_ray(args: Sequence[str]) -> list[str]:
    """Leave out what is said of a Ray cluster."""
    return _without(args, "--ray", "--num-hosts", "--max-failures")


def _without(args: Sequence[str], *options: str) -> list[str]:
    """Leave out options that start processes, with their values."""
    rest, words = [], iter(args)
    for word in words:
        name, has_value, _ = word.partition("=")
        if name.replace("_", "-") not in options:
            rest.append(word)
        elif not has_value:
            next(words, None)
    return rest
