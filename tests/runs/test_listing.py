"""What lies in a folder of runs, sound or damaged."""

import json

import pytest
from driving import open_study
from run_folders import STEPS, end, log, make_group, make_run, record_of, write_policies

from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.runs.listing import describe, find_runs
from jaxmarl_ppo.runs.lock import locked


def test_runs_are_found_below_and_parts_are_none_of_their_own(tmp_path):
    expected = [
        make_run(tmp_path / "deep" / "er" / "run"),
        make_group(tmp_path / "group"),
        make_run(tmp_path / "run", iterations=()),
    ]
    elsewhere = make_run(tmp_path / ".hidden" / "run", iterations=())
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    make_run(tmp_path / "a" / "b" / "c" / "d" / "too deep", iterations=())
    (tmp_path / "notes").mkdir()
    assert find_runs(tmp_path) == expected
    assert find_runs(expected[1]) == [expected[1]]


KILLED = "no end was recorded, as after kill -9"


@pytest.mark.parametrize(
    ("ended", "saved_by", "state", "reason"),
    [
        (("finished", None), "end", "finished", None),
        (("stopped", "SIGINT"), "SIGINT", "stopped", "SIGINT"),
        (("failed", "ValueError: odd"), "interval", "failed", "ValueError: odd"),
        # Of versions that did not record the end.
        ("policies", "SIGTERM", "stopped", "SIGTERM"),
        ("policies", "interval", "stopped", None),
        # Killed, the last one after it had been resumed.
        (None, "interval", "stopped", KILLED),
        (None, "SIGTERM", "stopped", KILLED),
    ],
)
def test_a_run_says_how_it_ended(tmp_path, ended, saved_by, state, reason):
    run = make_run(tmp_path / "run", saved_by=saved_by)
    if ended == "policies":
        write_policies(run)
    elif ended is not None:
        end(run, *ended)
    found = describe(run)
    assert (found.state, found.reason, found.problem) == (state, reason, None)
    assert (found.env, found.kind, found.num_parts) == ("tic_tac_toe", "run", 1)
    assert (found.env_steps, found.planned_env_steps) == (3 * STEPS, 10 * STEPS)
    with locked(run):
        assert describe(run).state == "running"
    assert describe(run).state == state


def test_a_run_has_finished_if_its_checkpoint_is_of_its_end(tmp_path):
    run = make_run(tmp_path / "run", (10,), saved_by="end")
    assert (describe(run).state, describe(run).reason) == ("finished", None)
    longer = make_run(tmp_path / "longer", (10,), saved_by="end")
    write_json(longer / "config.json", record_of(total_env_steps=11 * STEPS))
    assert (describe(longer).state, describe(longer).reason) == ("stopped", KILLED)


def test_a_run_without_a_checkpoint_has_failed(tmp_path):
    run = make_run(tmp_path / "run", iterations=())
    log(run, STEPS, 2 * STEPS)
    found = describe(run)
    assert (found.state, found.reason) == ("failed", "before its first checkpoint")
    assert found.env_steps == 2 * STEPS
    with locked(run):
        assert describe(run).state == "running"
    (tmp_path / "lock").mkdir()
    (tmp_path / "lock" / ".lock").touch()
    assert describe(tmp_path / "lock").state == "failed"


def test_the_newest_numbers_are_those_of_the_log_and_the_last_evaluation(tmp_path):
    run = make_run(tmp_path / "run", iterations=(1,))
    log(run, STEPS, 2 * STEPS)
    log(run, STEPS, name="evaluations.jsonl", exploitability={"greedy": 0.5})
    found = describe(run)
    assert found.entry["env_steps"] == found.env_steps == 2 * STEPS
    assert found.evaluation["exploitability"] == {"greedy": 0.5}


