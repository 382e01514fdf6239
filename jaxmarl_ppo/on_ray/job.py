"""One run trained by several hosts of a Ray cluster.

Ray Train's `JaxTrainer` places a worker on each host, monitors them, and restarts all of them where
one is lost. Its own joining supports TPUs, and GPUs with one per worker; ours also supports CPUs,
and ends all processes together. So each worker runs the command of `--distributed` with the address
of the first one, and resumes from the newest checkpoint where there is one.
"""

# pyright: reportMissingImports=false

import contextlib
import importlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.on_ray.cluster import check_versions, connect, first_line, import_ray, versions
from jaxmarl_ppo.runs.checkpoints import checkpoints_of

DEFAULT_FAILURES = 3
_COORDINATOR = "JAXMARL_PPO_COORDINATOR"
# What Ray Train would do to workers: print everything twice, log what libraries tell themselves,
# and go to a folder of its own.
_RAYS_OWN = (
    "RAY_TRAIN_ENABLE_PRINT_PATCH",
    "RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING",
    "RAY_CHDIR_TO_TRIAL_DIR",
)


@dataclass(frozen=True)
class Plan:
    """Instructions for every host.

    Attributes:
        begin: module of the command that begins, and what was typed after it.
        go_on: the same, for a run that has a checkpoint.
        run_dir: the folder of the run.
        here: the folder that the command was typed in.
        num_cpus: of each host, where there are no accelerators; 0 where there are.
    """

    begin: tuple[str, Sequence[str]]
    go_on: tuple[str, Sequence[str]]
    run_dir: str
    here: str
    num_cpus: int


def train_on_hosts(address: str, num_hosts: int, max_failures: int, plan: Plan) -> int:
    """Train a run on several hosts of a cluster.

    Args:
        address: of the cluster, as `connect` takes it.
        num_hosts: how many.
        max_failures: how often all hosts restart from the newest checkpoint when one is lost.
        plan: what each does; `num_cpus` is filled in.

    Returns:
        The exit status.

    Raises:
        ValueError: If the cluster cannot be reached, has too few hosts, or a host runs other
            versions, or the job failed.
    """
    for name in _RAYS_OWN:
        os.environ.setdefault(name, "0")
    ray = connect(address, shows_output=True)
    train, jax_trainer = import_ray("ray.train"), import_ray("ray.train.v2.jax")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    resources = host_resources([node["Resources"] for node in nodes], num_hosts)
    _check_nodes(ray, nodes, resources, plan.here)
    uses_gpu = "GPU" in resources
    plan = Plan(**{**asdict(plan), "num_cpus": 0 if uses_gpu else int(resources["CPU"])})
    trainer = jax_trainer.JaxTrainer(
        run_on_host,
        train_loop_config=asdict(plan),
        jax_config=_join_config(),
        scaling_config=train.ScalingConfig(
            num_workers=num_hosts,
            use_gpu=uses_gpu,
            resources_per_worker=resources,
            placement_strategy="STRICT_SPREAD",
        ),
        run_config=train.RunConfig(
            name=f".{Path(plan.run_dir).name}.ray",
            storage_path=str(Path(plan.run_dir).parent),
            failure_config=train.FailureConfig(max_failures=max_failures),
            logging_config=import_ray("ray.train.v2.api.config").LoggingConfig("ERROR"),
        ),
    )
    with _own_signals(), _without_rays_folder(plan.run_dir):
        try:
            told = trainer.fit().return_value
        except (train.TrainingFailedError, SystemExit) as error:
            why = "Ctrl-C" if isinstance(error, SystemExit) else _cause_of(ray, error)
            raise ValueError(f"the job has ended: {why}{_how_to_go_on(plan)}") from error
    if told["error"] is not None:
        raise ValueError(told["error"])
    return told["status"]


def host_resources(nodes: Sequence[dict[str, float]], num_hosts: int) -> dict[str, float]:
    """Choose what each host of a job takes: all that the weakest of them has.

    Args:
        nodes: what the nodes of a cluster have.
        num_hosts: how many are wanted.

    Raises:
        ValueError: If there are not so many, or not so many with GPUs where one has.
    """
    kind = "GPU" if any(node.get("GPU", 0) >= 1 for node in nodes) else "CPU"
    able = sorted((node for node in nodes if node.get(kind, 0) >= 1), key=lambda n: -n[kind])
    if len(able) < num_hosts:
        raise ValueError(
            f"num_hosts={num_hosts} exceeds the {len(able)} nodes of the cluster that have a {kind}"
        )
    chosen = able[:num_hosts]
    cpus = float(min(int(node.get("CPU", 0)) for node in chosen))
    if kind == "CPU":
        return {"CPU": cpus}
    return {"GPU": float(min(int(node["GPU"]) for node in chosen)), "CPU": cpus}


