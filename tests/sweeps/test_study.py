"""Trials that several processes share: as many as wanted, none twice, none lost."""

import threading

import pytest
from driving import (
    SPACE,
    SPAWNED,
    check_that_several_share,
    check_that_the_killed_are_followed,
    open_study,
)
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from jaxmarl_ppo.config.search import Choices, Range, SearchConfig
from jaxmarl_ppo.sweeps.samplers import count_trials
from jaxmarl_ppo.sweeps.storage import database_url, open_locks, open_storage, without_password
from jaxmarl_ppo.sweeps.study import REASON


def states(study):
    return [trial.state.name for trial in study.trials()]


def test_there_are_as_many_trials_as_wanted(tmp_path):
    study = open_study(tmp_path)
    with study.driving():
        asked = [study.ask() for _ in range(7)]
    assert [trial.number for trial in asked[:6]] == list(range(6))
    assert asked[6] is None
    for trial in asked[:6]:
        assert set(trial.params) == set(SPACE)
        assert -1 <= trial.params["x"] <= 1
        assert trial.params["n"] in range(1, 9)
        assert trial.params["kind"] in ("a", "[1, 2]")


def test_the_next_process_goes_on_where_one_died(tmp_path):
    first = open_study(tmp_path)
    with first.driving():
        trials = [first.ask() for _ in range(3)]
        first.complete(trials[0], 1.0)
        other = open_study(tmp_path)
        with other.driving():
            assert other.ask().number == 3  # the two that run are not free
    # The lock of the first is free now, as the system frees it when a process dies.
    again = open_study(tmp_path)
    with again.driving():
        taken = [again.ask() for _ in range(5)]
        assert [t.number for t in taken] == [1, 2, 3, 4, 5]
        assert taken[0].params == trials[1].params
        assert again.ask() is None
        # Who was taken for dead tells nothing any more.
        first.complete(trials[1], 9.0)
        assert states(again) == ["COMPLETE", *["RUNNING"] * 5]
        again.complete(taken[0], 2.0)
        again.fail(taken[1], "it burnt")
        again.release(taken[2])
    found = again.trials()
    assert [t.value for t in found[:2]] == [1.0, 2.0]
    assert found[2].user_attrs[REASON] == "it burnt"
    assert states(again) == ["COMPLETE", "COMPLETE", "FAIL", "WAITING", "RUNNING", "RUNNING"]


def test_what_is_drawn_does_not_depend_on_who_asks(tmp_path):
    alone = open_study(tmp_path / "alone")
    with alone.driving():
        params = [alone.ask().params for _ in range(4)]
    shared = open_study(tmp_path / "shared")
    with shared.driving():
        for expected in params:
            another = open_study(tmp_path / "shared")
            with another.driving():
                trial = another.ask()
                assert trial.params == expected
                another.complete(trial, 0.0)
    assert len({p["x"] for p in params}) == 4


@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_no_values_come_twice_where_a_process_dies_while_it_asks(tmp_path, monkeypatch, sampler):
    def die(*_):
        raise KeyboardInterrupt

    whole = open_study(tmp_path / "whole", sampler=sampler)
    with whole.driving():
        expected = [whole.ask().params for _ in range(4)]
    first = open_study(tmp_path / "again", sampler=sampler)
    with first.driving(), monkeypatch.context() as patch:
        first.ask()
        patch.setattr(first.optuna_study._storage, "set_trial_param", die)
        with pytest.raises(KeyboardInterrupt):
            first.ask()
    again = open_study(tmp_path / "again", sampler=sampler)
    with again.driving():
        taken = [again.ask() for _ in range(4)]
    assert [trial.number for trial in taken] == [0, 1, 2, 3]
    assert [trial.params for trial in taken] == expected
    assert len({trial.params["x"] for trial in taken}) == 4


@pytest.mark.parametrize("many", [threading.Thread, SPAWNED.Process])
def test_several_at_once_run_no_trial_twice_and_lose_none(tmp_path, many):
    check_that_several_share(tmp_path, many, {"num_trials": 12})


def test_trials_of_a_process_that_is_killed_are_run_by_the_next(tmp_path):
    check_that_the_killed_are_followed(tmp_path, {"num_trials": 4})


