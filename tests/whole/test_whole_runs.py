"""What scripts record: runs that came to their end, one of each kind."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

import jaxmarl_envs
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, Trainer

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from whole_runs import enter_run, train_whole  # noqa: E402


def stop(entry):
    """As a queueing system does."""
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_is_stopped_ends_the_program(tmp_path):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
    config = TrainConfig(
        total_env_steps=64,
        num_envs=2,
        num_steps=4,
        log_interval=1,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=2),
        num_devices=1,
    )
    whole = train_whole(Trainer(env, params, config, tmp_path / "whole", progress=False))
    assert whole.env_steps == 64
    stopped = Trainer(env, params, config, tmp_path / "stopped", callbacks=[stop], progress=False)
    with pytest.raises(SystemExit, match=r"stopped by .*SIGTERM.* after \d+ environment steps"):
        train_whole(stopped)


def test_a_run_takes_the_place_of_one_with_its_key(tmp_path):
    path = tmp_path / "record.json"
    for seed, result in ((2, 0.1), (0, 0.2), (2, 0.3)):
        enter_run(path, {"seed": seed, "result": result}, lambda run: run["seed"], what="a game")
    runs = [{"seed": 0, "result": 0.2}, {"seed": 2, "result": 0.3}]
    assert json.loads(path.read_text()) == {"what": "a game", "runs": runs}
