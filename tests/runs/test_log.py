"""Files of JSON lines and TensorBoard's events, whole whatever happens to the disk or the run."""

import contextlib
import json
import resource
import warnings
from pathlib import Path

import pytest

from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.runs.callbacks import RunInfo
from jaxmarl_ppo.runs.log import (
    JsonLines,
    JsonLinesLogger,
    TensorBoardLogger,
    read_entries,
    read_lines,
    read_newest,
)

ENTRY = {"env_steps": 10, "policies": {"p": {"entropy": 0.5}}, "note": "x" * 200}


@contextlib.contextmanager
def little_room(size):
    """Let no file grow beyond `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def run_info(run_dir: Path, history=(), evaluations=(), resumed_at=0):
    return RunInfo(run_dir, TrainConfig(), {}, "env", resumed_at, history, evaluations)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_full_disk_keeps_lines_back_until_there_is_room(tmp_path):
    path = tmp_path / "log.jsonl"
    log = JsonLines(path)
    log.append({"n": 0})
    with little_room(100):
        for n in (1, 2):
            with pytest.warns(RuntimeWarning, match=rf"log.jsonl cannot be .*, and {n} lines wait"):
                log.append({"n": n, **ENTRY})
        assert lines(path) == [{"n": 0}]  # not half a line
    log.append({"n": 3})
    assert [line["n"] for line in lines(path)] == [0, 1, 2, 3]
    log.close()


def test_closing_tries_again_and_says_what_is_lost(tmp_path):
    log = JsonLines(tmp_path / "log.jsonl")
    with little_room(10):
        with pytest.warns(RuntimeWarning, match="1 lines wait"):
            log.append(ENTRY)
        with pytest.warns(RuntimeWarning, match="1 lines are lost"):
            log.close()


def test_a_log_goes_on_where_it_was_kept(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"n": 0}\n{"n": 1}\n{"n": 2}\n{"n":')
    assert read_lines(path, 2) == [{"n": 0}, {"n": 1}]
    log = JsonLines(path, num_kept=2)
    log.append({"n": 9})
    log.close()
    assert [line["n"] for line in lines(path)] == [0, 1, 9]


@pytest.mark.parametrize("content", [b'{"n": 0}\n{"n"', b'{"n": 0}\n[]\n', b'{"n": 0}\n\xff\n'])
def test_a_damaged_log_is_read_as_far_as_it_is_sound(tmp_path, content):
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="holds 1 sound entries of 3; the rest are lost"):
        assert read_lines(path, 3) == [{"n": 0}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_lines(tmp_path / "no_such", 0) == []


def test_evaluations_have_a_file_of_their_own(tmp_path):
    logger = JsonLinesLogger()
    logger.on_start(run_info(tmp_path))
    logger.on_log(ENTRY)
    assert not (tmp_path / "evaluations.jsonl").exists()
    logger.on_evaluation({"env_steps": 10})
    logger.close()
    assert lines(tmp_path / "metrics.jsonl") == [ENTRY]
    assert lines(tmp_path / "evaluations.jsonl") == [{"env_steps": 10}]
    again = JsonLinesLogger()
    again.on_start(run_info(tmp_path, [ENTRY], [], 10))
    again.close()
    assert lines(tmp_path / "evaluations.jsonl") == []


def curve(run_dir, tag):
    """Points of a curve as TensorBoard shows them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(run_dir))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_shows_no_gap_and_nothing_twice(tmp_path):
    """The first process died after step 40; what was kept of it ends at an entry of step 20."""
    first = TensorBoardLogger()
    first.on_start(run_info(tmp_path))
    for step in (10, 20, 30, 40):
        first.on_log({"env_steps": step, "kl": step / 8})
    first.on_evaluation({"env_steps": 25, "score": 1.0})
    first.close()
    history = [{"env_steps": step, "kl": step / 8} for step in (10, 20)]
    second = TensorBoardLogger()
    second.on_start(run_info(tmp_path, history, [{"env_steps": 25, "score": 1.0}], 26))
    for step in (30, 40, 50):
        second.on_log({"env_steps": step, "kl": step / 4})
    second.close()
    assert curve(tmp_path, "kl") == [(10, 1.25), (20, 2.5), (30, 7.5), (40, 10.0), (50, 12.5)]
    assert curve(tmp_path, "evaluation/score") == [(25, 1.0)]


