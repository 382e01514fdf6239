"""Make the object that a loop trains from a compiled program: a run or a group, new or resumed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.config.paths import with_values
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compilation import CompiledRun
from jaxmarl_ppo.devices.members import Members
from jaxmarl_ppo.devices.sharding import Devices
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
from jaxmarl_ppo.training.run import Run
from jaxmarl_ppo.training.seed_group import (
    SeedGroup,
    SeedRun,
    config_of_seed,
    member_dir,
    member_name,
)
from jaxmarl_ppo.training.snapshot_archive import make_archive
from jaxmarl_ppo.training.trained import OneRun, Trained
from jaxmarl_ppo.types import Population, TrainState


@dataclass(frozen=True)
class SetUp:
    """Holds the initial state of a loop.

    Attributes:
        trained: the run or group that it trains.
        history: entries of the log that were made before.
        evaluations: evaluations that were made before.
    """

    trained: Trained
    history: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]


def set_up_run(
    learner: Learner,
    config: TrainConfig,
    run_dir: Path,
    compiled: CompiledRun,
    devices: Devices,
    evaluator: MeanwhileEvaluator | None,
    resumption: Resumption | None,
    changing: Changing,
) -> SetUp:
    """Begin or resume a run.

    Args:
        learner: of the run.
        config: of the run.
        run_dir: its folder.
        compiled: its program.
        devices: of the run.
        evaluator: None where nothing is evaluated.
        resumption: the point to resume from; None for a new one.
        changing: the numbers that can change.

    Raises:
        ValueError: If the checkpoint is of another run.
    """
    in_force = InForce(changing, None if resumption is None else resumption.standing.changes)
    state, no_metrics = compiled.init(jax.random.key(config.seed), in_force.env_params)
    metrics = no_metrics = jax.device_get(no_metrics)
    history, evaluations, archived, decisions = [], [], None, 0
    if resumption is not None:
        restored = restore(resumption, state, no_metrics)
        state = devices.place(jax.tree.map(jnp.asarray, restored.state))
        metrics, decisions = restored.metrics, resumption.standing.decisions
        history, evaluations = restored.history, restored.evaluations
        archived = read_archive(resumption.checkpoint)
    if in_force.values:
        state = in_force.changed(state)
    run = Run(
        learner=learner,
        config=config,
        run_dir=run_dir,
        evaluator=evaluator,
        good=_population_of(state),
        good_env_steps=_env_steps(config, resumption),
        decisions=decisions,
    )
    archive = make_archive(learner.players, run_dir, archived)
    trained = OneRun(run, compiled.train, no_metrics, state, metrics, archive, in_force)
    return SetUp(trained, history, evaluations)


def set_up_group(
    members: Members,
    config: TrainConfig,
    group_dir: Path,
    evaluator: MeanwhileEvaluator | None,
    resumption: Resumption | None,
    changing: Changing,
) -> SetUp:
    """Begin or resume a group of seeds.

    Args:
        members: the compiled program.
        config: of the group.
        group_dir: its folder; the folders of its members have their records already.
        evaluator: None where nothing is evaluated.
        resumption: the point to resume from; None for a new one.
        changing: the numbers that can change.

    Raises:
        ValueError: If a checkpoint is of another run.
    """
    stopped = {} if resumption is None else read_stopped(resumption.checkpoint)
    learnt = None if resumption is None else read_pbt(resumption.checkpoint)
    events = _events(config, learnt)
    runs, states, metrics = [], None, members.fill(members.no_metrics)
    for replica in range(config.num_seeds):
        own = config_of_seed(config, replica)
        run_dir = member_dir(group_dir, own)
        if run_dir.name in stopped:
            continue
        if config.pbt is not None:
            own = with_values(own, values_of(events, run_dir.name))
        of_member = None if resumption is None else member_of(resumption, run_dir)
        in_force = InForce(changing, None if of_member is None else of_member.standing.changes)
        restored = _begin_member(members, config, own, of_member, in_force)
        state = restored.state
        if of_member is not None:
            metrics = members.write(metrics, replica, restored.metrics)
        # Untrained replicas also hold the first state, for its shape.
        states = members.fill(state) if states is None else members.write(states, replica, state)
        # Members of population-based training are compared on the same episodes.
        episodes_of = own if config.pbt is None else config
        run = SeedRun(
            learner=members.learner,
            replica=replica,
            config=own,
            run_dir=run_dir,
            record=read_record(run_dir),
            callbacks=Callbacks(run_dir, [JsonLinesLogger(), TensorBoardLogger()]),
            in_force=in_force,
            good=_population_of(state),
            good_env_steps=_env_steps(own, of_member),
            decisions=0 if of_member is None else of_member.standing.decisions,
            evaluator=None if evaluator is None else evaluator.for_seed(episodes_of.seed),
            history=restored.history,
            evaluations=restored.evaluations,
        )
        run.callbacks.tell("on_start", run.info(members.learner.env.name))
        runs.append(run)
    assert states is not None
    group = SeedGroup(members, states, metrics, runs, stopped)
    if config.pbt is not None:
        group = _learning_group(group, config, group_dir, events, learnt)
    if resumption is None:
        return SetUp(group, [], [])
    standing = resumption.standing
    return SetUp(
        group,
        read_entries(group_dir / METRICS_FILE, standing.num_entries),
        read_entries(group_dir / EVALUATIONS_FILE, standing.num_evaluations),
    )


def _begin_member(
    members: Members,
    config: TrainConfig,
    own: TrainConfig,
    resumption: Resumption | None,
    in_force: InForce,
) -> Restored:
    """Begin or resume a member of a group.

    Args:
        members: the compiled program.
        config: of the group.
        own: of the member, with its present numbers.
        resumption: the point to resume the member from; None for a new one.
        in_force: the numbers that change.
    """
    hyperparams = None if config.pbt is None else hyperparams_with(members.learner, own)
    state = members.begin(jax.random.key(own.seed), hyperparams, in_force.env_params)
    if resumption is None:
        restored = Restored(state, members.no_metrics, [], [])
    else:
        restored = restore(resumption, state, members.no_metrics)
    if not in_force.values:
        return restored
    return dataclasses.replace(restored, state=in_force.changed(restored.state))


def _events(config: TrainConfig, learnt: Mapping[str, Any] | None) -> list[Event]:
    """List the lineage of a group's members; empty without population-based training."""
    if config.pbt is None:
        return []
    names = [member_name(config_of_seed(config, replica)) for replica in range(config.num_seeds)]
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
        members=group.members,
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


def _population_of(state: TrainState) -> Population:
    """Copy the players to the host, since training reuses the device's own memory."""
    return jax.tree.map(np.array, jax.device_get(state.population))


def _env_steps(config: TrainConfig, resumption: Resumption | None) -> int:
    """Return the environment steps that a run begins with."""
    iterations = 0 if resumption is None else resumption.standing.iteration
    return iterations * config.num_envs * config.num_steps
