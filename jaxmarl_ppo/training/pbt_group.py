"""Population-based training: a group whose members copy each other."""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.config.changing import check_own_ppo, check_present
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.paths import split_path, value_at, with_values
from jaxmarl_ppo.config.pbt import RIVALS, PbtConfig
from jaxmarl_ppo.config.search import corners
from jaxmarl_ppo.config.train import TrainConfig, comparison_interval
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.files import CONFIG_FILE, LINEAGE_FILE
from jaxmarl_ppo.runs.group_checkpoints import GroupSnapshot
from jaxmarl_ppo.runs.lineage import Event, Lineage, Values, to_json, values_of
from jaxmarl_ppo.runs.manifest import RunPosition
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.training.changing import hyperparams_with, with_hyperparams
from jaxmarl_ppo.training.exchange import Copy, exchange
from jaxmarl_ppo.training.objective import Measure
from jaxmarl_ppo.training.outcome import Logged, save_best
from jaxmarl_ppo.training.rivals import Rivals, over_rivals
from jaxmarl_ppo.training.run import RunClock
from jaxmarl_ppo.training.seed_group import SeedGroup, SeedRun, config_alone
from jaxmarl_ppo.types import PyTree

# Purposes of random numbers, beside a seed and an iteration.
_EXCHANGE, _KEY = 1, 2


