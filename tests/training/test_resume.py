"""Runs that go on as if they had never stopped."""

import dataclasses
import os
import shutil
import signal
import threading

import numpy as np
import optax
import pytest
from lamps import (
    CONFIG,
    NUM_ENVS,
    NUM_STEPS,
    Lamps,
    assert_same_end,
    cut_back,
    make_trainer,
    read_entries,
    resume,
    without_clock,
)

import jaxmarl_envs
from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP, MinGRU
from jaxmarl_ppo.runs.callbacks import Callback
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.manifest import read_position
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training.trainer import Trainer

PER_ITERATION = NUM_ENVS * NUM_STEPS
ITERATIONS = 10
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=PER_ITERATION, keep=ITERATIONS)
SHORT = PPOConfig(num_epochs=2, num_minibatches=2, learning_rate=Linear(1e-2, 1e-4))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing stops, with a checkpoint of every iteration."""
    return make_trainer(tmp_path_factory.mktemp("whole") / "run", checkpoints=EVERY).train()


@pytest.mark.parametrize("iteration", [1, 3, 8])
def test_a_killed_run_goes_on_to_the_bit(whole, tmp_path, iteration):
    """Within an interval of the log and at its end; later entries are there already."""
    torn = cut_back(whole.run_dir, tmp_path / "torn", iteration)
    assert_same_end(resume(torn).train(), whole)
    assert load_run(torn, env=Lamps()).population is not None


def test_a_checkpoint_with_the_former_names_of_its_arrays_goes_on_to_the_bit(
    whole, tmp_path, monkeypatch
):
    former = {
        "state/per_env/banks/0/pending/steps": "state/per_env/banks/0/pending/ticks",
        "state/per_env/banks/0/pending/decisions/policy_index": (
            "state/per_env/banks/0/pending/decisions/member"
        ),
        "metrics/sums/env_steps": "metrics/sums/ticks",
        "metrics/fault/step": "metrics/fault/tick",
    }

    def read(folder):
        arrays = read_arrays(folder)
        arrays = {name.replace("/policy_groups/", "/banks/"): x for name, x in arrays.items()}
        assert former.keys() <= arrays.keys()
        return {former.get(name, name): array for name, array in arrays.items()}

    torn = cut_back(whole.run_dir, tmp_path / "torn", 3)
    monkeypatch.setattr("jaxmarl_ppo.training.resume.read_arrays", read)
    assert_same_end(resume(torn).train(), whole)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_run_that_a_signal_stops_goes_on_to_the_bit(whole, tmp_path, signum):
    """Also where the signal falls into an interval of the log, whose entry is made again."""

    class Stop(Callback):
        def on_checkpoint(self, path):
            if int(path.name) == 4:
                signal.raise_signal(signum)

    before = signal.getsignal(signum)
    stopped = make_trainer(tmp_path / "run", checkpoints=EVERY, callbacks=[Stop()]).train()
    assert signal.getsignal(signum) is before
    assert stopped.interrupted
    assert stopped.stopped_by == signum.name
    assert 4 <= stopped.env_steps // PER_ITERATION < ITERATIONS
    assert_same_end(resume(tmp_path / "run").train(), whole)


def test_a_run_goes_on_for_longer(whole, tmp_path):
    """As a run that was so long from the beginning, but for the schedule up to there."""
    copy = cut_back(whole.run_dir, tmp_path / "copy", ITERATIONS)
    longer = resume(copy, total_env_steps=15 * PER_ITERATION).train()
    assert longer.env_steps == 15 * PER_ITERATION
    assert without_clock(longer.history[:3]) == without_clock(whole.history[:3])
    assert [entry["iteration"] for entry in longer.history[3:]] == [10, 12, 15]
    with pytest.raises(ValueError, match="total_env_steps=320 is less than the 480 environment"):
        resume(copy, total_env_steps=10 * PER_ITERATION)


def test_schedules_stretch_with_the_run(tmp_path):
    steep = dataclasses.replace(CONFIG.default_ppo, learning_rate=Linear(1.0, 0.0))
    changes = {"default_ppo": steep, "log_interval": 1, "total_env_steps": 2 * PER_ITERATION}
    short = make_trainer(tmp_path / "run", **changes).train()
    longer = resume(short.run_dir, total_env_steps=10 * PER_ITERATION).train()
    rates = [entry["policies"]["ann_0"]["learning_rate"] for entry in longer.history]
    # Of ten iterations from here on; the first two were halves of the short run.
    assert rates == pytest.approx([1.0, 0.5, *np.linspace(0.8, 0.1, 8)])


def test_a_run_goes_on_on_another_number_of_devices(whole, tmp_path):
    torn = cut_back(whole.run_dir, tmp_path / "torn", 5)
    assert load_run(torn, env=Lamps()).config.num_devices == 1
    result = resume(torn, num_devices=2).train()
    assert result.env_steps == whole.env_steps
    decided = sum(p["decisions"] for e in result.history for p in e["policies"].values())
    assert decided == 2 * whole.env_steps
    # Another random draw.
    assert without_clock(result.history)[-1] != without_clock(whole.history)[-1]


def test_a_finished_run_has_nothing_left_to_do(whole, tmp_path):
    copy = shutil.copytree(whole.run_dir, tmp_path / "copy")
    assert_same_end(resume(copy).train(), whole)


def test_an_optimiser_s_state_in_one_row_is_refused_where_it_should_be_a_tree(
    tmp_path, monkeypatch
):
    changes = {"default_ppo": dataclasses.replace(SHORT, optimiser=optax.adam)}
    with monkeypatch.context() as patch:
        # As earlier versions gave weights to an optimiser that is a function.
        patch.setattr("jaxmarl_ppo.ppo.optimiser._on_tree", lambda step, like: step)
        former = make_trainer(tmp_path / "run", **changes, total_env_steps=PER_ITERATION).train()
    (folder,) = checkpoints_of(former.run_dir)
    message = (
        r"opt_state/1/0/mu is float32\[2, \d+\], but should be absent. The optimiser keeps its "
        rf"state in another layout .* jaxmarl-ppo train ENV --load {folder}$"
    )
    config = dataclasses.replace(CONFIG, **changes)
    with pytest.raises(ValueError, match=message):
        resume(former.run_dir, config=config, total_env_steps=2 * PER_ITERATION).train()


def test_what_is_learnt_from_cannot_change(whole, tmp_path):
    other = dataclasses.replace(CONFIG, num_envs=8)
    with pytest.raises(ValueError, match="cannot resume with another num_envs: it was 4, got 8"):
        resume(whole.run_dir, config=other)
    with pytest.raises(ValueError, match="no_such' does not exist"):
        Trainer.resume(tmp_path / "no_such")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty has no checkpoint to resume from"):
        Trainer.resume(tmp_path / "empty")
    with pytest.raises(ValueError, match="'lamps' was made in Python"):
        Trainer.resume(whole.run_dir)


def test_a_damaged_checkpoint_is_passed_over(whole, tmp_path):
    torn = cut_back(whole.run_dir, tmp_path / "torn", 6)
    damaged = torn / "checkpoints" / "000000006" / "params" / "policies.msgpack"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    (torn / "checkpoints" / "000000005" / "manifest.json").write_text("{")
    with pytest.warns(RuntimeWarning, match=r"policies.msgpack differs from its checksum; .*going"):
        trainer = resume(torn)
    assert trainer._resumption.position.iteration == 4
    assert_same_end(trainer.train(), whole)
    assert {path.name for path in (torn / "checkpoints").glob("*.damaged")} == {
        "000000006.damaged",
        "000000005.damaged",
    }


def test_a_killed_run_is_evaluated_and_loaded_from_its_newest_checkpoint(whole, tmp_path):
    torn = cut_back(whole.run_dir, tmp_path / "torn", 6)
    newest = torn / "checkpoints" / "000000006"
    by_run, by_checkpoint = load_run(torn, env=Lamps()), load_run(newest, env=Lamps())
    for found in (by_run, by_checkpoint):
        for name, array in to_arrays(found.population).items():
            assert np.isfinite(array).all(), name
    policy = dataclasses.replace(CONFIG.default_policy, load=str(newest))
    warm = make_trainer(tmp_path / "warm", default_policy=policy)
    assert {loaded.policy_index for loaded in warm.learner.loaded} == {0, 1}


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    began, ended = threading.Event(), threading.Event()

    def wait(entry):
        began.set()
        assert ended.wait(60)

    first = make_trainer(tmp_path / "run", callbacks=[wait])
    second = make_trainer(tmp_path / "run")
    thread = threading.Thread(target=first.train)
    thread.start()
    try:
        assert began.wait(60)
        with pytest.raises(ValueError, match=f"is in use by process {os.getpid()} on"):
            second.train()
    finally:
        ended.set()
        thread.join()
    assert len(read_entries(tmp_path / "run")) == 4


def league(num_devices, **pool):
    mapping = Matchups(({"x": "main", "o": "main"}, {"x": "main", "o": "past"}))
    return (
        "tic_tac_toe",
        {},
        {
            "mapping": mapping,
            "policies": {"past": Snapshots("main", **{"size": 2, "add_every": 3, **pool})},
            "num_devices": num_devices,
        },
    )


def network(env, network, num_devices, **kwargs):
    spec = PolicySpec(
        network=network,
        normalise_rewards=True,
        normalise_observations=not isinstance(network, CNN),
    )
    return env, kwargs, {"default_policy": spec, "num_devices": num_devices}


RUNS = {
    "league-2": league(2),
    "archive-2": league(2, size=None, on_device=2, add_every=2),
    "shuttle-lstm-2": network("shuttle_grid", LSTM(hidden_sizes=(8,), lstm_size=8), 2),
    "tic-tac-toe-cnn-1": network(
        "tic_tac_toe", CNN(hidden_sizes=(8,), channels=(2,)), 1, planes=True
    ),
    "crypto-min-gru-2": network("crypto", MinGRU(hidden_sizes=(8,), gru_size=8), 2),
    "crypto-mlp-magnet-2": network("crypto", MLP(hidden_sizes=(8,)), 2),
    "crypto-mlp-muon-2": network("crypto", MLP(hidden_sizes=(8,)), 2),
}


@pytest.mark.rare_cases(
    "league-2",
    "shuttle-lstm-2",
    "crypto-min-gru-2",
    "crypto-mlp-magnet-2",
    "archive-2",
    "crypto-mlp-muon-2",
)
@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_goes_on_to_the_bit(tmp_path, name):
    """Environments, memory, open decisions, pools, results, normalisers, a magnet's weights, an
    optimiser's tree of weights; on several devices too.
    """
    env, kwargs, changes = RUNS[name]
    magnet = {"magnet": "average", "magnet_coef": Linear(1.0, 0.1), "magnet_rate": 0.2}
    ppo = dataclasses.replace(SHORT, **magnet) if "magnet" in name else SHORT
    ppo = dataclasses.replace(ppo, optimiser="muon") if "muon" in name else ppo
    changes.setdefault("default_policy", PolicySpec(network=MLP(hidden_sizes=(8,))))
    steps = 8 * 16
    config = TrainConfig(
        total_env_steps=8 * steps,
        num_envs=8,
        num_steps=16,
        default_ppo=ppo,
        log_interval=3,
        checkpoints=CheckpointConfig(every_minutes=None, every_env_steps=steps, keep=8),
        evaluation=EvaluationConfig(every_env_steps=3 * steps, episodes=4),
        **changes,
    )
    made = jaxmarl_envs.make(env, **kwargs)
    expected = Trainer(*made, config, tmp_path / "whole", progress=False).train()
    torn = cut_back(expected.run_dir, tmp_path / "torn", 4)
    assert_same_end(Trainer.resume(torn, progress=False).train(), expected)
    assert read_position(checkpoints_of(torn)[0]).iteration == 8
