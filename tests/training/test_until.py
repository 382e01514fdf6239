"""Runs that end on a number of their log, and logs of runs that are very long."""

import numpy as np
import pytest
from lamps import CONFIG, NUM_ENVS, NUM_STEPS, Lamps, Rounds, assert_same, make_trainer

from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.training import loop
from jaxmarl_ppo.training.trainer import Trainer

PER_ITERATION = NUM_ENVS * NUM_STEPS
EVER = 10**15


def train(folder, until, **changes):
    return make_trainer(folder, until=until, log_interval=1, **changes).train()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole") / "run", ())


def test_the_first_condition_that_holds_ends_the_run(whole, tmp_path):
    returns = [entry["agents"]["ann_0"]["return_mean"] for entry in whole.history]
    steps = 3 * PER_ITERATION
    result = train(
        tmp_path / "run",
        ("ann_0.return_mean > 1e9", f"env_steps >= {steps}", "agents/bob_0/return_max<-1e9"),
        total_env_steps=EVER,
    )
    assert result.interrupted
    assert result.stopped_by == f"env_steps >= {steps} holds, it is {steps}"
    assert [entry["agents"]["ann_0"]["return_mean"] for entry in result.history] == returns[:3]
    reached = train(tmp_path / "reached", (f"ann_0.return_mean>={returns[4]}",))
    first = int(np.argmax(np.array(returns) >= returns[4]))
    assert reached.history[-1]["iteration"] == first + 1


def test_a_number_may_have_the_name_that_older_logs_give_it(tmp_path):
    result = train(tmp_path / "run", ("decisions_per_tick > 1",))
    assert result.stopped_by == "decisions_per_tick > 1 holds, it is 2"
    assert result.history[-1]["iteration"] == 1


@pytest.mark.rare
def test_conditions_are_kept_and_can_be_others_when_a_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    train(folder, ("iteration>=2",), checkpoints=CheckpointConfig())
    options = {"env": Lamps(), "progress": False, "check_env": False}
    again = Trainer.resume(folder, **options)
    assert again.config.until == ("iteration>=2",)
    assert [entry["iteration"] for entry in again.train().history] == [1, 2, 3]
    on = Trainer.resume(folder, until=("iteration > 4",), **options).train()
    assert on.history[-1]["iteration"] == 5
    end = Trainer.resume(folder, until=(), **options).train()
    assert (end.interrupted, end.env_steps) == (False, CONFIG.total_env_steps)


def test_what_an_evaluation_says_ends_a_run(tmp_path):
    evaluation = EvaluationConfig(every_env_steps=PER_ITERATION, episodes=2)
    until = ("evaluation.agents.ann_0.length_mean >= 5",)
    result = train(tmp_path / "run", until, env=Rounds(), evaluation=evaluation)
    assert len(result.evaluations) == 1
    assert result.stopped_by.endswith("holds, it is 5")
    with pytest.raises(ValueError, match=r"until names 'evaluation.no', which is not in an eval"):
        make_trainer(
            tmp_path / "no", until=("evaluation.no>1",), env=Rounds(), evaluation=evaluation
        )


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("ann_0.retrun_mean>1", r"did you mean 'ann_0.return_mean'\? valid: env_steps, .*of all: "),
        ("return_mean>1", "until names 'return_mean', which is not in the log"),
        ("eve.return_mean>1", "until names 'eve.return_mean'"),
        ("evaluation.all.return_mean>1", "needs evaluations while training"),
        ("all.return_mean=1", "must be the name of a metric, one of >, >=, <, <=, and a finite"),
        ("all.return_mean>nan", "and a finite number"),
        (">1", "and a finite number"),
        ("", "and a finite number"),
        (3, "an entry of until must be a condition"),
    ],
)
def test_conditions_on_nothing_are_refused_before_anything_is_compiled(tmp_path, until, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path / "run", until=(until,))


def test_conditions_are_a_sequence_of_different_ones(tmp_path):
    with pytest.raises(ValueError, match="until names 'iteration>1' twice"):
        make_trainer(tmp_path / "run", until=("iteration>1", "iteration>1"))
    with pytest.raises(ValueError, match="until must be a sequence of conditions, got 'iteration"):
        make_trainer(tmp_path / "run", until="iteration>1")


def test_very_long_runs_have_an_entry_now_and_then(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOG_EVERY_S", 0.0)
    endless = {"total_env_steps": EVER, "log_interval": None}
    result = make_trainer(tmp_path / "run", until=("iteration>=5",), **endless).train()
    entries = result.history
    assert 2 <= len(entries) <= 5
    assert entries[-1]["iteration"] >= 5
    # Each entry is of what came since the one before.
    episodes = [entry["episodes"] for entry in whole.history]
    ends = [entry["iteration"] for entry in entries]
    for start, end, entry in zip([0, *ends], ends, entries, strict=False):
        assert entry["episodes"] == sum(episodes[start:end])
    same = make_trainer(tmp_path / "same", total_env_steps=ends[-1] * PER_ITERATION).train()
    assert_same(same.state.population, result.state.population)


def test_iterations_are_as_many_as_can_be_counted():
    config = TrainConfig(total_env_steps=EVER, num_envs=1, num_steps=1)
    assert config.num_iterations == 2**31 - 1
