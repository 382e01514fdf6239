"""How a run stands, by what lies in its folder."""

import json

import pytest

from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.lock import is_locked, locked
from jaxmarl_ppo.runs.status import Status, planned_env_steps, read_end, read_status, record_end

RECORD = {"config": {"total_env_steps": 100, "num_envs": 4, "num_steps": 8}}


def result(run_dir, env_steps, stopped_by=None, failed=False):
    interrupted = stopped_by is not None
    return TrainResult(
        None,
        None,
        [],
        [],
        run_dir,
        env_steps,
        interrupted,
        stopped_by,
        failed=failed,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("env_steps", "stopped_by", "failed", "state"),
    [
        (128, None, False, "finished"),
        (64, "SIGINT", False, "stopped"),
        (64, "EnvironmentFault: a reward is NaN", True, "failed"),
    ],
)
def test_a_run_records_how_it_has_ended(tmp_path, env_steps, stopped_by, failed, state):
    recorded = record_end(result(tmp_path, env_steps, stopped_by, failed))
    assert (recorded.state, recorded.reason, recorded.env_steps) == (state, stopped_by, env_steps)
    assert read_status(tmp_path, RECORD, [{"env_steps": 32}]) == read_end(tmp_path) == recorded


def test_without_a_recorded_end_the_log_says_how_far_a_run_is(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    for entries, state, done in (
        ([], "stopped", 0),
        ([96], "stopped", 96),
        ([128], "finished", 128),
    ):
        status = read_status(tmp_path, RECORD, [{"env_steps": n} for n in entries])
        assert (status.state, status.env_steps) == (state, done)
        assert (status.reason is None) == (state == "finished")
        assert status.time is not None


def test_a_run_whose_lock_is_held_is_running(tmp_path):
    record_end(result(tmp_path, 64, "SIGINT"))  # before it was resumed
    with locked(tmp_path):
        before = (tmp_path / ".lock").read_bytes()
        assert read_status(tmp_path, RECORD, [{"env_steps": 96}]).state == "running"
        assert (tmp_path / ".lock").read_bytes() == before
    assert read_status(tmp_path, RECORD, []).state == "stopped"
    assert not is_locked(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"state": "x"}',
        json.dumps({"state": [], "reason": 1, "env_steps": "1", "time": 2}),
    ],
)
def test_a_damaged_end_is_none(tmp_path, content):
    (tmp_path / "end.json").write_text(content)
    assert read_end(tmp_path) is None
    assert read_status(tmp_path, RECORD, []) == Status(
        "stopped", "no end was recorded, as after kill -9", 0, None
    )


def test_planned_steps_are_those_of_complete_iterations():
    assert planned_env_steps(RECORD) == 128
    for config in ({}, None, {"total_env_steps": "1", "num_envs": 1, "num_steps": 1}):
        assert planned_env_steps({"config": config}) is None
    assert planned_env_steps({"config": {**RECORD["config"], "num_envs": 0}}) is None
