"""Presets beside published results: what is run, recorded and shown."""

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from jaxmarl_ppo import MLP, PPOConfig, TrainConfig
from jaxmarl_ppo.config.jumanji_presets import JUMANJI_PRESETS
from jaxmarl_ppo.config.presets import Preset, preset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import published_tables
import whole_runs
from published_tables import RECORD, TASKS


def run_of(name, seed, result, **changes):
    run = {"preset": name, "seed": seed, "result": result, "env_steps": 2_097_152}
    return run | {"seconds": 1400.0, "cpu_seconds": 1000.0} | changes


def test_every_preset_is_a_task():
    assert list(TASKS) == [*JUMANJI_PRESETS, "craftax_classic"]


def test_what_is_recorded_are_the_presets():
    for run in json.loads(RECORD.read_text())["runs"]:
        task = TASKS[run["preset"]]
        assert run["env_steps"] == preset(task.env, run["preset"]).config.total_env_steps
        assert (run["episodes"], run["acting"]) == (320, "sample")
        agents = [agent["return_mean"] for agent in run["agents"].values()]
        parts = agents[:1] if task.is_shared else agents
        assert run["result"] == pytest.approx(sum(parts), abs=1e-3)


def test_a_row_has_the_seeds_that_were_run_and_the_means_of_their_costs():
    runs = [
        run_of("lbf_15x15_4p_3f", 0, 0.994),
        run_of("lbf_15x15_4p_3f", 2, 1.0, seconds=1000.0, cpu_seconds=None),
        run_of("rware_tiny_2ag", 1, 15.06),
        run_of("connector_5x5x3a", 0, 2.5, cpu_seconds=None),
    ]
    assert published_tables.make_table(runs).splitlines()[2:] == [
        "| LBF `15x15-4p-3f`, `lbf_15x15_4p_3f` | 2.1 M | 0.99, 1.00 (0, 2) | 0.98 to 1.00 "
        "| 1,000 (1,200) |",
        "| Connector `con-5x5x3a`, `connector_5x5x3a` | 2.1 M | 2.50 (0) | not published "
        "| - (1,400) |",
        "| RWARE `tiny-2ag`, `rware_tiny_2ag` | 2.1 M | 15.1 (1) | 14 to 16 | 1,000 (1,400) |",
    ]


def test_what_is_recorded_is_not_run_again(tmp_path, monkeypatch):
    record, ran = tmp_path / "record.json", []
    record.write_text(json.dumps({"runs": [run_of("rware_tiny_2ag", 0, 1.0)]}))

    def run_seed(name, seed, folder):
        folder.mkdir(parents=True)
        ran.append((name, seed))
        return run_of(name, seed, 2.0, result_se=0.1)

    monkeypatch.setattr(published_tables, "RECORD", record)
    monkeypatch.setattr(published_tables, "run_seed", run_seed)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    names = ["rware_tiny_2ag", "rware_tiny_4ag"]
    monkeypatch.setattr(sys, "argv", ["", *names, "--seeds", "0", "1", "--runs", str(tmp_path)])
    published_tables.main()
    assert ran == [("rware_tiny_2ag", 1), ("rware_tiny_4ag", 0), ("rware_tiny_4ag", 1)]
    results = [run["result"] for run in json.loads(record.read_text())["runs"]]
    assert results == [1.0, 2.0, 2.0, 2.0]
    assert list(tmp_path.iterdir()) == [record]


@pytest.mark.slow
def test_an_interrupted_run_resumes(tmp_path, monkeypatch):
    pytest.importorskip("jumanji")
    name = "lbf_2s_8x8_2p_2f_coop"
    small = TrainConfig(
        total_env_steps=64, num_envs=2, num_steps=4, mapping="shared", log_interval=1,
        default_ppo=PPOConfig(num_minibatches=2),
    )  # fmt: skip
    small = dataclasses.replace(
        small,
        default_policy=dataclasses.replace(small.default_policy, network=MLP(hidden_sizes=(4,))),
    )
    env_kwargs = preset("jumanji", name).env_kwargs
    monkeypatch.setattr(published_tables, "preset", lambda *_: Preset(small, env_kwargs))
    monkeypatch.setattr(published_tables, "EPISODES", 4)
    whole = published_tables.run_seed(name, 3, tmp_path / "whole")
    assert (whole["env_steps"], whole["episodes"]) == (64, 4)
    assert whole["cpu_seconds"] > 0

    class Stop(whole_runs.Stopwatch):
        def on_log(self, entry):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as stopping:
        stopping.setattr(whole_runs, "Stopwatch", Stop)
        with pytest.raises(SystemExit, match="stopped by"):
            published_tables.run_seed(name, 3, tmp_path / "stopped")
    resumed = published_tables.run_seed(name, 3, tmp_path / "stopped")
    assert resumed["cpu_seconds"] is None
    assert resumed["agents"] == whole["agents"]