def run_on_host(config: dict[str, Any]) -> dict[str, Any]:
    """Be a process of the job: what Ray Train calls on each of its workers.

    Returns:
        The command's exit status, and an error of the user's in a sentence, or None.
    """
    from ray.train import get_context

    plan, rank = Plan(**config), get_context().get_world_rank()
    os.chdir(plan.here)
    if plan.num_cpus:
        flag = f"--xla_force_host_platform_device_count={plan.num_cpus}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    run_dir = Path(plan.run_dir)
    continues = bool(checkpoints_of(run_dir))
    if rank == 0 and not continues and plan.begin != plan.go_on:
        # Of workers that were lost before the first checkpoint; the driver has found it unused.
        shutil.rmtree(run_dir, ignore_errors=True)
    command, args = plan.go_on if continues else plan.begin
    job = ["--distributed", "--coordinator", os.environ[_COORDINATOR]]
    job += ["--num-processes", str(get_context().get_world_size()), "--process-id", str(rank)]
    told: dict[str, Any] = {"status": 0, "error": None}
    try:
        told["status"] = importlib.import_module(command).main([*args, *job])
    except ValueError as error:
        told["error"] = str(error)
    sys.stdout.flush()
    _leave_job()
    return told


def _leave_job() -> None:
    """Part from the other processes; Ray ends this one without a word."""
    import jax

    from jaxmarl_ppo.devices.joining import current

    current().leave()
    jax.distributed.shutdown()


def _join_config() -> Any:
    """Make the configuration by which all workers learn where the first one is."""
    backend = import_ray("ray.train.backend")
    jax_config = import_ray("ray.train.v2.jax").JaxConfig

    class ReportCoordinator(backend.Backend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            del backend_config
            coordinator = worker_group.execute_single(0, free_address)
            worker_group.execute(keep_coordinator, coordinator)

    class JoinConfig(jax_config):
        @property
        def backend_cls(self) -> Any:
            return ReportCoordinator

    return JoinConfig()


def free_address() -> str:
    """Find a free port of this node: HOST:PORT."""
    host = import_ray("ray.util").get_node_ip_address()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(("", 0), family=family) as server:
        port = server.getsockname()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def keep_coordinator(address: str) -> None:
    """Store the address of the first process in this worker's process."""
    os.environ[_COORDINATOR] = address


def _check_nodes(
    ray: Any, nodes: Sequence[dict[str, Any]], resources: dict[str, float], here: str
) -> None:
    """Reject a cluster whose machines run other versions, or do not see the driver's folder.

    Raises:
        ValueError: For the first of them.
    """
    strategies = import_ray("ray.util.scheduling_strategies")
    check = ray.remote(num_cpus=0, max_retries=0)(check_node)
    calls = [
        check.options(
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=False
            )
        ).remote(versions(), here)
        for node in nodes
        if all(node["Resources"].get(name, 0) >= count for name, count in resources.items())
    ]
    try:
        ray.get(calls)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ValueError):
            raise cause from None
        raise ValueError(f"a node of the cluster cannot take part: {_last_line(error)}") from error


def check_node(drivers: dict[str, str], here: str) -> None:
    """Reject this machine where it runs other versions than the driver, or lacks its folder.

    Raises:
        ValueError: If it does.
    """
    check_versions(drivers)
    if not Path(here).is_dir():
        raise ValueError(
            f"{socket.gethostname()} has no folder {here!r}; start the job from a folder that all "
            "nodes of the cluster share"
        )


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the previous handler of Ctrl-C, which Ray Train replaces and keeps."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not the main thread, where Ray takes nothing
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _without_rays_folder(run_dir: str) -> Iterator[None]:
    """Remove what Ray Train writes beside the run: that its storage is shared."""
    try:
        yield
    finally:
        path = Path(run_dir)
        shutil.rmtree(path.with_name(f".{path.name}.ray"), ignore_errors=True)


def _cause_of(ray: Any, error: Exception) -> str:
    """Describe which processes were lost, or the failure of one of them."""
    failures = dict(sorted((getattr(error, "worker_failures", None) or {}).items()))
    lost = [rank for rank, why in failures.items() if isinstance(why, ray.exceptions.RayError)]
    for rank, why in failures.items():
        if rank not in lost:
            return f"process {rank} has failed: {_last_line(why)}"
    if lost:
        return f"process {' and '.join(map(str, lost))} was lost"
    return first_line(error)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _how_to_go_on(plan: Plan) -> str:
    if not checkpoints_of(Path(plan.run_dir)):
        return "; nothing was saved"
    return f"; what was saved stays: jaxmarl-ppo resume {plan.run_dir}"
