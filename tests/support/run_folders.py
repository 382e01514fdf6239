"""Folders of runs that nobody has trained."""

import dataclasses
import json

import jax
from checkpoint_data import position, snapshot

import jaxmarl_envs
from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.checkpoints import write_checkpoint
from jaxmarl_ppo.runs.files import CONFIG_FILE, END_FILE, MEMBERS, METRICS_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.group_checkpoints import GroupSnapshot, write_group_checkpoint
from jaxmarl_ppo.runs.run_folder import run_record

STEPS = 32  # of an iteration


def record_of(run_id="a", **changes):
    """The record of a run of ten iterations."""
    env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
    default = PolicySpec(network=MLP(hidden_sizes=(4,)))
    config = TrainConfig(
        total_env_steps=10 * STEPS, num_envs=4, num_steps=8, default_policy=default
    )
    return run_record(env, params, dataclasses.replace(config, **changes), run_id)


def data_of(iteration, record, objective=None, **changes):
    own = snapshot(iteration, env_steps=STEPS * iteration, objective=objective, **changes)
    return dataclasses.replace(own, record=record)


def make_run(folder, iterations=(1, 2, 3), record=None, objectives=(), **changes):
    """A run with checkpoints, whose objective had the values of `objectives` by iteration."""
    record = record_of() if record is None else record
    write_json(folder / CONFIG_FILE, record)
    for iteration in iterations:
        objective = dict(objectives).get(iteration)
        write_checkpoint(folder, data_of(iteration, record, objective, **changes))
    return folder


def make_group(folder, iterations=(1, 2, 3)):
    """Two seeds with checkpoints."""
    record = record_of("g", num_seeds=2)
    write_json(folder / CONFIG_FILE, record)
    names = ("seed-0", "seed-1")
    records = {name: record_of(f"g-{name}") for name in names}
    for name in names:
        write_json(folder / MEMBERS / name / CONFIG_FILE, records[name])
    for k in iterations:
        members = {name: data_of(k, records[name]) for name in names}
        write_group_checkpoint(folder, GroupSnapshot(record, position(k), members))
    return folder


def leave_run(folder, learner, config, population=None):
    """What a run leaves at its end: its record, and its policies, by default untrained ones."""
    if population is None:
        population = jax.jit(learner.init_population)(jax.random.key(0))
    save_population(folder / POLICIES_FILE, learner.players.names, population)
    write_json(folder / CONFIG_FILE, run_record(learner.env, learner.env_params, config))
    return folder


def end(folder, state, reason=None, env_steps=STEPS):
    """Record the end of a run."""
    ended = {"state": state, "reason": reason, "env_steps": env_steps, "time": None}
    write_json(folder / END_FILE, ended)


def log(folder, *env_steps, name=METRICS_FILE, **numbers):
    """Append entries to the log of a run, in which x wins."""
    agents = {"x": {"return_mean": 0.25}, "o": {"return_mean": -0.25}}
    with (folder / name).open("a") as file:
        for count in env_steps:
            file.write(json.dumps({"env_steps": count, "agents": agents, **numbers}) + "\n")


def write_policies(folder):
    """Leave the file that runs write at their end, without content."""
    path = folder / POLICIES_FILE
    path.parent.mkdir()
    path.touch()
