"""The workers of a search on a Ray cluster.

Each is an actor, which Ray places, monitors and restarts elsewhere when its node is lost. The last
intermediate result of a run contains its complete state, from which another worker resumes the run
if this one is lost.
"""

# pyright: reportMissingImports=false

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmarl_ppo.machine.compilation_cache import use_compilation_cache
from jaxmarl_ppo.machine.cores import use_cpu_cores
from jaxmarl_ppo.on_ray.cluster import (
    Pickled,
    alive_nodes,
    check_versions,
    connect,
    pack,
    unpack,
    versions,
    worker_resources,
)
from jaxmarl_ppo.sweeps.candidates import Candidate, Candidates, Values
from jaxmarl_ppo.sweeps.worker import Worker
from jaxmarl_ppo.sweeps.workers import IntermediateResult, RunName, Saved

# A worker hears of runs that begin or end after at most about this long.
TURN_S = 1.0
_POLL_S = 0.5
# A run whose workers are lost so often before it is looked at again has failed.
MAX_LOSSES = 3
# After this time without any worker a message explains the wait.
PATIENCE_S = 30.0


@dataclass
class Order:
    """A run for a worker to train.

    Attributes:
        name: of the run.
        values: what it is made of.
        folder: of its record, for messages.
        saved: where it stood when it was looked at last; None before that.
        losses: workers that were lost since then.
    """

    name: RunName
    values: Values
    folder: Path
    saved: Saved | None = None
    losses: int = 0


class RemoteWorker:
    """A worker in a process of the cluster.

    Args:
        num_cpus: that Ray has given it, where it has no accelerator.
    """

    def __init__(self, num_cpus: int) -> None:
        use_cpu_cores(max(1, num_cpus))
        use_compilation_cache()

    def start(self, drivers: dict[str, str], candidates: Pickled, num_replicas: int) -> None:
        """Begin with nothing, whatever there was before.

        Args:
            drivers: versions of the driver.
            candidates: `Candidates`.
            num_replicas: how many runs side by side.

        Raises:
            ValueError: If versions differ, or the environment's code is not here.
        """
        check_versions(drivers)
        self._candidates: Candidates = unpack(candidates)
        self._worker = Worker(num_replicas, saves=True)

    def work(self, begun: list[Order], ended: list[RunName]) -> list[IntermediateResult]:
        """End and begin runs, and train until one is looked at, but not for long."""
        for name in ended:
            self._worker.end(name)
        for order in begun:
            candidate = self._candidates.make(order.values)
            self._worker.begin(order.name, candidate, order.folder, order.saved)
        deadline = time.monotonic() + TURN_S
        results: list[IntermediateResult] = []
        while not results and time.monotonic() < deadline and self._worker.is_busy:
            results = self._worker.train()
        return results


@dataclass
class Seat:
    """The driver's record of a worker.

    Attributes:
        actor: Ray's handle.
        is_ready: whether it has started.
        orders: its runs.
        begun: runs to begin that have not been sent to it yet.
        ended: runs to end that have not been sent to it yet.
        call: what it is doing; None for nothing.
    """

    actor: Any
    is_ready: bool = False
    orders: dict[RunName, Order] = field(default_factory=dict)
    begun: list[Order] = field(default_factory=list)
    ended: list[RunName] = field(default_factory=list)
    call: Any = None