def test_tensorboard_leaves_out_what_is_not_finite_and_says_so_once(tmp_path):
    logger = TensorBoardLogger()
    logger.on_start(run_info(tmp_path))
    with pytest.warns(RuntimeWarning, match="kl is inf after 10 environment steps"):
        logger.on_log({"env_steps": 10, "kl": float("inf"), "loss": 1.0})
    logger.on_log({"env_steps": 20, "kl": float("nan"), "loss": 2.0})  # another one would be raised
    logger.close()
    assert curve(tmp_path, "loss") == [(10, 1.0), (20, 2.0)]


def test_who_beats_whom_is_a_table_of_tensorboard(tmp_path):
    logger = TensorBoardLogger()
    logger.on_start(run_info(tmp_path))
    league = {"players": ["p1", "p2@3"], "win_rate": [[None, 0.75], [0.25, None]], "elo": {}}
    logger.on_log({"env_steps": 10, "league": league})
    logger.close()
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    (table,) = events.Tensors("league/win_rate/text_summary")
    assert table.step == 10
    assert table.tensor_proto.string_val[0].decode().splitlines() == [
        "|  | p1 | p2@3 |",
        "| --- | --- | --- |",
        "| **p1** |  | 75% |",
        "| **p2@3** | 25% |  |",
    ]


def test_a_full_disk_does_not_end_tensorboard(tmp_path):
    logger = TensorBoardLogger()
    logger.on_start(run_info(tmp_path))
    logger.on_log({"env_steps": 10, "loss": 1.0})
    with (
        little_room(150),
        pytest.warns(RuntimeWarning, match="events cannot be written .*; training continues"),
    ):
        logger.on_log({"env_steps": 20, **{f"loss{n}": 2.0 for n in range(9)}})
    logger.on_log({"env_steps": 30, "loss": 3.0})
    logger.close()
    assert curve(tmp_path, "loss") == [(10, 1.0), (30, 3.0)]


SOUND = {
    "env_steps": 5,
    "wall_s": 1.5,
    "agents": {"a": {"return_mean": 1.0}},
    "league": {"players": ["p"], "win_rate": [[None]], "elo": {"p": 1000.0}, "pools": {}},
}


@pytest.mark.parametrize(
    "change",
    [
        {"env_steps": None}, {"env_steps": -1}, {"env_steps": "5"}, {"wall_s": []},
        {"agents": []}, {"agents": {"a": 1}}, {"agents": {"a": {"return_mean": "x"}}},
        {"policies": 3}, {"seconds": {"training": "long"}}, {"iqm": {"agents": 1}},
        {"league": 1}, {"league": {"players": "ab"}}, {"league": {"players": ["p"]}},
        {"league": {"players": ["p"], "win_rate": [[1, 2]]}}, {"league": {"elo": {"p": "x"}}},
        {"league": {"pools": {"p": {"added_at": 3}}}},
    ],
)  # fmt: skip
def test_an_odd_entry_is_not_read(tmp_path, change):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(SOUND) + "\n" + json.dumps(SOUND | change) + "\n")
    with pytest.warns(RuntimeWarning, match="holds 1 sound entries of 2"):
        assert read_entries(path) == [SOUND]


def test_an_older_log_is_read_under_the_present_names(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        json.dumps(SOUND | {"decisions_per_tick": 2.5})
        + "\n"
        + json.dumps(SOUND | {"decisions_per_step": 3.5})
        + "\n"
    )
    assert [entry["decisions_per_step"] for entry in read_entries(path)] == [2.5, 3.5]
    assert not any("decisions_per_tick" in entry for entry in read_entries(path))


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 200 + "1" + "}" * 200, '{"a": 1e999}',
                                  '{"a": NaN}', '{"a": 1%s}' % ("0" * 400)])  # fmt: skip
def test_an_odd_line_is_not_read(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_text('{"n": 0}\n' + line + "\n")
    with pytest.warns(RuntimeWarning, match="holds 1 sound entries of 2"):
        assert read_lines(path, 2) == [{"n": 0}]


def test_the_newest_entry_is_read_from_the_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_newest(path) is None
    path.touch()
    assert read_newest(path) is None
    path.write_text('{"env_steps": 1')  # half a line
    assert read_newest(path) is None
    long = json.dumps({"env_steps": 2, "names": "x" * 200_000})
    for before in ("", '{"env_steps": 1}\n', "odd\n" * 50_000):
        for after in ("", '{"env_st'):
            path.write_text(f"{before}{long}\n{after}")
            found = read_newest(path)
            assert found is not None
            assert found["env_steps"] == 2
    path.write_text(f"{long}\n" + '{"env_steps": "odd"}\n')
    assert read_newest(path) is None
