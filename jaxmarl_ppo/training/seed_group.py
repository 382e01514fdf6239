"""Several seeds of one run, trained side by side, each with its own folder."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxmarl_ppo.config.paths import with_values
from jaxmarl_ppo.config.pbt import RIVALS
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.evaluation.seeds import summarise_seeds
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.cores import choose_devices_per_run
from jaxmarl_ppo.runs.callbacks import Callbacks, RunInfo, TrainResult
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays, to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.files import MEMBERS
from jaxmarl_ppo.runs.group_checkpoints import GroupSnapshot
from jaxmarl_ppo.runs.manifest import RunPosition
from jaxmarl_ppo.training.exchange import first_values
from jaxmarl_ppo.training.outcome import Logged, save_group, save_run
from jaxmarl_ppo.training.run import RunClock
from jaxmarl_ppo.training.trained import Trained, TrainedRun
from jaxmarl_ppo.types import TrainState


def seeds_of(config: TrainConfig, is_resumed: bool = False) -> list[TrainConfig]:
    """Return the configurations of a group's members, as they begin; none for a single run.

    Args:
        config: of the run or group.
        is_resumed: whether the group is resumed. If its record has no number of devices, each
            member had one.

    Raises:
        ValueError: If the members cannot be spread over as many devices.
    """
    if config.num_seeds == 1:
        return []
    num_devices = 1
    if config.num_devices is not None or not is_resumed:
        num_devices = choose_devices_per_run(config.num_seeds, config.num_envs, config.num_devices)
    alone = dataclasses.replace(config_alone(config), num_devices=num_devices)
    seeds = []
    for index in range(config.num_seeds):
        values = {} if config.pbt is None else first_values(config.pbt, config.seed, index)
        own = dataclasses.replace(alone, seed=config.seed + index)
        seeds.append(with_values(own, values))
    return seeds


def config_alone(config: TrainConfig) -> TrainConfig:
    """Return the configuration of a single run like those of a group, without rivals."""
    root, _, rest = (config.objective.measure or "").partition(f"/{RIVALS}/")
    # Results against rivals are the mean, minimum or maximum of the run's own measure.
    measure = f"{root}/{rest.partition('/')[2]}" if rest else config.objective.measure
    objective = dataclasses.replace(config.objective, measure=measure)
    return dataclasses.replace(config, num_seeds=1, pbt=None, objective=objective)


def make_runs(learner: Learner, config: TrainConfig) -> CompiledRuns:
    """Make the program of a run or of a group of seeds.

    Args:
        learner: of the run, or of one of the seeds.
        config: of the run or group.

    Raises:
        ValueError: If a run of this kind cannot be one of several.
    """
    if config.num_seeds == 1:
        return CompiledRuns(learner)
    for pool in learner.players.pools:
        name = learner.players.policies[pool.policy]
        if pool.spec.on_device is not None:
            raise ValueError(
                f"num_seeds={config.num_seeds}: the snapshots of {name!r} lie in "
                "files (on_device), which one run at a time has; keep all on the device, or train "
                "one seed after the other"
            )
    num_rows = None if config.num_devices is None else config.num_devices // learner.num_devices
    return CompiledRuns(learner, config.num_seeds, num_rows=num_rows)


def member_name(config: TrainConfig) -> str:
    """Name the member that has this configuration, and its folder."""
    return f"seed-{config.seed}"


def member_dir(group_dir: Path, config: TrainConfig) -> Path:
    """Name the folder of the member that has this configuration."""
    return group_dir / MEMBERS / member_name(config)


@dataclass(eq=False)
class SeedRun(TrainedRun):
    """One of the runs of a group, with its log.

    Attributes:
        record: the content of its `config.json`.
        callbacks: that write its log.
        history: entries of its log.
        evaluations: its evaluations.
    """

    record: Mapping[str, Any]
    callbacks: Callbacks
    history: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.run_dir.name

    @property
    def logged(self) -> Logged:
        """Return the records of the run."""
        return Logged(self.run_dir, self.config, self.record, self.history, self.evaluations)

    def info(self, env_name: str) -> RunInfo:
        """Announce the run that begins or is resumed."""
        return RunInfo(
            run_dir=self.run_dir,
            config=self.config,
            record=self.record,
            env_name=env_name,
            resumed_at=self.last_finite_env_steps,
            history=tuple(self.history),
            evaluations=tuple(self.evaluations),
        )


@dataclass
class SeedGroup(Trained[SeedRun]):
    """Trains all seeds of a group, in step with each other.

    A seed that diverges, or whose environment is at fault, is stopped and reported; the others
    continue.

    Attributes:
        stopped: the seeds that no longer train by folder name, and why each stopped.
    """

    stopped: dict[str, str]

    def _end_faulty(self, errors: Sequence[tuple[SeedRun, Exception]]) -> None:
        """Stop the seeds that cannot continue, unless none can."""
        if len(errors) == len(self.runs):
            super()._end_faulty(errors)
        for run, error in errors:
            self._stop(run, error)

    def _stop(self, run: SeedRun, error: Exception) -> None:
        """Stop a seed for good, and save its result."""
        self.runs.remove(run)
        self.stopped[run.name] = f"{type(error).__name__}: {error}"
        self._end(run, interrupted=True, stopped_by=self.stopped[run.name], failed=True)
        warnings.warn(
            f"{run.name} is stopped, and the other seeds continue: {error}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _entry_of(self, run: SeedRun, metrics: Metrics, clock: RunClock) -> dict[str, Any]:
        """Make an entry of a seed's log, and write it."""
        entry = super()._entry_of(run, metrics, clock)
        run.history.append(entry)
        run.callbacks.notify("on_log", entry)
        return entry

    def _together(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Aggregate the entries of all seeds."""
        numbers = summarise_seeds(
            [{key: own[key] for key in ("all", "policies", "agents")} for own in entries]
        )
        totals = ("decisions", "env_steps_per_s", "decisions_per_s", "episodes")
        stages = [own["curriculum"]["stage"] for own in entries if "curriculum" in own]
        changed = [set(own.get("values", {}).items()) for own in entries]
        common = dict(sorted(set.intersection(*changed)))
        return {
            **{k: value for k, value in entries[0].items() if k not in ("league", "values")},
            **({"curriculum": {"stage": float(np.mean(stages))}} if stages else {}),
            **({"values": common} if common else {}),
            **{key: sum(own[key] for own in entries) for key in totals},
            "decisions_per_step": float(np.mean([own["decisions_per_step"] for own in entries])),
            "seeds": len(entries),
            **numbers,
        }

    def _report_of(self, run: SeedRun, clock: RunClock) -> dict[str, Any]:
        """Evaluate a seed as a single run would be, and write the result."""
        report = super()._report_of(run, clock)
        run.evaluations.append(report)
        run.callbacks.notify("on_evaluation", report)
        return report

    def _evaluated_together(self, reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Aggregate the evaluations of all seeds."""
        when = ("env_steps", "iteration", "wall_s")
        found = [{k: v for k, v in own.items() if k not in when} for own in reports]
        common = {key: reports[0][key] for key in when}
        return {**common, "seeds": len(reports), **summarise_seeds(found, has_counts=False)}

    def _apply(self, run: SeedRun) -> None:
        """Put the numbers that are in force in a seed's state."""
        self.write_state(run, run.in_force.changed(self.state_on_host(run)))

    def state_on_host(self, run: SeedRun) -> TrainState:
        """Copy a seed's state to the host, its keys onto the default device."""
        state = self.compiled.run(self.state, run.replica)
        return from_arrays(to_arrays(state), state, run.run_dir)

    def write_state(self, run: SeedRun, state: TrainState) -> None:
        """Replace a seed's state."""
        self.state = self.compiled.write(self.state, run.replica, state)

    def snapshot(self, record: Mapping[str, Any], position: RunPosition) -> GroupSnapshot:
        """Copy the content of a checkpoint to the host."""
        members: dict[str, CheckpointData | str] = dict(self.stopped)
        for run in self.kept:
            own = dataclasses.replace(
                position,
                decisions=run.decisions,
                num_entries=len(run.history),
                num_evaluations=len(run.evaluations),
                changes=run.in_force.as_json(),
            )
            members[run.name] = self._data(run, run.record, own)
        return GroupSnapshot(record, position, members)

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; return the records of the seeds that still train."""
        for run in self.kept:
            run.run_dir = folder / MEMBERS / run.name
        return [run.logged for run in self.kept]

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save the result of every seed, and of all together."""
        how = result.interrupted, result.stopped_by, result.failed
        members = tuple(self._end(run, *how) for run in self.runs)
        result = dataclasses.replace(result, members=members, stopped_members=dict(self.stopped))
        save_group(self.learner, logged, [run.logged for run in self.runs], result)
        return result

    def _end(
        self, run: SeedRun, interrupted: bool, stopped_by: str | None, failed: bool
    ) -> TrainResult:
        """Save the result of a seed."""
        state = self.compiled.run(self.state, run.replica)
        result = TrainResult(
            state=state,
            population=self.learner.averaged(state),
            history=run.history,
            evaluations=run.evaluations,
            run_dir=run.run_dir,
            env_steps=run.last_finite_env_steps,
            interrupted=interrupted,
            stopped_by=stopped_by,
            failed=failed,
        )
        save_run(self.learner, run.last_finite, run.logged, result)
        run.callbacks.notify("on_end", result)
        return result
