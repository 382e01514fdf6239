"""Several seeds of one run, trained side by side, each with its own folder."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.paths import with_values
from jaxmarl_ppo.config.pbt import RIVALS
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.members import Members, MemberStates
from jaxmarl_ppo.evaluation.seeds import summarise_seeds
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.interruption import wait_until_ready
from jaxmarl_ppo.runs.callbacks import Callbacks, RunInfo, TrainResult
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays, to_arrays
from jaxmarl_ppo.runs.checkpoints import CheckpointData
from jaxmarl_ppo.runs.files import MEMBERS
from jaxmarl_ppo.runs.group_checkpoints import GroupSnapshot
from jaxmarl_ppo.runs.manifest import Standing
from jaxmarl_ppo.training.changing import InForce
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.exchange import first_values
from jaxmarl_ppo.training.outcome import Logged, save_group, save_run
from jaxmarl_ppo.training.run import Run, RunClock
from jaxmarl_ppo.types import PyTree, TrainState


def config_of_seed(config: TrainConfig, index: int) -> TrainConfig:
    """Return the configuration of a group's member, as it begins."""
    values = {} if config.pbt is None else first_values(config.pbt, config.seed, index)
    own = dataclasses.replace(config_alone(config), seed=config.seed + index, num_devices=1)
    return with_values(own, values)


def config_alone(config: TrainConfig) -> TrainConfig:
    """Return the configuration of a single run like those of a group, without rivals."""
    root, _, rest = (config.objective.measure or "").partition(f"/{RIVALS}/")
    # Results against rivals are the mean, minimum or maximum of the run's own measure.
    measure = f"{root}/{rest.partition('/')[2]}" if rest else config.objective.measure
    objective = dataclasses.replace(config.objective, measure=measure)
    return dataclasses.replace(config, num_seeds=1, pbt=None, objective=objective)


def make_members(learner: Learner, config: TrainConfig) -> Members:
    """Make the trainer of a group of seeds.

    Args:
        learner: of one of them.
        config: of the group.

    Raises:
        ValueError: If a run of this kind cannot be one of several.
    """
    for pool in learner.players.pools:
        name = learner.players.policies[pool.policy]
        if pool.spec.on_device is not None:
            raise ValueError(
                f"num_seeds={config.num_seeds}: the snapshots of {name!r} lie in "
                "files (on_device), which one run at a time has; keep all on the device, or train "
                "one seed after the other"
            )
    return Members(learner, config.num_seeds, num_devices=config.num_devices)


def member_name(config: TrainConfig) -> str:
    """Name the member that has this configuration, and its folder."""
    return f"seed-{config.seed}"


def member_dir(group_dir: Path, config: TrainConfig) -> Path:
    """Name the folder of the member that has this configuration."""
    return group_dir / MEMBERS / member_name(config)


@dataclass(eq=False)
class SeedRun(Run):
    """One of the runs of a group, with its log.

    Attributes:
        replica: the index at which it is trained.
        record: the content of its `config.json`.
        callbacks: that write its log.
        in_force: the numbers that change.
        history: entries of its log.
        evaluations: its evaluations.
    """

    replica: int
    record: Mapping[str, Any]
    callbacks: Callbacks
    in_force: InForce
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
            resumed_at=self.good_env_steps,
            history=tuple(self.history),
            evaluations=tuple(self.evaluations),
        )


