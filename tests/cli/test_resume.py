"""`jaxmarl-ppo resume`, the end of a run as the command line tells it, and checkpoints by name."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import pytest
from command_line import run, status_of

from jaxmarl_envs import make
from jaxmarl_ppo.cli.run_end import print_end
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.training.trainer import Trainer

TINY = "--num-envs 4 --num-steps 8 --hidden-sizes 4 --network mlp --no-progress --no-check-env"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that its limit of time stops before it begins."""
    run_dir = tmp_path_factory.mktemp("stopped") / "run"
    arguments = f"train tic_tac_toe {TINY} --total-env-steps 96 --log-interval 1"
    assert status_of(*arguments.split(), "--max-minutes", "1e-6", "--run-dir", str(run_dir)) == 0
    return run_dir


@pytest.fixture
def run_dir(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def test_a_run_goes_on_and_for_longer(capsys, run_dir):
    options = "--no-progress --no-check-env --max-minutes 60"
    status, out, errors = run(capsys, f"resume {run_dir} {options}")
    assert (status, errors) == (0, "")
    assert "trained 96 environment steps" in out
    status, out, _ = run(capsys, f"resume {run_dir} {options} --total-env-steps 1.6e2")
    assert "trained 160 environment steps" in out
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["env_steps"] for line in lines] == [32, 64, 96, 128, 160]
    status, out, _ = run(capsys, f"evaluate {run_dir} --checkpoint 3 --episodes 2 --json")
    assert (status, json.loads(out)["episodes"]) == (0, 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("resume", "jaxmarl-ppo resume takes the folder of a run"),
        ("resume no_such", "run folder 'no_such' does not exist"),
        (
            "resume {} --num-envs 8",
            "cannot resume with another num_envs: it was 4, got 8; what may",
        ),
        ("resume {} --ppo.gamma 0.5", "another default_ppo.gamma: it was 1.0, got 0.5; what may"),
        ("resume {} --env-kwargs size=4", "cannot resume with another env.kwargs"),
        ("resume {} --evaluation.episodes 0", "evaluation.episodes must be a whole number of at"),
        ("resume {} --tota-env-steps 9", "did you mean --total-env-steps?"),
        ("resume {} --total-env-steps 0", "total_env_steps must be a whole number of at least 1"),
        ("resume {} --num-devices 3", "num_devices=3"),
        (
            "resume {} --env pick.py:Pick",
            "has no effect: environment 'tic_tac_toe'",
        ),
        ("evaluate {} --checkpoint best", "no checkpoint 'best'; the run had no objective; valid:"),
        ("evaluate {} --checkpoint 77", "no checkpoint '77'; valid: newest, 0"),
        ("train tic_tac_toe --load no_such", "no_such/params/policies.msgpack does not exist"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(capsys, run_dir, args, message):
    status, out, errors = run(capsys, args.format(run_dir))
    assert (status, out) == (2, "")
    assert errors.startswith("error: ")
    assert message in errors
    assert errors.count("\n") == 1


def test_values_that_are_not_learnt_from_change_by_path(run_dir):
    changes = {"evaluation.every_env_steps": 64.0, "until": ["env_steps > 5"], "gamma": 1.0}
    before = Trainer.resume(run_dir).config
    config = Trainer.resume(run_dir, changes=changes).config
    assert config.evaluation == EvaluationConfig(every_env_steps=64)
    assert config.until == ("env_steps > 5",)
    assert dataclasses.replace(config, evaluation=before.evaluation, until=()) == before


def result(stopped_by):
    return TrainResult(None, None, [{"wall_s": 1.0}], [], Path("run"), 32, True, stopped_by)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stopped_by", "status"),
    [
        ("SIGINT", 128 + signal.SIGINT),
        ("SIGTERM", 143),
        ("SIGUSR1", 128 + signal.SIGUSR1),
        ("max_minutes=1 are over", 0),
        ("callback Stop.on_log", 0),
    ],
)
def test_the_exit_status_tells_what_stopped_a_run(capsys, stopped_by, status):
    config = TrainConfig(total_env_steps=64, num_envs=4, num_steps=8)
    assert print_end(result(stopped_by), config, make("tic_tac_toe")[0]) == status
    out = capsys.readouterr().out
    assert f"stopped after 32 of 64 environment steps: {stopped_by}" in out
    assert "continue: jaxmarl-ppo resume run\n" in out
    without = TrainConfig(checkpoints=CheckpointConfig(keep=0))
    print_end(result(stopped_by), without, make("tic_tac_toe")[0])
    assert "resume" not in capsys.readouterr().out
