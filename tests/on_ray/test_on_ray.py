"""Searches, runs and Tune on a cluster of two nodes, one of which dies."""

import json
import os
import re
import signal
import threading
import time

import jax
import numpy as np
import pytest
from job import ROOT

pytest.importorskip("ray")

import jaxmarl_envs
from jaxmarl_ppo.cli import train
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.search import Range, SearchConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.on_ray.workers import RayWorkers
from jaxmarl_ppo.runs.run_folder import load_run, read_run
from jaxmarl_ppo.sweeps.sweep import Sweep
from jaxmarl_ppo.training.trainer import Trainer

# Ray starts its processes by a fork, of which JAX warns, and uses what it has deprecated itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NUM_TRIALS = 5
PER_ITERATION = 128 * 32
CONFIG = TrainConfig(
    total_env_steps=12 * PER_ITERATION,
    num_envs=128,
    num_steps=32,
    log_interval=2,
    default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
    default_ppo=PPOConfig(num_minibatches=2, num_epochs=1),
    objective=ObjectiveConfig("agents/x/return_mean"),
)
RATE = "default_ppo.learning_rate"
SPACE = {RATE: Range(1e-4, 1e-1, log=True)}


def entries(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


class Killed(RayWorkers):
    """Workers one of which is killed with its node once it has been heard of."""

    def __init__(self, nodes, *args):
        super().__init__(nodes.address, None, *args)
        self.nodes, self.resumed = nodes, {}
        self.killed, self.were_ready = False, False

    @property
    def room(self):
        # Otherwise the worker that starts first may have trained all before the other is there.
        self.were_ready |= all(seat.is_ready for seat in self._seats)
        return super().room if self.were_ready else 0

    def train(self):
        results = super().train()
        for seat in self._seats:
            self._call(seat)
        if not self.killed and any(map(self._is_to_be_killed, self._seats)):
            self.nodes.kill_second()
            self.killed = True
        return results

    def _is_to_be_killed(self, seat):
        """Whether a worker of the second node trains on after a first result of its runs."""
        if seat.call is None or seat.begun or not any(o.saved for o in seat.orders.values()):
            return False
        return self.nodes.is_on_second(seat.actor)

    def _place_waiting(self):
        self.resumed |= {o.name.trial: o.saved.iteration for o in self._waiting if o.saved}
        super()._place_waiting()


@pytest.fixture(scope="module")
def searched(two_nodes, tmp_path_factory):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=3)
    search = SearchConfig(sampler="random", num_trials=NUM_TRIALS, num_members=2)
    folder = tmp_path_factory.mktemp("search") / "run"
    sweep = Sweep(env, params, CONFIG, SPACE, search, folder, progress=False, check_env=False)
    made = []

    def make(*args):
        made.append(Killed(two_nodes, *args))
        return made[0]

    with pytest.warns(RuntimeWarning, match="a worker of the search is lost"):
        result = sweep.run(make)
    two_nodes.complete()
    return result, made[0]


def test_a_search_ends_whole_though_a_node_dies(searched):
    result, workers = searched
    assert workers.killed
    assert [t.number for t in result.trials] == list(range(NUM_TRIALS))
    assert {t.state for t in result.trials} == {"complete"}
    steps = [k * 2 * PER_ITERATION for k in range(1, 7)]
    for trial in result.trials:
        assert list(trial.reports) == steps
        assert [entry["env_steps"] for entry in entries(trial.run_dir)] == steps
    assert len({t.values[RATE] for t in result.trials}) == NUM_TRIALS


def test_trials_of_the_dead_go_on_from_where_they_were_looked_at(searched, tmp_path):
    result, workers = searched
    number, iteration = next(iter(workers.resumed.items()))
    assert 0 < iteration < 12
    trial = result.trials[number]
    recorded = read_run(trial.run_dir)
    run = (recorded.env, recorded.env_params, recorded.config, tmp_path / "alone")
    trained = Trainer(*run, progress=False, check_env=False).train()
    # Without the compiler's optimisations programs of one replica and of two round otherwise.
    policy_groups = [
        trained.population.policy_groups,
        load_run(trial.run_dir).population.policy_groups,
    ]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 1e-3, 1e-5), *policy_groups)
    for ours, theirs in zip(entries(trial.run_dir), trained.history, strict=True):
        assert [ours[key] for key in ("episodes", "decisions")] == [
            theirs[key] for key in ("episodes", "decisions")
        ]
    seconds = [entry["wall_s"] for entry in entries(trial.run_dir)]
    assert seconds == sorted(seconds)


RUN = """
tic_tac_toe --env-kwargs size=2 k=2 --num-envs 16 --num-steps 16 --hidden-sizes 4 --num-devices 2
--ppo.num-epochs 1 --ppo.num-minibatches 2 --checkpoints.every-env-steps 1024 --log-interval 4
--total-env-steps 8192 --no-check-env --no-plays --no-progress --run-dir
"""


def kill_first_host(run_dir, killed):
    """Kill the process that trains, once there is something to go on from."""
    deadline = time.monotonic() + 120
    while not list(run_dir.glob("checkpoints/0*/manifest.json")):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    number = int(re.match(r"process (\d+)", (run_dir / ".lock").read_text()).group(1))
    os.kill(number, signal.SIGKILL)
    killed.append(number)


def test_two_hosts_train_as_two_devices_do_though_one_dies(two_nodes, tmp_path):
    killed = []
    killer = threading.Thread(
        target=kill_first_host, args=(tmp_path / "hosts", killed), daemon=True
    )
    killer.start()
    job = ["--ray", two_nodes.address, "--num-hosts", "2", "--max-failures", "1"]
    assert train.main([*RUN.split(), str(tmp_path / "hosts"), *job]) == 0
    killer.join()
    assert killed
    assert os.listdir(tmp_path) == ["hosts"]
    # Which is what two processes come to, and takes less time: tests/devices/test_processes.py.
    assert train.main([*RUN.split(), str(tmp_path / "devices")]) == 0
    runs = [load_run(tmp_path / name) for name in ("hosts", "devices")]
    same = jax.tree.map(np.array_equal, *(run.population for run in runs))
    assert all(jax.tree.leaves(same))
    entry = [entries(tmp_path / name)[-1] for name in ("hosts", "devices")]
    assert entry[0]["env_steps"] == entry[1]["env_steps"] == 8192


def test_tune_pauses_and_restores_trials_of_the_documents_search(two_nodes, tmp_path, monkeypatch):
    from ray.tune import schedulers

    class Pausing(schedulers.PopulationBasedTraining):
        """Pauses every trial once, after its first step."""

        def on_trial_result(self, tune_controller, trial, result):
            decision = super().on_trial_result(tune_controller, trial, result)
            if result["training_iteration"] == 1 and decision == self.CONTINUE:
                return self.PAUSE
            return decision

    monkeypatch.setattr(schedulers, "PopulationBasedTraining", Pausing)
    document = ROOT / "docs" / "from-rllib.md"
    section = document.read_text().partition("## Your own Tune script")[2]
    block = re.search(r"```py\n(.*?)```", section, flags=re.DOTALL).group(1)
    monkeypatch.chdir(tmp_path)
    said = {}
    exec(compile(block, str(document), "exec"), said)
    results = said["results"]
    assert not results.errors
    for result in results:
        assert result.metrics["env_steps"] == 16384
        assert result.metrics["iterations_since_restore"] < result.metrics["training_iteration"]
        loaded = load_run(result.checkpoint.path)
        assert loaded.config.default_ppo.learning_rate == result.config[RATE]