def test_a_run_takes_what_its_files_take(tmp_path):
    run = make_run(tmp_path / "run", iterations=())
    before = describe(run).num_bytes
    (run / "large").write_bytes(b"x" * 100_000)
    (tmp_path / "outside").write_bytes(b"x" * 900_000)
    (run / "link").symlink_to(tmp_path / "outside")
    assert 100_000 <= describe(run).num_bytes - before < 200_000


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "cannot be read"),
        ("[]", "is not a JSON object"),
        ('{"model": "another program\'s"}', "lacks format, env, config"),
        ('{"format": 99, "env": {}, "config": {}}', "has format 99"),
        ('{"format": 2, "env": {"name": 3}, "config": {}}', "env lacks make, params, agents"),
        (None, "config.json"),
    ],
)
def test_a_damaged_record_is_told(tmp_path, content, problem):
    run = make_run(tmp_path / "run", iterations=(1,))
    (run / "config.json").unlink()
    if content is None:
        (run / "config.json").mkdir()
    else:
        (run / "config.json").write_text(content)
    assert find_runs(tmp_path) == [run]
    found = describe(run)
    assert found.state == "damaged"
    assert problem in found.problem


@pytest.mark.parametrize(
    "config",
    [
        3,
        [],
        {},
        {"objective": 3},
        {"checkpoints": [], "num_envs": -1},
        {"total_env_steps": 10**400, "num_envs": 1, "num_steps": 1},
    ],
)
def test_an_odd_configuration_is_listed_all_the_same(tmp_path, config):
    run = make_run(tmp_path / "run", iterations=(1,), record=record_of() | {"config": config})
    found = describe(run)
    assert (found.state, found.env_steps, found.planned_env_steps) == ("stopped", STEPS, None)
    (run / "checkpoints" / "000000001").rename(tmp_path / "away")
    assert describe(run).state == "failed"


def test_what_is_damaged_beside_the_record_is_told_or_passed_over(tmp_path):
    run = make_run(tmp_path / "run", saved_by="SIGTERM")
    write_policies(run)
    log(run, STEPS)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": "many"}\n')
    (run / "end.json").write_text("{")
    (run / "checkpoints" / "000000003" / "manifest.json").write_text("{}")
    found = describe(run)
    assert (found.state, found.reason, found.env_steps) == ("stopped", "SIGTERM", 2 * STEPS)
    assert "is no manifest of a checkpoint" in found.problem
    assert not found.entry


def test_a_run_of_the_first_format_is_listed(tmp_path):
    record = record_of() | {"format": 1}
    del record["id"]
    config = record["config"]
    for now, was in {"mapping": "policies", "policies": "specs", "default_ppo": "ppo"}.items():
        config[was] = config.pop(now)
    found = describe(make_run(tmp_path / "run", record=record, saved_by="SIGTERM"))
    assert (found.state, found.env, found.problem) == ("stopped", "tic_tac_toe", None)
    assert (found.env_steps, found.planned_env_steps) == (3 * STEPS, 10 * STEPS)


def test_a_group_and_a_population_are_one_with_their_parts(tmp_path):
    group = make_group(tmp_path / "group")
    found = describe(group)
    assert (found.kind, found.num_parts, found.problem) == ("group", 2, None)
    (group / "lineage.jsonl").touch()
    assert describe(group).kind == "population"


def test_a_search_is_one_with_its_trials(tmp_path):
    search = make_run(tmp_path / "search", iterations=(), record=record_of(None))
    write_json(search / "search.json", {"search": {"num_trials": 6, "sampler": "random"}})
    study = open_study(search)
    with study.driving():
        for _ in range(2):
            trial = study.ask()
            study.complete(trial, 1.0 + trial.number)
        study.fail(study.ask(), "odd")
        study.ask()
        found = describe(search)
        assert (found.kind, found.state) == ("search", "running")
        assert (found.num_parts, found.planned_parts) == (3, 6)
        assert found.best == 2.0
    assert describe(search).state == "stopped"
    (search / "study.db").write_bytes(b"SQLite format 3\x00" + b"odd" * 1000)
    found = describe(search)
    assert (found.state, found.best, found.num_parts) == ("unknown", None, 0)


def test_the_objective_of_a_search_decides_which_trial_is_best(tmp_path):
    record = record_of(None)
    record["config"]["objective"] |= {"measure": "all/return_mean", "goal": "minimise"}
    search = make_run(tmp_path / "search", iterations=(), record=record)
    (search / "search.json").write_text(json.dumps({"search": {"num_trials": 2}}))
    study = open_study(search)
    with study.driving():
        for _ in range(2):
            trial = study.ask()
            study.complete(trial, 1.0 + trial.number)
    found = describe(search)
    assert (found.state, found.measure, found.best) == ("finished", "all/return_mean", 1.0)
