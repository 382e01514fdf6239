"""Checks that several processes can train one run together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.processes import Processes
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.training.resume import Resumption

# Fields that must agree between processes: the rest of `platform` only says where a process runs.
_ALIKE = ("env", "config", "versions")


def check_able(processes: Processes, learner: Learner, config: TrainConfig) -> None:
    """Reject a run that several processes cannot train together.

    Raises:
        ValueError: If some part of it would exist on one of them alone.
    """
    if processes.count == 1:
        return
    together = f"{processes.count} processes"
    if config.num_seeds > 1:
        raise ValueError(
            f"num_seeds={config.num_seeds} are trained by one process, not by {together}; start a "
            "run of its own for some of the seeds in each"
        )
    if learner.env.steps_on_host:
        raise ValueError(
            f"environment {learner.env.name!r} is stepped in Python, which {together} cannot train "
            "on together; train in one"
        )
    for pool in learner.players.pools:
        if pool.spec.on_device is not None:
            raise ValueError(
                f"snapshots of {learner.players.policies[pool.policy]!r} with "
                f"on_device={pool.spec.on_device} lie in files, which {together} cannot exchange "
                "together; train in one, or leave out on_device"
            )
    if learner.num_devices % processes.count:
        raise ValueError(
            f"num_devices={learner.num_devices} leaves some of {together} without one; make it a "
            "multiple, or leave it out"
        )


def check_alike(
    processes: Processes,
    record: Mapping[str, Any],
    run_dir: str | Path | None,
    resumption: Resumption | None,
) -> None:
    """Reject a job whose processes would train different runs.

    Raises:
        ProcessesDiffer: On all of them, naming the first difference.
    """
    facts = {name: record[name] for name in _ALIKE}
    facts["backend"] = jax.default_backend()
    facts["devices of the process"] = jax.local_device_count()
    facts["run_dir"] = None if run_dir is None else str(run_dir)
    facts["checkpoint"] = None if resumption is None else resumption.checkpoint.name
    processes.check_alike(facts)
