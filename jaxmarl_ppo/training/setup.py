"""Make, from a compiled program, what a loop trains: a run or a group, new or resumed."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.config.paths import with_values
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns, OwnHyperparams
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.text import listed
from jaxmarl_ppo.runs.callbacks import Callbacks
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, LINEAGE_FILE, METRICS_FILE
from jaxmarl_ppo.runs.group_checkpoints import read_pbt, read_stopped
from jaxmarl_ppo.runs.lineage import Event, Lineage, from_json, values_of
from jaxmarl_ppo.runs.log import JsonLinesLogger, TensorBoardLogger, read_entries
from jaxmarl_ppo.runs.manifest import read_archive
from jaxmarl_ppo.runs.run_folder import read_record
from jaxmarl_ppo.training.changing import Changing, InForce, hyperparams_with
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.exchange import first_values
from jaxmarl_ppo.training.objective import Measure
from jaxmarl_ppo.training.pbt_group import PbtGroup
from jaxmarl_ppo.training.resume import Restored, Resumption, member_of, restore
from jaxmarl_ppo.training.rivals import Rivals
from jaxmarl_ppo.training.seed_group import SeedGroup, SeedRun, member_dir, member_name
from jaxmarl_ppo.training.snapshot_archive import make_archive
from jaxmarl_ppo.training.trained import Trained, TrainedRun
from jaxmarl_ppo.types import Population, TrainState


@dataclass(frozen=True)
class SetUp:
    """Holds the initial state of a loop.

    Attributes:
        trained: the run or group that it trains.
        history: entries of the log that were made before.
        evaluations: evaluations that were made before.
    """

    trained: Trained[Any]
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def set_up_run(
    compiled: CompiledRuns,
    config: TrainConfig,
    run_dir: Path,
    evaluator: MeanwhileEvaluator | None,
    resumption: Resumption | None,
    changing: Changing,
) -> SetUp:
    """Begin or resume a run.

    Args:
        compiled: its program.
        config: of the run.
        run_dir: its folder.
        evaluator: None where nothing is evaluated.
        resumption: the point to resume from; None for a new one.
        changing: the numbers that can change.

    Raises:
        ValueError: If the checkpoint is of another run.
    """
    in_force = InForce(changing, None if resumption is None else resumption.position.changes)
    restored = _begin(compiled, config.seed, resumption, in_force)
    archived = None if resumption is None else read_archive(resumption.checkpoint)
    run = TrainedRun(
        learner=compiled.learner,
        config=config,
        run_dir=run_dir,
        evaluator=evaluator,
        last_finite=_players_of(compiled.learner, restored.state),
        last_finite_env_steps=_env_steps(config, resumption),
        decisions=0 if resumption is None else resumption.position.decisions,
        replica=0,
        in_force=in_force,
        archive=make_archive(compiled.learner.players, run_dir, archived),
    )
    state = compiled.fill(restored.state)
    trained = Trained(compiled, state, restored.metrics, [run])
    return SetUp(trained, restored.history, restored.evaluations)


def set_up_group(
    compiled: CompiledRuns,
    config: TrainConfig,
    group_dir: Path,
    seeds: Sequence[TrainConfig],
    evaluator: MeanwhileEvaluator | None,
    resumption: Resumption | None,
    changing: Changing,
) -> SetUp:
    """Begin or resume a group of seeds.

    Args:
        compiled: its program.
        config: of the group.
        group_dir: its folder; the folders of its members have their records already.
        seeds: configurations of the members, as they begin.
        evaluator: None where nothing is evaluated.
        resumption: the point to resume from; None for a new one.
        changing: the numbers that can change.

    Raises:
        ValueError: If a checkpoint is of another run.
    """
    stopped = {} if resumption is None else read_stopped(resumption.checkpoint)
    learnt = None if resumption is None else read_pbt(resumption.checkpoint)
    events = _events(config, seeds, learnt)
    runs, states, metrics = [], None, None
    for replica, own in enumerate(seeds):
        run_dir = member_dir(group_dir, own)
        if run_dir.name in stopped:
            continue
        hyperparams = None
        if config.pbt is not None:
            own = with_values(own, values_of(events, run_dir.name))
            hyperparams = hyperparams_with(compiled.learner, own)
        of_member = None if resumption is None else member_of(resumption, run_dir)
        in_force = InForce(changing, None if of_member is None else of_member.position.changes)
        restored = _begin(compiled, own.seed, of_member, in_force, hyperparams)
        if states is None:
            # Untrained replicas also hold the first state, for its shape.
            states, metrics = compiled.fill(restored.state), compiled.fill(compiled.no_metrics)
        else:
            states = compiled.write(states, replica, restored.state)
        if of_member is not None:
            metrics = compiled.write(metrics, replica, restored.metrics)
        # Members of population-based training are compared on the same episodes.
        episodes_of = own if config.pbt is None else config
        run = SeedRun(
            learner=compiled.learner,
            config=own,
            run_dir=run_dir,
            evaluator=None if evaluator is None else evaluator.for_seed(episodes_of.seed),
            last_finite=_players_of(compiled.learner, restored.state),
            last_finite_env_steps=_env_steps(own, of_member),
            decisions=0 if of_member is None else of_member.position.decisions,
            replica=replica,
            in_force=in_force,
            archive=None,
            record=read_record(run_dir),
            callbacks=Callbacks(run_dir, [JsonLinesLogger(), TensorBoardLogger()]),
            history=restored.history,
            evaluations=restored.evaluations,
        )
        run.callbacks.notify("on_start", run.info(compiled.learner.env.name))
        runs.append(run)
    assert states is not None
    assert metrics is not None
    group = SeedGroup(compiled, states, metrics, runs, stopped)
    if config.pbt is not None:
        group = _learning_group(group, config, group_dir, events, learnt)
    if resumption is None:
        return SetUp(group, [], [])
    position = resumption.position
    return SetUp(
        group,
        read_entries(group_dir / METRICS_FILE, position.num_entries),
        read_entries(group_dir / EVALUATIONS_FILE, position.num_evaluations),
    )


def _begin(
    compiled: CompiledRuns,
    seed: int,
    resumption: Resumption | None,
    in_force: InForce,
    hyperparams: OwnHyperparams | None = None,
) -> Restored:
    """Begin or resume a run.

    Args:
        compiled: its program.
        seed: of the run.
        resumption: the point to resume from; None for a new one.
        in_force: the numbers that change.
        hyperparams: of the run; None for the learner's.
    """
    state = compiled.begin(jax.random.key(seed), hyperparams, in_force.env_params)
    if resumption is None:
        restored = Restored(state, compiled.no_metrics, [], [])
    else:
        restored = restore(resumption, state, compiled.no_metrics)
    if not in_force.values:
        return restored
    return dataclasses.replace(restored, state=in_force.changed(restored.state))


def _events(
    config: TrainConfig, seeds: Sequence[TrainConfig], learnt: Mapping[str, Any] | None
) -> list[Event]:
    """List the lineage of a group's members; empty without population-based training."""
    if config.pbt is None:
        return []
    names = [member_name(own) for own in seeds]
    if learnt is not None:
        events = from_json(learnt["lineage"])
        for name in names:
            found = values_of(events, name)
            if found.keys() != config.pbt.space.keys():
                raise ValueError(
                    f"the checkpoint's lineage has {listed(found) or 'no numbers'}, but pbt.space "
                    f"is of {listed(config.pbt.space)}"
                )
        return events
    return [
        Event(0, 0, name, None, None, None, {}, first_values(config.pbt, config.seed, replica))
        for replica, name in enumerate(names)
    ]