@dataclass
class PbtGroup(SeedGroup):
    """Trains the members of a group, and replaces the worst by copies of the best.

    Members are compared when training continues after a comparison point. A checkpoint at that
    point precedes the comparison, and a resumed run repeats it identically.

    Attributes:
        config: of the group.
        lineage: of the members.
        measure: of the comparison.
        rivals: their opponents from other members in evaluations; None without any.
        scores: by the names of members, their newest measures, the larger the better.
        scored_at: the iteration of the scores.
        iteration: iterations done.
        failed: by name, members that cannot continue, and why, until they become copies of others.
        waiting: the runs of failed members.
    """

    config: TrainConfig
    lineage: Lineage
    measure: Measure
    rivals: Rivals | None = None
    scores: dict[str, float] = field(default_factory=dict)
    scored_at: int = 0
    iteration: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: list[SeedRun] = field(default_factory=list)

    @property
    def pbt(self) -> PbtConfig:
        """Return the configuration of population-based training."""
        assert self.config.pbt is not None
        return self.config.pbt

    @property
    def kept(self) -> list[SeedRun]:
        """Members that continue, or will as copies of others."""
        return sorted([*self.runs, *self.waiting], key=lambda run: run.replica)

    def train(self, count: int) -> int:
        """Compare members if it is due, and train all for so many iterations."""
        is_scored = self.iteration > 0 and self.scored_at == self.iteration
        if self.pbt.fraction and is_scored and self.iteration % self._interval == 0:
            self._exchange()
        self.iteration = super().train(count)
        return self.iteration

    def entry(self, clock: RunClock) -> dict[str, Any]:
        """Make an entry of every member's log, and return their aggregate."""
        entry = super().entry(clock)
        found = {run.name: self.measure.of_entry(run.history[-1]) for run in self.runs}
        self._score(found, clock.iteration)
        return entry

    def evaluate(self, clock: RunClock) -> dict[str, Any]:
        """Evaluate every member, and return their aggregate."""
        report = super().evaluate(clock)
        found = {run.name: self.measure.of_evaluation(run.evaluations[-1]) for run in self.runs}
        self._score(found, clock.iteration)
        return report

    def snapshot(self, record: Mapping[str, Any], position: RunPosition) -> GroupSnapshot:
        """Copy the content of every member's checkpoint to the host."""
        snapshot = super().snapshot(record, position)
        learnt = {
            "lineage": to_json(self.lineage.events),
            "scores": dict(self.scores),
            "scored_at": self.scored_at,
            "failed": dict(self.failed),
        }
        return dataclasses.replace(snapshot, pbt=learnt)

    def move_to(self, folder: Path) -> Sequence[Logged]:
        """Switch to another folder; return the records of all members."""
        self.lineage.close()
        self.lineage = Lineage(folder / LINEAGE_FILE, self.lineage.events)
        return super().move_to(folder)

    def end(self, result: TrainResult, logged: Logged) -> TrainResult:
        """Save every member's result, and the hyper-parameter schedule of the best one."""
        self.lineage.close()
        logged = dataclasses.replace(logged, lineage=self.lineage.events)
        best = max(self.scores, key=lambda name: self.scores[name], default=None)
        if best is not None:
            alone = config_alone(self.config)
            save_best(self.learner, logged, dataclasses.replace(alone, num_devices=None), best)
        for run in self.waiting:
            self._end(run, interrupted=True, stopped_by=self.failed[run.name], failed=True)
        result = super().end(result, logged)
        stopped = {**result.stopped_members, **self.failed}
        return dataclasses.replace(result, best_member=best, stopped_members=stopped)

    def _evaluate(self, run: SeedRun, clock: RunClock) -> dict[str, Any]:
        """Evaluate a member, also against the policies of all others."""
        report = super()._evaluate(run, clock)
        if self.rivals is None:
            return report
        assert run.evaluator is not None
        met = [
            run.evaluator.evaluate(
                self.rivals.against(run.last_finite, other.last_finite), clock.iteration
            )
            for other in self.runs
            if other is not run
        ]
        return report | {RIVALS: over_rivals([report, *met])}

    def _score(self, found: Mapping[str, float | None], iteration: int) -> None:
        """Keep the measures of members, unless they belong to the other kind of entry."""
        if all(value is None for value in found.values()):
            return
        sign = 1.0 if self.config.objective.goal == "maximise" else -1.0
        self.scored_at = iteration
        self.scores = {
            name: sign * value
            for name, value in found.items()
            if value is not None and math.isfinite(value)
        }

    def _stop(self, run: SeedRun, error: Exception) -> None:
        """Suspend a member until it becomes a copy of another one."""
        self.scores.pop(run.name, None)
        if not self.pbt.fraction:
            super()._stop(run, error)
            return
        self.runs.remove(run)
        self.waiting.append(run)
        self.failed[run.name] = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"{run.name} waits to become a copy of another member: {error}",
            RuntimeWarning,
            stacklevel=2,
        )

    @property
    def _interval(self) -> int:
        return comparison_interval(self.config)

    def _exchange(self) -> None:
        """Replace members by copies of better ones."""
        runs = self.kept
        names = [run.name for run in runs]
        copies = exchange(
            [self.scores.get(name) for name in names],
            [values_of(self.lineage.events, name) for name in names],
            self.pbt,
            np.random.default_rng((self.config.seed, self.iteration, _EXCHANGE)),
        )
        # No parent becomes a copy itself, so copies can be made in any order.
        for copy in copies:
            self._record(copy, names)
            self._copy(runs[copy.member], runs[copy.parent], copy.values)

    def _record(self, copy: Copy, names: list[str]) -> None:
        member, parent = names[copy.member], names[copy.parent]
        sign = 1.0 if self.config.objective.goal == "maximise" else -1.0
        own = self.scores.get(member)
        event = Event(
            env_steps=self.iteration * self.learner.num_envs * self.learner.num_steps,
            iteration=self.iteration,
            member=member,
            parent=parent,
            score=None if own is None else sign * own,
            parent_score=sign * self.scores[parent],
            before=values_of(self.lineage.events, member),
            after=copy.values,
            reason=self.failed.get(member),
        )
        self.lineage.add(event)

    def _copy(self, run: SeedRun, parent: SeedRun, values: Values) -> None:
        """Put a copy of a member, with other numbers and its own key, in a replica's place."""
        seed = np.random.SeedSequence((run.config.seed, self.iteration, _KEY))
        key = jax.random.key(int(seed.generate_state(1)[0]))
        state = self.state_on_host(parent)
        self.adopt(run, values)
        hyperparams = hyperparams_with(self.learner, run.config)
        state = state.replace(key=key, training=with_hyperparams(state.training, hyperparams))
        self.write_state(run, state)
        run.last_finite, run.last_finite_env_steps = (
            parent.last_finite,
            parent.last_finite_env_steps,
        )
        run.in_force.copy_stage(parent.in_force)
        if run in self.waiting:
            none = self.compiled.no_metrics
            self.metrics = self.compiled.write(self.metrics, run.replica, none)
            self.waiting.remove(run)
            self.runs.append(run)
            self.runs.sort(key=lambda each: each.replica)
            del self.failed[run.name]

    def adopt(self, run: SeedRun, values: Values) -> None:
        """Record the numbers of a member from now on."""
        run.config = with_values(run.config, values)
        env, params, run_id = self.learner.env, self.learner.env_params, run.record.get("id")
        run.record = run_record(env, params, run.config, run_id)
        write_json(run.run_dir / CONFIG_FILE, run.record, make_folder=False)


def check_members(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> None:
    """Make the members at the ends of the space, and reject invalid ones.

    Args:
        env: the environment.
        env_params: its parameters.
        config: of the group.

    Raises:
        ValueError: For the first invalid member, with its numbers, or agents that cannot be rivals.
    """
    pbt = config.pbt
    assert pbt is not None
    for parts in map(split_path, pbt.space):
        check_own_ppo("pbt.space", parts, config.policies)
        check_present("pbt.space", parts, value_at(config, parts))
    alone = dataclasses.replace(config_alone(config), num_devices=1)
    for values in corners({path: each.ends for path, each in pbt.space.items()}):
        try:
            learner = make_learner(env, env_params, with_values(alone, values))
        except ValueError as error:
            said = ", ".join(f"{path} = {show(value)}" for path, value in values.items())
            raise ValueError(f"pbt can reach {said}, where {error}") from error
        if pbt.rivals:
            Rivals(learner, pbt.rivals)
