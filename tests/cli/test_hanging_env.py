"""`train` with an environment in plain Python that hangs: what was learnt is saved, and it ends."""

import json
import signal
import subprocess
import sys
import time

import pytest
from job import environment

from jaxmarl_ppo.runs.run_folder import load_run

# Hangs once, on a step that comes after some iterations, and tells it.
FILE = """
import pathlib, time
import numpy as np
from gymnasium import spaces

class Env:
    possible_agents = ["a", "b"]
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    count = 0

    def __init__(self, config):
        self.place = pathlib.Path(config["place"])

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return {agent: np.zeros(2, np.float32) for agent in "ab"}, {}

    def step(self, actions):
        self.time += 1
        metrics = self.place / "run" / "metrics.jsonl"
        if metrics.exists() and metrics.read_text().count("\\n") >= 2:
            if not (self.place / "hangs").exists():
                (self.place / "hangs").touch()
                time.sleep(600)
        seen = {agent: np.zeros(2, np.float32) for agent in "ab"}
        return seen, dict.fromkeys("ab", 1.0), {"__all__": self.time >= 5}, {}, {}
"""


@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
@pytest.mark.parametrize(
    ("limit", "numbers", "status", "message"),
    [
        (2.0, [], 2, "(acting: 'a', 'b') did not return within 2 s (step_timeout)"),
        (600.0, [signal.SIGTERM], 2, "and a stop was requested"),
        (600.0, [signal.SIGINT, signal.SIGINT], 130, "stopped at once; what was saved before"),
    ],
    ids=["limit", "sigterm", "two_ctrl_c"],
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_run_whose_environment_hangs_ends(tmp_path, limit, numbers, status, message, num_workers):
    (tmp_path / "env.py").write_text(FILE)
    command = [sys.executable, "-m", "jaxmarl_ppo", "train", str(tmp_path / "env.py:Env")]
    command += ["--num-envs", "2", "--num-steps", "4", "--hidden-sizes", "4"]
    command += ["--log-interval", "1", "--total-env-steps", "1e6"]
    command += ["--run-dir", str(tmp_path / "run"), "--env-kwargs"]
    command += [f"env_config={json.dumps({'place': str(tmp_path)})}", f"step_timeout={limit}"]
    command += [f"num_workers={num_workers}"]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        while not (tmp_path / "hangs").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.5)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert message in said.decode()
    assert process.returncode == status
    if status == 2:
        assert "policies of 16 environment steps are saved in" in said.decode()
        assert load_run(tmp_path / "run", env=str(tmp_path / "env.py:Env")).population is not None
