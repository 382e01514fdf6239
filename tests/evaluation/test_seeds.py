"""Means over seeds, and how certain they are."""

import numpy as np
import pytest
import scipy.stats

from jaxmarl_ppo.evaluation.seeds import bootstrap_interval, iqm, summarise_seeds


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    values = np.array([[-100.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0], [4.0, 0.0]])
    # Of five the lowest and the highest, as int(5 / 4) is 1.
    np.testing.assert_allclose(iqm(values), [2.0, 0.0])
    np.testing.assert_allclose(iqm(np.arange(8.0)), np.mean([2, 3, 4, 5]))


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(3)
    low, high = bootstrap_interval(rng.normal(2.0, 1.0, (20, 400)))
    covered = float(np.mean((low <= 2.0) & (high >= 2.0)))
    assert 0.87 < covered < 0.98


def test_tables_are_joined_number_by_number():
    tables = [
        {"all": {"return_mean": 1.0, "return_se": 0.5}, "episodes": 3, "name": "x"},
        {"all": {"return_mean": 2.0, "return_se": 0.1, "late": 7.0}, "episodes": 4, "name": "x"},
    ]
    joined = summarise_seeds(tables)
    assert joined["all"] == {"return_mean": 1.5, "late": 7.0}
    assert joined["episodes"] == 7
    assert "name" not in joined
    assert joined["iqm"]["all"] == {"return_mean": 1.5, "late": 7.0}
    assert joined["ci95_low"] == {"all": {"return_mean": 1.0}}  # of one seed there is no interval
    assert joined["ci95_high"] == {"all": {"return_mean": 2.0}}
    assert summarise_seeds(tables, has_counts=False)["episodes"] == pytest.approx(3.5)


def test_the_same_seeds_have_the_same_interval():
    values = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(bootstrap_interval(values), bootstrap_interval(values))


def test_both_measures_are_those_of_scipy():
    values = np.random.default_rng(1).gamma(1.0, size=(11, 4))
    interval = scipy.stats.bootstrap(
        (values,), iqm, n_resamples=2000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    np.testing.assert_allclose(iqm(values), scipy.stats.trim_mean(values, 0.25), rtol=1e-12)
    low, high = bootstrap_interval(values)
    np.testing.assert_allclose((low, high), (interval.low, interval.high), rtol=1e-12)
