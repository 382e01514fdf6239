"""Callbacks, evaluation while training, objectives, limits of time, and saves that fail."""

import dataclasses
import time

import numpy as np
import pytest
from lamps import (
    CONFIG,
    NAN_REWARD,
    NUM_ENVS,
    NUM_STEPS,
    LampParams,
    Lamps,
    Rounds,
    assert_same,
    make_trainer,
    read_entries,
    without_clock,
)

from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.runs import checkpoints
from jaxmarl_ppo.runs.callbacks import Callback, CallbackError
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.manifest import read_position
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training import saving
from jaxmarl_ppo.training.errors import EnvironmentFault
from jaxmarl_ppo.training.saving import Saver
from jaxmarl_ppo.training.trainer import Trainer

PER_ITERATION = NUM_ENVS * NUM_STEPS
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=2 * PER_ITERATION, keep=20)
EVALUATION = EvaluationConfig(every_env_steps=4 * PER_ITERATION, episodes=3, opponents=("random",))


class Recorder(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def on_start(self, run):
        self.told.append(("start", run.env_name, run.resumed_at, len(run.history)))

    def on_log(self, entry):
        self.told.append(("log", entry["iteration"]))

    def on_evaluation(self, report):
        self.told.append(("evaluation", report["iteration"]))

    def on_checkpoint(self, path):
        self.told.append(("checkpoint", int(path.name)))

    def on_end(self, result):
        self.told.append(("end", result.env_steps, result.stopped_by))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without anything of this."""
    run_dir = tmp_path_factory.mktemp("plain") / "run"
    return make_trainer(run_dir, checkpoints=CheckpointConfig(keep=0)).train()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The same run with all of it, and what a callback was told."""
    recorder = Recorder()
    run_dir = tmp_path_factory.mktemp("watched") / "run"
    result = make_trainer(
        run_dir, checkpoints=EVERY, evaluation=EVALUATION, callbacks=[recorder]
    ).train()
    return result, recorder.told


def test_training_is_the_same_to_the_bit_with_all_of_it(plain, watched):
    result, _ = watched
    assert_same(result.population, plain.population)
    assert without_clock(result.history) == without_clock(plain.history)
    assert not (plain.run_dir / "checkpoints").exists()
    assert plain.evaluations == []


def test_everything_is_told_in_its_order(watched):
    told = watched[1]
    assert told[0] == ("start", "lamps", 0, 0)
    assert told[-1] == ("end", 10 * PER_ITERATION, None)
    assert [n for kind, n, *_ in told if kind == "log"] == [3, 6, 9, 10]
    assert [n for kind, n, *_ in told if kind == "evaluation"] == [4, 8, 10]
    assert [n for kind, n, *_ in told if kind == "checkpoint"] == [2, 4, 6, 8, 10]


def test_evaluations_are_of_the_parameters_after_the_update(watched):
    result, _ = watched
    lines = read_entries(result.run_dir, "evaluations.jsonl")
    assert lines == result.evaluations
    for report in lines:
        assert set(report["agents"]) == {"ann_0", "bob_0"}
        assert set(report["opponents"]["random"]) == {"ann_0", "bob_0"}
        assert np.isfinite(report["opponents"]["random"]["ann_0"]["return_mean"])
    # The last one again, from what was saved.
    trainer = make_trainer(
        result.run_dir.with_name("again"), evaluation=EVALUATION, checkpoints=EVERY
    )
    population = load_run(result.run_dir, env=Lamps()).population
    again = trainer._evaluator.evaluate(population, 10)
    assert again.items() <= lines[-1].items()


@pytest.mark.parametrize("method", ["on_log", "on_evaluation", "on_checkpoint"])
def test_a_callback_ends_the_run(tmp_path, method):
    class Stop(Callback):
        pass

    setattr(Stop, method, lambda self, what: True)
    result = make_trainer(
        tmp_path / "run", checkpoints=EVERY, evaluation=EVALUATION, callbacks=[Stop()]
    ).train()
    assert result.interrupted
    assert result.stopped_by.endswith(f"Stop.{method}")
    newest = checkpoints_of(tmp_path / "run")[0]
    assert read_position(newest).env_steps == result.env_steps < CONFIG.total_env_steps


@pytest.mark.parametrize("method", ["on_start", "on_log", "on_checkpoint"])
def test_an_error_in_a_callback_is_named_and_loses_nothing(tmp_path, method):
    class Wrong(Callback):
        pass

    def fail(self, what):
        raise KeyError("no such name")

    setattr(Wrong, method, fail)
    recorder = Recorder()
    trainer = make_trainer(tmp_path / "run", checkpoints=EVERY, callbacks=[Wrong(), recorder])
    with pytest.raises(
        CallbackError, match=f"Wrong.{method} raised KeyError: 'no such name'; what"
    ):
        trainer.train()
    assert load_run(tmp_path / "run", env=Lamps()).population is not None
    newest = read_position(checkpoints_of(tmp_path / "run")[0])
    kind, env_steps, stopped_by = recorder.told[-1]
    assert (kind, env_steps) == ("end", newest.env_steps)
    assert stopped_by.startswith("CallbackError: ")


def test_what_cannot_be_called_is_refused(tmp_path):
    for wrong, message in [
        ([3], "a callback must be a function of an entry or a Callback, got 3"),
        ([Recorder], "must be a function of an entry or a Callback, got <class"),
        (Recorder(), "callbacks must be a sequence"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_trainer(tmp_path / "run", callbacks=wrong)


def test_the_end_is_told_of_a_fault_too(tmp_path):
    recorder = Recorder()
    trainer = make_trainer(
        tmp_path / "run", LampParams(fault=NAN_REWARD), callbacks=[recorder], checkpoints=EVERY
    )
    with pytest.raises(EnvironmentFault):
        trainer.train()
    assert recorder.told[-1][2].startswith("EnvironmentFault: environment 'lamps' gave NaN")
    # What is saved is from before it.
    assert read_position(checkpoints_of(tmp_path / "run")[0]).iteration == 2


def test_time_is_limited(tmp_path):
    # Over before the first iteration, and the run goes on from there all the same.
    result = make_trainer(tmp_path / "run", max_minutes=1e-6).train()
    assert result.stopped_by == "max_minutes=1e-06 are over"
    assert (result.env_steps, result.history) == (0, [])
    again = Trainer.resume(
        tmp_path / "run", max_minutes=60, env=Lamps(), progress=False, check_env=False
    ).train()
    assert again.env_steps == CONFIG.total_env_steps
    assert again.stopped_by is None


def test_the_best_checkpoint_stays_and_a_target_ends_the_run(tmp_path):
    objective = ObjectiveConfig(measure="agents/ann_0/return_mean", goal="minimise")
    keep_one = CheckpointConfig(every_minutes=None, every_env_steps=PER_ITERATION, keep=1)
    result = make_trainer(
        tmp_path / "run", objective=objective, checkpoints=keep_one, log_interval=1
    ).train()
    values = [entry["agents"]["ann_0"]["return_mean"] for entry in result.history]
    kept = {int(path.name): read_position(path) for path in checkpoints_of(tmp_path / "run")}
    assert set(kept) == {10, 1 + int(np.argmin(values))}
    assert kept[10].best == min(values)
    target = dataclasses.replace(objective, stop_at=values[0])
    stopped = make_trainer(tmp_path / "target", objective=target, log_interval=1).train()
    assert len(stopped.history) == 1
    assert stopped.stopped_by.endswith("as good as was asked for")


def test_a_plateau_ends_the_run(tmp_path):
    """Every life takes five steps, so no length is better than the first."""
    objective = ObjectiveConfig(measure="evaluation/agents/bob_0/length_mean", patience=2)
    often = dataclasses.replace(EVALUATION, every_env_steps=1, opponents=())
    result = make_trainer(
        tmp_path / "run", env=Rounds(), objective=objective, evaluation=often
    ).train()
    assert [report["iteration"] for report in result.evaluations] == [1, 2, 3]
    assert result.stopped_by.endswith("was not better than 5 2 times in a row")


def test_objectives_that_there_are_not_are_refused(tmp_path):
    def make(measure, **changes):
        return make_trainer(tmp_path / "run", objective=ObjectiveConfig(measure=measure), **changes)

    with pytest.raises(ValueError, match="a path that begins with one of all, agents, policies"):
        make("return_mean")
    with pytest.raises(ValueError, match=r"names 'eve' among the agents; valid: ann_0, bob_0"):
        make("agents/eve/return_mean")
    with pytest.raises(ValueError, match=r"needs evaluations while training; set evaluation.every"):
        make("evaluation/agents/ann_0/return_mean")
    with pytest.raises(ValueError, match="'agents/ann_0/retrun' is not among the metrics of"):
        make("agents/ann_0/retrun")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"opponents names 'nobody'; valid: ann_0, bob_0, random"):
        make_trainer(
            tmp_path / "other", evaluation=dataclasses.replace(EVALUATION, opponents=("nobody",))
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EvaluationConfig(episodes=3), "evaluation.episodes=3 has no effect without"),
        (lambda: EvaluationConfig(greedy=True), "evaluation.greedy=True has no effect without"),
        (lambda: ObjectiveConfig(patience=3), "objective.patience=3 has no effect without"),
        (lambda: ObjectiveConfig(goal="minimise"), "objective.goal='minimise' has no effect"),
        (lambda: CheckpointConfig(keep=0, every_minutes=1), "every_minutes=1 has no effect with"),
        (lambda: CheckpointConfig(keep=-1), "keep must be a whole number of at least 0, got -1"),
        (lambda: CheckpointConfig(every_minutes=0), "every_minutes must be positive"),
    ],
)
def test_options_without_effect_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_save_that_fails_is_told_and_tried_again(tmp_path, plain, monkeypatch):
    """As on a full disk; training goes on to the same end."""
    write, failures = checkpoints.write_checkpoint, iter([True, True])

    def fail_twice(run_dir, snapshot, processes):
        if next(failures, False):
            raise OSError(28, "No space left on device")
        return write(run_dir, snapshot, processes)

    monkeypatch.setattr(saving, "write_checkpoint", fail_twice)
    with pytest.warns(
        RuntimeWarning, match=r"no checkpoint could be saved .* No space .*tried again"
    ):
        result = make_trainer(tmp_path / "run", checkpoints=EVERY).train()
    assert_same(result.population, plain.population)
    assert {int(path.name) for path in checkpoints_of(tmp_path / "run")} == {6, 8, 10}