def test_another_search_is_refused(tmp_path):
    open_study(tmp_path)
    open_study(tmp_path, num_trials=9)
    with pytest.raises(ValueError, match=r"is another search: config.num_envs is 8 here and 4"):
        open_study(tmp_path, identity={"config": {"num_envs": 8}})


def test_a_grid_has_every_combination_once(tmp_path):
    space = {"n": Range(1, 3), "kind": Choices(["a", "b"]), "x": Range(0.0, 1.0, step=0.5)}
    study = open_study(tmp_path, space, kept=InMemoryStorage(), sampler="grid", num_trials=None)
    assert study.num_trials == 18
    found = set()
    with study.driving():
        while (trial := study.ask()) is not None:
            found.add(tuple(trial.params.values()))
            study.complete(trial, 0.0)
    assert len(found) == 18
    with pytest.raises(ValueError, match=r"space.x: a grid needs a step"):
        count_trials(SearchConfig(sampler="grid"), {"x": Range(0.0, 1.0)})


def test_bad_trials_are_pruned(tmp_path):
    study = open_study(tmp_path, num_trials=12, pruner="asha", reduction_factor=2)
    with study.driving():
        pruned = []
        for value in range(12):
            trial = study.ask()
            for step in (10, 20, 40):
                if study.report(trial, float(value), step):
                    study.prune(trial)
                    pruned.append(value)
                    break
            else:
                study.complete(trial, float(value))
    assert 0 not in pruned
    assert len(pruned) >= 9
    assert study.trials()[11].state == TrialState.PRUNED


def test_a_trial_that_is_run_again_may_report_again(tmp_path):
    study = open_study(tmp_path)
    with study.driving():
        trial = study.ask()
        study.report(trial, 3.0, 10)
        study.release(trial)
        again = study.ask()
        assert again.number == 0
        study.report(again, 3.0, 10)
        study.report(again, 2.0, 20)
        study.complete(again, 2.0)
    assert study.trials()[0].intermediate_values == {10: 3.0, 20: 2.0}


@pytest.mark.parametrize("goal", ["minimise", "maximise"])
@pytest.mark.parametrize("sampler", ["cmaes", "tpe"])
def test_a_sampler_learns_from_what_it_is_told(tmp_path, sampler, goal):
    """Both end nearer to the optimum than random draws would, whoever asks."""
    space = {"x": Range(-1.0, 1.0), "y": Range(1e-3, 1e3, log=True), "n": Range(1, 9)}
    sign = 1.0 if goal == "minimise" else -1.0
    storage = InMemoryStorage()
    distances = []
    for _ in range(6):  # processes that go on with each other's work
        study = open_study(tmp_path, space, goal=goal, kept=storage, sampler=sampler, num_trials=60)
        with study.driving():
            for _ in range(10):
                trial = study.ask()
                p = trial.params
                distance = (p["x"] - 0.7) ** 2 + abs(p["n"] - 8) / 8
                distances.append(distance)
                study.complete(trial, sign * distance)
    assert sum(distances[-15:]) < 0.4 * sum(distances[:15])
    if sampler == "cmaes":  # whose state is made again from this
        attributes = {key for trial in study.trials() for key in trial.system_attrs}
        assert attributes == {"generation", "point"}


def test_cmaes_needs_two_ranges():
    with pytest.raises(ValueError, match="needs at least two ranges, and the space has 1"):
        count_trials(
            SearchConfig(sampler="cmaes"), {"x": Range(0.0, 1.0), "k": Choices(["a", "b"])}
        )


def test_databases_are_postgresql_or_a_file(tmp_path):
    for bad in ("mysql://a@b/c", "study.db", "sqlite:///a.db"):
        with pytest.raises(ValueError, match="storage must be postgresql://"):
            database_url(bad, tmp_path)
    url = database_url("postgresql://me:secret@host/db", tmp_path)
    assert url.drivername == "postgresql+psycopg"
    assert without_password("postgresql://me:secret@host/db") == "postgresql://me@host/db"


def test_a_database_that_is_not_there_is_told(tmp_path):
    pytest.importorskip("psycopg")
    url = database_url("postgresql://me:secret@127.0.0.1:9/db", tmp_path)
    with pytest.raises(ValueError, match="cannot be used: ") as refused:
        open_storage(url, open_locks(url, tmp_path, "search"))
    assert "secret" not in str(refused.value)
