"""The script that trains a best response: its bound beside the exact value, in Kuhn poker."""

import dataclasses
import sys
from pathlib import Path

import pytest

from jaxmarl_ppo import Linear, preset

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from trained_best_response import response_config, speed, train_and_respond  # noqa: E402


@pytest.fixture
def kuhn():
    return dataclasses.replace(
        preset("kuhn_poker").config, total_env_steps=8192, num_envs=256, seed=3
    )


def test_a_response_learns_alone_and_to_the_end_of_its_own_training(kuhn, tmp_path):
    config = response_config(kuhn, tmp_path, "second", "first", 1000)
    assert config.mapping == {"second": "response", "first": "trained"}
    assert list(config.policies) == ["trained"]
    frozen = config.policies["trained"]
    assert (frozen.trainable, frozen.load) == (False, f"{tmp_path}:shared")
    assert config.total_env_steps == 1000
    assert config.seed != kuhn.seed
    ppo = config.default_ppo
    assert ppo.magnet == "off"
    assert ppo.log_barrier_coef is None
    # Not the points of the preset, which lie at steps that a response never comes to.
    assert isinstance(ppo.learning_rate, Linear)
    assert isinstance(ppo.entropy_coef, Linear)
    assert ppo.learning_rate.end == ppo.entropy_coef.end == 0.0


@pytest.mark.slow
def test_a_response_wins_nearly_what_is_to_be_won_and_never_more(kuhn):
    """Against a policy that has hardly learnt, of which there is much to win."""
    row = train_and_respond("kuhn_poker", kuhn, 400_000, 16384)
    exact, bound, error = (
        row["exact_exploitability"],
        row["exploitability_at_least"],
        row["exploitability_se"],
    )
    assert exact > 0.3
    assert 0 < error < 0.02
    assert 0.9 * exact - 4 * error < bound < exact + 4 * error
    assert bound == pytest.approx((row["response_as_first"] + row["response_as_second"]) / 2)
    assert 2 < row["ticks_per_game"] < 3
    assert row["games_per_s"] > 0


def test_games_a_second_are_of_the_median_rate_and_the_last_lengths():
    history = [
        {"agents": {"x": {"length_mean": length}}, "env_steps_per_s": rate, "wall_s": wall}
        for length, rate, wall in [(99.0, 1.0, 1.0)]
        + [(5.0, 100.0, 2.0)] * 9
        + [(15.0, 60.0, 3.04)]
    ]
    # What no game ended in has no length.
    history.append({"agents": {"x": {}}, "env_steps_per_s": 200.0, "wall_s": 4.04})
    assert speed(history, "x") == {"wall_s": 4.0, "ticks_per_game": 6.0, "games_per_s": 17}
