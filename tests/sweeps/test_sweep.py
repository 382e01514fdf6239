"""Searches from what is said to what was found."""

import dataclasses
import json
import os
import signal

import jax
import numpy as np
import pytest
from lamps import OK, Lamps

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.run_file import settings
from jaxmarl_ppo.config.search import Choices, Range, SearchConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.runs.run_folder import load_run, read_run
from jaxmarl_ppo.sweeps.sweep import Sweep
from jaxmarl_ppo.training.trainer import Trainer

pytestmark = pytest.mark.optimised  # trials are compared to the bit with runs of their own

PER_ITERATION = 4 * 8
CONFIG = TrainConfig(
    total_env_steps=6 * PER_ITERATION,
    num_envs=4,
    num_steps=8,
    log_interval=2,
    default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
    default_ppo=PPOConfig(num_minibatches=2, num_epochs=1),
    objective=ObjectiveConfig("agents/x/return_mean"),
)
SPACE = {"default_ppo.learning_rate": Range(1e-4, 1e-1, log=True)}
RANDOM = SearchConfig(sampler="random", num_trials=5, num_members=2)


def make_sweep(folder, space=None, search=None, config=None, env=None, **changes):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=3) if env is None else env
    config = dataclasses.replace(CONFIG if config is None else config, **changes)
    space, search = SPACE if space is None else space, RANDOM if search is None else search
    return Sweep(env, params, config, space, search, folder, progress=False, check_env=False)


def train_alone(recorded, folder):
    run = (recorded.env, recorded.env_params, recorded.config, folder)
    return Trainer(*run, progress=False, check_env=False).train()


