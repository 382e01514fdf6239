"""SMAX at length: what is run next, with what, and the table of what was run."""

import dataclasses
import sys
from pathlib import Path

import pytest

from jaxmarl_ppo.config.jaxmarl_presets import GAMES
from jaxmarl_ppo.config.presets import preset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import smax_at_length
from smax_at_length import MAPS, THEIRS, VARIANTS


def run_of(name, variant, seed, result, cpu_seconds=1200.0):
    return {
        "map": name, "variant": variant, "seed": seed, "result": result, "cpu_seconds": cpu_seconds
    }  # fmt: skip


def test_every_network_comes_on_every_map_before_the_best_one_and_the_baseline():
    results = dict(zip(VARIANTS, (0.2, 0.9, 0.4, 0.1), strict=True))
    runs, order = [], []
    while (chosen := smax_at_length.next_run(runs, MAPS[:2])) is not None:
        name, variant, seed = chosen
        order.append(chosen)
        runs.append(run_of(name, variant, seed, results.get(variant, 0.0)))
    every = [(name, variant, 0) for variant in VARIANTS for name in MAPS[:2]]
    further = [("mlp_central", 1), (THEIRS, 0), (THEIRS, 1)]
    assert order == every + [(name, *last) for name in MAPS[:2] for last in further]


def test_the_budget_is_whole_iterations_of_both_trainers():
    for name in ("smax_3m", "smax_3m_theirs"):
        config = preset("jaxmarl", name).config
        assert smax_at_length.ENV_STEPS % (config.num_envs * config.num_steps) == 0


def test_a_run_differs_from_the_preset_in_network_and_budget():
    game = smax_at_length.battle("3s5z_vs_3s6z")
    assert dict(game.env_kwargs) == {**GAMES["smax_3m"].env_kwargs, "scenario": "3s5z_vs_3s6z"}
    config = smax_at_length.config_of("gru_central", game, seed=3)
    policy = config.default_policy
    assert (policy.central_critic, policy.network.gru_size, config.seed) == (True, 128, 3)
    known = preset("jaxmarl", "smax_3m").config
    same = {
        name: getattr(known, name) for name in ("total_env_steps", "default_policy", "num_devices")
    }
    assert dataclasses.replace(config, seed=known.seed, **same) == known


def test_a_row_has_every_variant():
    runs = [
        run_of("3s5z", "mlp", 0, 0.9124),
        run_of("3s5z", "mlp", 1, 0.95, cpu_seconds=2400.0),
        run_of("3s5z", "gru", 0, 0.0, cpu_seconds=None),
        run_of("3s5z", THEIRS, 1, 0.5),
    ]
    assert smax_at_length.make_table(runs).splitlines()[2:] == [
        "| `3s5z` | 0.912 / 0.950; 30 min | not run yet | 0.000 | not run yet | 0.500; 20 min |"
    ]


@pytest.mark.slow
def test_a_run_is_trained_evaluated_and_resumed(tmp_path, monkeypatch):
    pytest.importorskip("jaxmarl")
    monkeypatch.setattr(smax_at_length, "ENV_STEPS", 64 * 64)
    monkeypatch.setattr(smax_at_length.compare_jaxmarl, "EPISODES", 4)
    run = smax_at_length.run_one("2s3z", "mlp_central", 0, tmp_path / "run", tmp_path)
    assert (run["env_steps"], run["episodes"]) == (64 * 64, 4)
    assert 0.0 <= run["result"] <= 1.0
    assert run["cpu_seconds"] > 0
    again = smax_at_length.run_one("2s3z", "mlp_central", 0, tmp_path / "run", tmp_path)
    assert (again["result"], again["cpu_seconds"]) == (run["result"], None)