class RayWorkers:
    """Trains the runs of a search on a Ray cluster.

    Args:
        address: of the cluster, as `connect` takes it.
        cpus_per_worker: where there are no GPUs; None for all of a node.
        candidates: makes runs of values.
        num_members: how many each worker trains side by side.

    Raises:
        ValueError: If the cluster cannot be reached, or has nothing for a worker, or the
            environment is of no use there.
    """

    def __init__(
        self,
        address: str,
        cpus_per_worker: int | None,
        candidates: Candidates,
        num_members: int,
    ) -> None:
        self._ray = connect(address, shows_output=False)
        self._num_members = num_members
        packed = self._ray.put(pack(candidates, candidates.env))
        self._start_with = (versions(), packed, num_members)
        self._waiting: list[Order] = []
        remote = self._ray.remote(RemoteWorker)
        self._seats = []
        for wanted in worker_resources(alive_nodes(self._ray), cpus_per_worker):
            cpus, gpus = wanted.get("CPU", 0.0), wanted.get("GPU", 0.0)
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": -1}
            self._seats.append(Seat(remote.options(**options).remote(int(cpus))))
        self._alone_since: float | None = time.monotonic()

    @property
    def room(self) -> int:
        """Return how many runs can begin now, on workers that have started."""
        there = sum(self._room_of(seat) for seat in self._seats if seat.is_ready)
        return there - len(self._waiting)

    def begin(self, name: RunName, candidate: Candidate, folder: Path) -> None:
        """Begin a run; see `Workers`."""
        self._waiting.append(Order(name, candidate.values, folder))

    def end(self, name: RunName) -> None:
        """End a run, unless it is over already or has failed."""
        self._waiting = [order for order in self._waiting if order.name != name]
        for seat in self._seats:
            if seat.orders.pop(name, None) is not None:
                waits = [order for order in seat.begun if order.name == name]
                for order in waits:
                    seat.begun.remove(order)
                if not waits:
                    seat.ended.append(name)

    def train(self) -> list[IntermediateResult]:
        """Have runs trained, and return what was looked at meanwhile.

        Raises:
            ValueError: If versions differ, or no report has the objective's measure.
        """
        self._place_waiting()
        for seat in self._seats:
            self._call(seat)
        calls = {seat.call: seat for seat in self._seats if seat.call is not None}
        self._warn_of_waiting()
        if not calls:
            return []
        done, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        if not done:
            done, _ = self._ray.wait(list(calls), num_returns=1, timeout=_POLL_S)
        return [result for call in done for result in self._take(calls[call])]

    def close(self) -> None:
        """End all workers."""
        for seat in self._seats:
            self._ray.kill(seat.actor)
        self._seats = []

    def _room_of(self, seat: Seat) -> int:
        return self._num_members - len(seat.orders)

    def _place_waiting(self) -> None:
        """Assign runs to the workers with the most room."""
        while self._waiting:
            ready = [seat for seat in self._seats if seat.is_ready and self._room_of(seat)]
            if not ready:
                return
            seat, order = max(ready, key=self._room_of), self._waiting.pop(0)
            seat.orders[order.name] = order
            seat.begun.append(order)

    def _call(self, seat: Seat) -> None:
        """Have a worker do the next thing, unless it is busy or there is none."""
        if seat.call is not None:
            return
        if not seat.is_ready:
            seat.call = seat.actor.start.remote(*self._start_with)
        elif seat.orders or seat.ended:
            seat.call = seat.actor.work.remote(seat.begun, seat.ended)
            seat.begun, seat.ended = [], []

    def _take(self, seat: Seat) -> Iterator[IntermediateResult]:
        """Take what a worker has done."""
        call, seat.call = seat.call, None
        errors = self._ray.exceptions
        try:
            results = self._ray.get(call)
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            yield from self._lose(seat, error)
            return
        if not seat.is_ready:
            seat.is_ready, self._alone_since = True, None
            return
        for result in results:
            order = seat.orders.get(result.name)
            if order is None:
                continue  # it was ended meanwhile
            order.saved, order.losses = result.saved, 0
            if result.is_over or result.error is not None:
                del seat.orders[result.name]
            yield result

    def _lose(self, seat: Seat, error: Exception) -> Iterator[IntermediateResult]:
        """Resume the runs of a lost worker from their last results, on others or on it."""
        orders = list(seat.orders.values())
        if orders:
            warnings.warn(
                f"a worker of the search is lost ({type(error).__name__}); its {len(orders)} runs "
                "continue elsewhere from their last intermediate results",
                RuntimeWarning,
                stacklevel=2,
            )
        elif not seat.is_ready:
            # It restarts as soon as Ray finds a place for it, unless it cannot start at all.
            self._check_startable(error)
        seat.is_ready, seat.orders, seat.begun, seat.ended = False, {}, [], []
        for order in orders:
            order.losses += 1
            if order.losses < MAX_LOSSES:
                self._waiting.append(order)
                continue
            sentence = f"{MAX_LOSSES} workers were lost one after the other while they trained it"
            yield IntermediateResult(order.name, 0, False, error=sentence)

    def _check_startable(self, error: Exception) -> None:
        """Reject a cluster whose machines cannot start a worker at all.

        Raises:
            ValueError: For example if this package is not installed.
        """
        if isinstance(error, self._ray.exceptions.ActorDiedError):
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise ValueError(f"a worker cannot start on the cluster: {lines[-1]}") from error

    def _warn_of_waiting(self) -> None:
        """Explain the wait once if no worker starts."""
        since = self._alone_since
        if since is not None and time.monotonic() - since > PATIENCE_S:
            self._alone_since = None
            warnings.warn(
                f"no worker of the search has started in {PATIENCE_S:g} s: the cluster has no room "
                "for one yet; waiting",
                RuntimeWarning,
                stacklevel=2,
            )


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster on which a search can run: `Sweep(...).run(RayCluster("auto").workers)`.

    Attributes:
        address: as Ray takes it: `auto`, HOST:PORT, `ray://HOST:PORT`, or `local`.
        cpus_per_worker: CPUs of each worker where there are no GPUs; None for a worker on each
            node with all of its CPUs.
    """

    address: str = "auto"
    cpus_per_worker: int | None = None

    def __post_init__(self) -> None:
        if self.cpus_per_worker is not None and self.cpus_per_worker < 1:
            raise ValueError(f"cpus_per_worker must be at least 1, got {self.cpus_per_worker}")

    def workers(self, candidates: Candidates, num_members: int) -> RayWorkers:
        """Make the workers of a search; see `RayWorkers`.

        Raises:
            ValueError: If the cluster cannot be reached, or has nothing for a worker.
        """
        return RayWorkers(self.address, self.cpus_per_worker, candidates, num_members)