def test_checkpoints_are_due_by_the_clock_and_by_steps(tmp_path):
    now = [0.0]
    config = CheckpointConfig(every_minutes=1.0, every_env_steps=30)
    saver = Saver(tmp_path, config, iteration_steps=10, clock=lambda: now[0])
    assert [n for n in range(1, 8) if saver.is_due(n)] == [3, 6]
    now[0] = 59.0
    assert not saver.is_due(1)
    now[0] = 60.0
    assert saver.is_due(1)
    saver.close()
    never = Saver(tmp_path, CheckpointConfig(keep=0), 10, clock=lambda: now[0])
    now[0] = 1e9
    assert not never.is_due(3)
    never.close()


def test_a_slow_disk_holds_nothing_up(tmp_path, monkeypatch):
    """By the clock no checkpoint is due while one is being written."""
    write = checkpoints.write_checkpoint

    def write_slowly(run_dir, snapshot, processes):
        time.sleep(0.2)
        return write(run_dir, snapshot, processes)

    monkeypatch.setattr(saving, "write_checkpoint", write_slowly)
    often = CheckpointConfig(every_minutes=1e-9)
    result = make_trainer(tmp_path / "run", checkpoints=often).train()
    assert result.env_steps == CONFIG.total_env_steps
    assert read_position(checkpoints_of(tmp_path / "run")[0]).iteration == 10