def _learning_group(
    group: SeedGroup,
    config: TrainConfig,
    group_dir: Path,
    events: list[Event],
    learnt: Mapping[str, Any] | None,
) -> PbtGroup:
    """Make a group with population-based training, as the checkpoint left it."""
    learnt = {} if learnt is None else learnt
    assert config.pbt is not None
    failed = dict(learnt.get("failed", {}))
    made = PbtGroup(
        compiled=group.compiled,
        state=group.state,
        metrics=group.metrics,
        runs=[run for run in group.runs if run.name not in failed],
        stopped=group.stopped,
        config=config,
        lineage=Lineage(group_dir / LINEAGE_FILE, events),
        measure=Measure(config.objective.measure, group.learner),
        rivals=Rivals(group.learner, config.pbt.rivals) if config.pbt.rivals else None,
        scores=dict(learnt.get("scores", {})),
        scored_at=learnt.get("scored_at", 0),
        iteration=int(max(np.asarray(group.state.iteration))),
        failed=failed,
        waiting=[run for run in group.runs if run.name in failed],
    )
    for run in made.kept:
        made.adopt(run, values_of(events, run.name))
    return made


def _players_of(learner: Learner, state: TrainState) -> Population:
    """Copy the players to the host, since training reuses the device's own memory."""
    return jax.tree.map(np.array, jax.device_get(learner.averaged(state)))


def _env_steps(config: TrainConfig, resumption: Resumption | None) -> int:
    """Return the environment steps that a run begins with."""
    return config.env_steps(0 if resumption is None else resumption.position.iteration)
