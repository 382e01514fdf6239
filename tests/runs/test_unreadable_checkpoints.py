"""What cannot be read for the moment, is of a newer version or of another run, is left alone."""

import errno
import io
import json
import shutil
import threading
from pathlib import Path

import pytest
from checkpoint_data import snapshot

from jaxmarl_ppo.runs.checkpoints import (
    archived_files,
    best_checkpoint,
    checkpoints_of,
    choose_checkpoint,
    newest_sound,
    prune,
    set_damaged_aside,
    write_checkpoint,
)
from jaxmarl_ppo.runs.files import POLICIES_FILE
from jaxmarl_ppo.runs.manifest import DamagedCheckpoint
from jaxmarl_ppo.runs.run_folder import load_newest, read_record


def write(run_dir, *iterations, run_id="mine", **changes):
    run_dir.mkdir(exist_ok=True)
    for iteration in iterations:
        write_checkpoint(run_dir, snapshot(iteration, run_id, **changes))
    record = {"format": 2, "id": run_id, "env": {}, "config": {}}
    (run_dir / "config.json").write_text(json.dumps(record))
    return checkpoints_of(run_dir)


@pytest.fixture
def run_dir(tmp_path):
    write(tmp_path / "run", 1, 2)
    return tmp_path / "run"


def names(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def break_newer(run_dir, monkeypatch):
    path = checkpoints_of(run_dir)[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    # Of which this version can neither know the fields nor the checksum.
    path.write_text(json.dumps({"format": 4, "versions": manifest["versions"]}))


def refuse_to_open(run_dir, monkeypatch, name, number):
    """Have the system refuse a file of the newest checkpoint, also to the superuser."""
    refused = checkpoints_of(run_dir)[0] / name
    real = io.open

    def refuse(file, *args, **kwargs):
        if not isinstance(file, int) and Path(file) == refused:
            raise OSError(number, "refused", str(file))
        return real(file, *args, **kwargs)

    monkeypatch.setattr(io, "open", refuse)


def deny_manifest(run_dir, monkeypatch):
    refuse_to_open(run_dir, monkeypatch, "manifest.json", errno.EACCES)


def fail_to_read(run_dir, monkeypatch):
    refuse_to_open(run_dir, monkeypatch, "state-0.msgpack", errno.EIO)


def copy_in(run_dir, monkeypatch):
    other = write(run_dir.with_name("other"), 9, run_id="theirs")[0]
    shutil.copytree(other, run_dir / "checkpoints" / other.name)


CASES = {
    "newer": (break_newer, "has format 4, written by jaxmarl-ppo of an unknown version; this"),
    "permission": (deny_manifest, "cannot be read now: refused .*nothing was changed"),
    "disk": (fail_to_read, "cannot be read now: refused .*state-0.msgpack.*nothing was changed"),
    "foreign": (copy_in, "belongs to another run: its id is 'theirs', that of .* is 'mine'"),
}


@pytest.mark.parametrize("case", CASES)
def test_who_trains_on_is_told_and_nothing_is_touched(run_dir, monkeypatch, case):
    cause, message = CASES[case]
    cause(run_dir, monkeypatch)
    before = names(run_dir)
    with pytest.raises(ValueError, match=message) as caught:
        newest_sound(run_dir, strict=True)
    assert not isinstance(caught.value, DamagedCheckpoint)
    with pytest.raises(ValueError, match=message):
        best_checkpoint(run_dir, "maximise")
    with pytest.raises(ValueError, match=message):
        set_damaged_aside(run_dir, checkpoints_of(run_dir)[-1])
    with pytest.raises(ValueError, match=message):
        choose_checkpoint(run_dir, str(int(checkpoints_of(run_dir)[0].name)), "maximise")
    assert names(run_dir) == before


@pytest.mark.parametrize("case", CASES)
def test_who_only_reads_takes_the_one_before_with_a_warning(run_dir, monkeypatch, case):
    cause, message = CASES[case]
    cause(run_dir, monkeypatch)
    before = names(run_dir)
    with pytest.warns(RuntimeWarning, match=f"{message}.*going back to"):
        found, _ = newest_sound(run_dir)
    assert found != checkpoints_of(run_dir)[0]
    assert names(run_dir) == before


def test_a_version_that_is_newer_is_named(run_dir):
    path = checkpoints_of(run_dir)[0] / "manifest.json"
    path.write_text(json.dumps({"format": 7, "versions": {"jaxmarl-ppo": "9.1"}}))
    with pytest.raises(ValueError, match=r"format 7, written by jaxmarl-ppo .?9\.1.*install that"):
        newest_sound(run_dir, strict=True)


@pytest.mark.parametrize("case", ["newer", "permission", "foreign"])
def test_only_the_run_s_own_checkpoints_are_counted_and_removed(run_dir, monkeypatch, case):
    CASES[case][0](run_dir, monkeypatch)
    strange = checkpoints_of(run_dir)[0]
    write(run_dir, 4, 5)
    prune(run_dir, 1, None, "mine")
    assert names(run_dir) == sorted([strange.name, "000000005"])


def test_runs_without_an_id_are_read_as_before(tmp_path):
    (*_, first) = write(tmp_path / "run", 1, 2, run_id=None)
    assert newest_sound(tmp_path / "run", strict=True)[1].iteration == 2
    prune(tmp_path / "run", 1, None)
    assert not first.exists()


@pytest.mark.parametrize("content", [None, b"{", b"{}", b"[]"])
def test_a_record_that_is_lost_does_not_make_checkpoints_foreign(run_dir, content):
    path = run_dir / "config.json"
    path.unlink() if content is None else path.write_bytes(content)
    assert newest_sound(run_dir, strict=True)[1].iteration == 2


def test_snapshots_are_kept_while_nobody_knows_who_needs_them(run_dir):
    newest = checkpoints_of(run_dir)[0]
    (newest / "snapshots.json").write_bytes(b"{")
    with pytest.raises(ValueError, match="Expecting"):
        archived_files(run_dir)


def test_links_are_no_checkpoints(run_dir, tmp_path):
    (tmp_path / "theirs").mkdir()
    (run_dir / "checkpoints" / "000000007").symlink_to(tmp_path / "theirs")
    assert newest_sound(run_dir, strict=True)[1].iteration == 2
    prune(run_dir, 0, None, "mine")
    assert names(run_dir) == ["000000007"]


def test_readers_find_a_checkpoint_whatever_is_removed_meanwhile(tmp_path):
    """One is written after the other, and only the newest stays, while somebody reads."""
    run_dir = tmp_path / "run"
    write(run_dir, 1)
    ended = threading.Event()

    def train():
        try:
            for iteration in range(2, 60):
                write_checkpoint(run_dir, snapshot(iteration, "mine"))
                prune(run_dir, 1, None, "mine")
        finally:
            ended.set()

    writer = threading.Thread(target=train)
    writer.start()
    read = []
    while not ended.is_set():
        read.append(newest_sound(run_dir)[1].iteration)
    writer.join()
    read.append(newest_sound(run_dir)[1].iteration)
    assert read == sorted(read)
    assert read[-1] == 59


def load(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} does not exist") from error


def test_policies_that_are_removed_before_they_are_read_are_looked_for_again(run_dir):
    """Those of a checkpoint, and those of the end of a run that goes on."""
    end = run_dir / POLICIES_FILE
    end.parent.mkdir()
    end.write_bytes(b"end")
    tried = []

    def load_late(path):
        tried.append(path)
        if len(tried) == 1:  # the run goes on
            shutil.rmtree(end.parent)
        if len(tried) == 2:  # and saves, and removes what was the newest
            write(run_dir, 3)
            prune(run_dir, 1, None, "mine")
        return load(path)

    newest = run_dir / "checkpoints" / "000000003" / POLICIES_FILE
    assert load_newest(run_dir, load_late)
    assert [path.relative_to(run_dir).parts[:2] for path in tried] == [
        ("params", "policies.msgpack"),
        ("checkpoints", "000000002"),
        ("checkpoints", "000000003"),
    ]
    assert tried[-1] == newest


def test_policies_that_are_damaged_or_missing_for_good_are_told(run_dir):
    def refuse(path):
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        load_newest(run_dir, refuse)
    with pytest.raises(ValueError, match="does not exist"):
        load_newest(run_dir.with_name("none"), load)


def test_a_checkpoint_that_was_chosen_and_is_removed_is_told(run_dir):
    chosen = run_dir / "checkpoints" / "000000002"
    assert load_newest(chosen, load)

    def remove_first(path):
        shutil.rmtree(chosen)
        return load(path)

    for read in (lambda: load_newest(chosen, remove_first), lambda: read_record(chosen)):
        with pytest.raises(ValueError, match=r"000000002' is not there, .* Without --checkpoint"):
            read()