@dataclass
class SeedGroup:
    """Trains all seeds of a group, in step with each other.

    A seed that diverges, or whose environment is at fault, is stopped and reported; the others
    continue.

    Attributes:
        members: the compiled program.
        state: of training, by replica.
        metrics: of the present log interval, by replica.
        runs: the seeds that still train.
        stopped: the other seeds by folder name, and why each stopped.
    """

    members: Members
    state: MemberStates
    metrics: Metrics
    runs: list[SeedRun]
    stopped: dict[str, str]

    @property
    def learner(self) -> Learner:
        """The learner of every seed."""
        return self.members.learner

    @property
    def good_env_steps(self) -> int:
        """Environment steps of the newest finite players of any seed."""
        return max(run.good_env_steps for run in self.runs)

    @property
    def decisions(self) -> int:
        """Decisions of all seeds that still train, up to the newest entry of the log."""
        return sum(run.decisions for run in self.runs)

    @property
    def intervals(self) -> Sequence[int]:
        """Number of iterations between checks that have work to do: none."""
        return []

    @property
    def has_fault(self) -> bool:
        """Return whether the environment of a seed that still trains is at fault."""
        found = np.asarray(self.metrics.fault.found)
        return any(found[run.replica] for run in self.runs)

    def train(self, count: int) -> int:
        """Train every running seed for so many iterations."""
        counts = np.zeros(self.members.num_replicas, np.int32)
        counts[[run.replica for run in self.runs]] = count
        self.state, self.metrics = self.members.train(self.state, counts, self.metrics)
        wait_until_ready(self.metrics.sums.env_steps)
        iterations = np.asarray(self.state.iteration)
        return int(max(iterations[run.replica] for run in self.runs))

    def check(self, iteration: int) -> None:
        """Mark the players of every seed as the ones to save, or stop the seed.

        Raises:
            EnvironmentFault: If no seed can continue; the error of the first seed.
            TrainingDiverged: In the same case.
        """
        # Copied, since on a CPU this may be the device's own memory, which training reuses.
        populations = jax.tree.map(np.array, jax.device_get(self.state.population))
        metrics = jax.device_get(self.metrics)
        errors = []
        for run in self.runs:
            population, own = _row(populations, run.replica), _row(metrics, run.replica)
            try:
                run.check(population, own, iteration)
            except (EnvironmentFault, TrainingDiverged) as error:
                errors.append((run, error))
        if len(errors) == len(self.runs):
            raise errors[0][1]
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

    def entry(self, clock: RunClock) -> dict[str, Any]:
        """Make an entry of every seed's log, and return their aggregate."""
        metrics = jax.device_get(self.metrics)
        for run in self.runs:
            entry = run.entry(_row(metrics, run.replica), clock) | run.in_force.for_entry()
            run.history.append(entry)
            run.callbacks.tell("on_log", entry)
            if run.in_force.see_entry(entry):
                self._apply(run)
        self.metrics = self.members.fill(self.members.no_metrics)
        newest = [run.history[-1] for run in self.runs]
        numbers = summarise_seeds(
            [{key: own[key] for key in ("all", "policies", "agents")} for own in newest]
        )
        totals = ("decisions", "env_steps_per_s", "decisions_per_s", "episodes")
        stages = [own["curriculum"]["stage"] for own in newest if "curriculum" in own]
        changed = [set(own.get("values", {}).items()) for own in newest]
        common = dict(sorted(set.intersection(*changed)))
        return {
            **{k: value for k, value in newest[0].items() if k not in ("league", "values")},
            **({"curriculum": {"stage": float(np.mean(stages))}} if stages else {}),
            **({"values": common} if common else {}),
            **{key: sum(own[key] for own in newest) for key in totals},
            "decisions_per_step": float(np.mean([own["decisions_per_step"] for own in newest])),
            "seeds": len(newest),
            **numbers,
        }

    def evaluate(self, clock: RunClock) -> dict[str, Any]:
        """Evaluate every seed as a single run would be, and return their aggregate."""
        for run in self.runs:
            run.evaluations.append(self._report(run, clock))
            run.callbacks.tell("on_evaluation", run.evaluations[-1])
            if run.in_force.see_evaluation(run.evaluations[-1]):
                self._apply(run)
        newest = [run.evaluations[-1] for run in self.runs]
        when = ("env_steps", "iteration", "wall_s")
        found = [{k: v for k, v in own.items() if k not in when} for own in newest]
        common = {key: newest[0][key] for key in when}
        return {**common, "seeds": len(newest), **summarise_seeds(found, has_counts=False)}

    def _report(self, run: SeedRun, clock: RunClock) -> dict[str, Any]:
        """Evaluate a seed."""
        return run.report(clock)

    @property
    def changes(self) -> dict[str, Any] | None:
        """What a checkpoint needs to know of numbers that change in the first seed."""
        return self.kept[0].in_force.as_json()

    def change(self, values: Mapping[str, Any], set_by: Sequence[str]) -> None:
        """Change numbers of all seeds, by path, as the callbacks of these names ask for."""
        for run in self.kept:
            run.in_force.set(values, set_by)
            self._apply(run)

    def _apply(self, run: SeedRun) -> None:
        """Put the numbers that are in force in a seed's state."""
        state = to_host(self.member_state(run))
        self.state = self.members.write(self.state, run.replica, run.in_force.changed(state))

    @property
    def kept(self) -> Sequence[SeedRun]:
        """Seeds whose state a checkpoint holds: those that still train."""
        return self.runs

    def snapshot(self, record: Mapping[str, Any], standing: Standing) -> GroupSnapshot:
        """Copy the content of a checkpoint to the host."""
        members: dict[str, CheckpointData | str] = dict(self.stopped)
        for run in self.kept:
            arrays = to_arrays({"state": self.member_state(run), "metrics": self._metrics_of(run)})
            own = dataclasses.replace(
                standing,
                decisions=run.decisions,
                num_entries=len(run.history),
                num_evaluations=len(run.evaluations),
                changes=run.in_force.as_json(),
            )
            names = self.learner.players.names
            members[run.name] = CheckpointData(arrays, run.good, names, run.record, own)
        return GroupSnapshot(record, standing, members)

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
        state = self.member_state(run)
        result = TrainResult(
            state=state,
            population=state.population,
            history=run.history,
            evaluations=run.evaluations,
            run_dir=run.run_dir,
            env_steps=run.good_env_steps,
            interrupted=interrupted,
            stopped_by=stopped_by,
            failed=failed,
        )
        save_run(self.learner, run.good, run.logged, result)
        run.callbacks.tell("on_end", result)
        return result

    def forget(self) -> None:
        """Keep everything: nothing is stored outside checkpoints."""

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; return the records of the seeds that still train."""
        for run in self.kept:
            run.run_dir = folder / MEMBERS / run.name
        return [run.logged for run in self.kept]

    def member_state(self, run: SeedRun) -> Any:
        """Copy the state of a seed."""
        return self.members.member(self.state, run.replica)

    def _metrics_of(self, run: SeedRun) -> Any:
        return self.members.member(self.metrics, run.replica)


def to_host(state: TrainState) -> TrainState:
    """Copy a state to the host, its keys onto the default device."""
    return from_arrays(to_arrays(state), state, Path("a member"))


def _row(tree: PyTree, replica: int) -> Any:
    return jax.tree.map(lambda x: x[replica], tree)