def entries(run_dir, name="metrics.jsonl"):
    return [json.loads(line) for line in (run_dir / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def compilations():
    """How often a program was compiled."""
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: events.append(name) if "backend_compile" in name else None
    )
    return events


@pytest.fixture(scope="module")
def found(tmp_path_factory, compilations):
    """A search, and how often something had been compiled by when so many trials were over."""
    sweep = make_sweep(tmp_path_factory.mktemp("search") / "run")
    keep, counts = sweep._keep_best, {}

    def count(trials):
        keep(trials)
        counts[sum(t.state == "complete" for t in trials)] = len(compilations)

    sweep._keep_best = count
    return sweep.run(), counts


def test_every_trial_is_over_and_the_best_is_the_best(found):
    result, _ = found
    assert [t.number for t in result.trials] == list(range(5))
    assert {t.state for t in result.trials} == {"complete"}
    assert result.best.value == max(t.value for t in result.trials)
    assert result.stopped_by is None
    for trial in result.trials:
        assert list(trial.reports) == [2 * PER_ITERATION, 4 * PER_ITERATION, 6 * PER_ITERATION]
        logged = [entry["agents"]["x"]["return_mean"] for entry in entries(trial.run_dir)]
        assert list(trial.reports.values()) == logged
        assert trial.value == logged[-1]


def test_a_trial_is_to_the_bit_the_run_that_its_record_says(found, tmp_path):
    """The one that took a replica in which another had been."""
    trial = found[0].trials[4]
    recorded = read_run(trial.run_dir)
    assert recorded.config.default_ppo.learning_rate == trial.values["default_ppo.learning_rate"]
    trained = train_alone(recorded, tmp_path / "run")
    loaded = load_run(trial.run_dir)
    same = jax.tree.map(np.array_equal, trained.population, loaded.population)
    assert all(jax.tree.leaves(same))
    theirs = [entry["policies"] for entry in entries(trial.run_dir)]
    assert theirs == [entry["policies"] for entry in json.loads(json.dumps(trained.history))]


def test_nothing_is_compiled_for_numbers(found):
    counts = found[1]
    assert counts[2] > 0
    assert counts[3] == counts[4] == counts[5]


def test_the_best_configuration_is_a_file_to_train(found):
    result, _ = found
    start = settings(None, None, result.run_dir / "best.toml")
    config = read_run(result.best.run_dir).config
    assert start.env == "tic_tac_toe"
    assert start.env_kwargs == {"size": 3}
    assert dataclasses.replace(start.config, num_devices=1) == config


def test_a_search_that_is_over_is_over(found, compilations):
    before = len(compilations)
    again = Sweep.resume(found[0].run_dir, progress=False, check_env=False).run()
    assert again.trials == found[0].trials
    assert len(compilations) == before


@pytest.mark.rare
def test_structures_are_compiled_once_each(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(CompiledRuns, "compile", lambda self: compiled.append(self.learner))
    space = {
        "default_policy.network.hidden_sizes": Choices([[4], [3]]),
        "default_ppo.gamma": Choices([0.5, 0.9]),
    }
    search = SearchConfig(sampler="grid", num_members=3)
    result = make_sweep(tmp_path / "run", space, search).run()
    assert [t.state for t in result.trials] == ["complete"] * 4
    assert len({tuple(map(str, t.values.values())) for t in result.trials}) == 4
    assert len(compiled) == 2
    for trial in result.trials:
        network = read_run(trial.run_dir).config.default_policy.network
        assert list(network.hidden_sizes) == trial.values["default_policy.network.hidden_sizes"]


def test_a_trial_that_breaks_down_has_failed_and_the_others_go_on(tmp_path):
    env = Lamps()
    fault = env.default_params.replace(fault=OK)
    space = {"env.params.fault": Choices([0, 1])}
    config = dataclasses.replace(CONFIG, objective=ObjectiveConfig("agents/ann_0/return_mean"))
    search = SearchConfig(sampler="grid", num_members=2)
    result = make_sweep(tmp_path / "run", space, search, config, (env, fault)).run()
    by_fault = {t.values["env.params.fault"]: t for t in result.trials}
    assert by_fault[0].state == "complete"
    assert by_fault[1].state == "failed"
    assert "gave NaN in 'reward'" in by_fault[1].reason
    assert result.best.number == by_fault[0].number
    # It was not made by its name, so there is no file that could name it.
    assert not (result.run_dir / "best.toml").exists()


@pytest.mark.rare
def test_a_pruned_trial_leaves_its_replica_to_the_next(tmp_path):
    search = SearchConfig(
        sampler="random", pruner="asha", reduction_factor=2, num_trials=8, num_members=2
    )
    result = make_sweep(tmp_path / "run", search=search).run()
    states = [t.state for t in result.trials]
    assert set(states) == {"complete", "pruned"}
    for trial in result.trials:
        steps = [entry["env_steps"] for entry in entries(trial.run_dir)]
        assert steps == list(trial.reports)
        assert (len(steps) == 3) >= (trial.state == "complete")
        assert load_run(trial.run_dir).learner.players.names == ("shared",)
    pruned = result.trials[states.index("pruned")]
    assert len(pruned.reports) < 3
    assert pruned.value == list(pruned.reports.values())[-1]


@pytest.mark.rare
def test_a_trial_is_as_good_as_the_mean_of_its_seeds(tmp_path):
    search = SearchConfig(sampler="random", num_trials=2, num_members=2, num_seeds=2)
    result = make_sweep(tmp_path / "run", search=search, seed=3).run()
    for trial in result.trials:
        values = []
        for seed in (3, 4):
            folder = trial.run_dir / f"seed-{seed}"
            assert read_run(folder).config.seed == seed
            values.append(entries(folder)[-1]["agents"]["x"]["return_mean"])
        assert trial.value == pytest.approx(np.mean(values))
        assert values[0] != values[1]


@pytest.mark.rare
def test_evaluations_are_what_is_compared_if_they_are_named(tmp_path):
    result = make_sweep(
        tmp_path / "run",
        search=dataclasses.replace(RANDOM, num_trials=1),
        log_interval=None,
        evaluation=EvaluationConfig(every_env_steps=3 * PER_ITERATION, episodes=4),
        objective=ObjectiveConfig("evaluation/exploitability/greedy", "minimise"),
    ).run()
    (trial,) = result.trials
    reports = entries(trial.run_dir, "evaluations.jsonl")
    assert list(trial.reports) == [3 * PER_ITERATION, 6 * PER_ITERATION]
    assert [r["exploitability"]["greedy"] for r in reports] == list(trial.reports.values())
    trained = train_alone(read_run(trial.run_dir), tmp_path / "alone")
    assert trained.evaluations[-1]["exploitability"] == reports[-1]["exploitability"]


def test_a_signal_stops_a_search_and_it_goes_on(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    sweep = make_sweep(folder)
    keep = sweep._keep_best

    def kill_after_the_first(trials):
        keep(trials)
        if any(t.state == "complete" for t in trials):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(sweep, "_keep_best", kill_after_the_first)
    stopped = sweep.run()
    assert stopped.stopped_by == "SIGTERM"
    states = [t.state for t in stopped.trials]
    assert 1 <= states.count("complete") < 5
    assert set(states) <= {"complete", "waiting"}
    again = Sweep.resume(folder, num_trials=4, progress=False, check_env=False).run()
    assert [t.state for t in again.trials] == ["complete"] * 4
    for before, after in zip(stopped.trials, again.trials, strict=False):
        assert before.values == after.values
        assert before.state != "complete" or before == after


def test_a_limit_of_time_stops_a_search(tmp_path):
    search = dataclasses.replace(RANDOM, max_minutes=1e-9)
    result = make_sweep(tmp_path / "run", search=search).run()
    assert result.stopped_by == "max_minutes=1e-09 are over"
    assert result.trials == []


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="exists and is not empty"):
        make_sweep(tmp_path)
    with pytest.raises(ValueError, match="is not the folder of a search"):
        Sweep.resume(tmp_path)


def test_a_folder_of_another_search_is_refused(found):
    other = {"default_ppo.learning_rate": Range(1e-4, 1.0, log=True)}
    with pytest.raises(ValueError, match=r"space.default_ppo.learning_rate.high is 1.0 here and"):
        make_sweep(found[0].run_dir, other).run()
    # It is still what it was.
    again = Sweep.resume(found[0].run_dir, progress=False, check_env=False)
    assert again.run().trials == found[0].trials


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": ObjectiveConfig()}, "a search needs an objective"),
        ({"until": ("env_steps > 3",)}, "until has no effect in a search"),
        ({"max_minutes": 3.0}, "max_minutes has no effect in a search: see search.max_minutes"),
        ({"checkpoints": CheckpointConfig(keep=1)}, "checkpoints has no effect in a search"),
        (
            {"objective": ObjectiveConfig("agents/x/return_mean", stop_at=1.0)},
            "objective.stop_at has no effect in a search",
        ),
        (
            {"evaluation": EvaluationConfig(every_env_steps=64)},
            "log_interval has no effect in a search that evaluates",
        ),
        ({"total_env_steps": 2**40}, "of a trial must be at most"),
        ({"objective": ObjectiveConfig("agents/z/return_mean")}, "names 'z' among the agents"),
    ],
)
def test_what_has_no_effect_in_a_search_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        make_sweep(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_measure_that_is_nowhere_is_found_before_the_search(tmp_path):
    with pytest.raises(ValueError, match="return_meen' is not among the metrics of the log; did"):
        make_sweep(tmp_path / "run", objective=ObjectiveConfig("agents/x/return_meen"))
    assert not (tmp_path / "run").exists()
