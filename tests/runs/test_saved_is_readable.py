"""A checkpoint has its name only once it can be read, and once all of it is on the disk."""

import json
import os
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from checkpoint_data import TREE, position, snapshot

from jaxmarl_ppo.devices.processes import Processes
from jaxmarl_ppo.policies.snapshot_files import snapshot_path, write_snapshot
from jaxmarl_ppo.runs import checkpoint_parts, checkpoints, manifest
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays, to_arrays
from jaxmarl_ppo.runs.checkpoint_parts import check_arrays, read_arrays, write_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of, newest_sound, write_checkpoint
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, LINEAGE_FILE, METRICS_FILE
from jaxmarl_ppo.types import PolicyStack

# What shells, patterns, web addresses and encodings take for something else.
NAMES = [
    "exp[1]",
    "[]",
    "a]b[c",
    "star*",
    "what?",
    "{a,b}",
    "back\\slash",
    "new\nline",
    "tab\t",
    " spaces ",
    "'single'\"double\"",
    "dots...",
    "-dash",
    "100%",
    "%s%2e",
    "~",
    "$HOME",
    "#:;&|<>",
    "\u00e9t\u00e9",
    "e\u0301te\u0301",
    "\u2603\U0001f600",
    "x" * 200,
]


def assert_restored(folder):
    restored = to_arrays(from_arrays(read_arrays(folder), TREE, folder))
    for name, expected in to_arrays(TREE).items():
        np.testing.assert_array_equal(restored[name], expected, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name_is_read_back(tmp_path, name):
    run_dir = tmp_path / name / "run"
    run_dir.mkdir(parents=True)
    written = write_checkpoint(run_dir, snapshot(3))
    assert newest_sound(run_dir) == (written, position(3))
    assert_restored(written)


@pytest.mark.parametrize("name", ["plain", "exp[1]", "back\\slash"])
def test_what_orbax_has_written_is_still_read(tmp_path, name):
    """As versions before wrote it, which left out arrays without elements; also where orbax itself
    cannot read it.
    """
    arrays = {k: x for k, x in to_arrays(TREE).items() if x.size}
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "state", arrays)
    checkpointer.close()
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "state").rename(folder / "state")
    assert_restored(folder)


def test_a_manifest_of_format_1_is_still_read(tmp_path):
    written = write_checkpoint(tmp_path, snapshot(3))
    content = json.loads((written / "manifest.json").read_text())
    del content["run"], content["sha256_of_manifest"]
    content["format"] = 1
    content["sha256_of_manifest"] = manifest._digest_of_manifest(content)
    (written / "manifest.json").write_text(json.dumps(content))
    assert newest_sound(tmp_path) == (written, position(3))


def assert_refused(run_dir, message):
    before = sorted((run_dir / "checkpoints").iterdir())
    with pytest.raises(OSError, match=message):
        write_checkpoint(run_dir, snapshot(4))
    assert sorted((run_dir / "checkpoints").iterdir()) == before
    assert newest_sound(run_dir)[1] == position(3)


def test_arrays_that_read_otherwise_get_no_name(tmp_path, monkeypatch):
    """As where the disk, or whoever writes, changes one bit of one number."""
    write_checkpoint(tmp_path, snapshot(3))

    def pack(arrays):
        changed = {**arrays, "floats": arrays["floats"].copy()}
        changed["floats"].view(np.uint32)[1, 1] ^= 1
        return pack_soundly(changed)

    pack_soundly = checkpoint_parts._pack
    monkeypatch.setattr(checkpoint_parts, "_pack", pack)
    assert_refused(tmp_path, "state-0.msgpack reads otherwise than it was written: floats")


def test_files_that_change_after_their_checksum_get_no_name(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, snapshot(3))

    def write_and_damage(folder, *args):
        write_manifest(folder, *args)
        (folder / "params" / "policies.msgpack").write_bytes(b"")

    write_manifest = checkpoints.write_manifest
    monkeypatch.setattr(checkpoints, "write_manifest", write_and_damage)
    assert_refused(tmp_path, r"cannot be read back: .*policies.msgpack differs from its checksum")


@pytest.mark.parametrize("change", ["name", "missing", "shape", "type", "value", "nan"])
def test_every_difference_of_arrays_is_noticed(tmp_path, change):
    arrays = {"a": np.arange(6, dtype=np.float32), "nan": np.full(2, np.nan, np.float32)}
    write_arrays(tmp_path, arrays)
    check_arrays(tmp_path, arrays)
    other = {
        "name": {"b": arrays["a"], "nan": arrays["nan"]},
        "missing": {"nan": arrays["nan"]},
        "shape": arrays | {"a": arrays["a"].reshape(2, 3)},
        "type": arrays | {"a": arrays["a"].view(np.int32)},
        "value": arrays | {"a": arrays["a"] + np.float32(1)},
        "nan": arrays | {"nan": -arrays["nan"]},
    }[change]
    with pytest.raises(OSError, match=r"reads otherwise than it was written: (a|nan)"):
        check_arrays(tmp_path, other)


def test_rows_of_other_processes_stand_behind_those_of_the_first(tmp_path):
    arrays = {"state/per_env/x": np.arange(4.0), "shared": np.ones(2)}
    write_arrays(tmp_path, arrays)
    others = {"state/per_env/x": np.arange(4.0, 8.0)}
    (tmp_path / "state-1.msgpack").write_bytes(checkpoint_parts._pack(others))
    check_arrays(tmp_path, arrays)
    np.testing.assert_array_equal(read_arrays(tmp_path)["state/per_env/x"], np.arange(8.0))
    with pytest.raises(OSError, match="reads otherwise"):
        check_arrays(tmp_path, arrays | {"state/per_env/x": np.arange(1.0, 5.0)})


def test_all_is_on_the_disk_before_the_name_is_there(tmp_path, monkeypatch):
    """Files and folders of the checkpoint, the logs that it counts entries of, and snapshots."""
    logs = [tmp_path / name for name in (METRICS_FILE, EVALUATIONS_FILE, LINEAGE_FILE)]
    for path in logs:
        path.write_text("{}\n")
    pool = snapshot_path(tmp_path, "past", 3).parent
    pool.mkdir(parents=True)
    done = []

    def fsync(descriptor):
        done.append(os.fstat(descriptor).st_ino)

    def replace(self, target):
        done.append(Path(target).name)
        return move(self, target)

    move = Path.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    written = write_checkpoint(tmp_path, snapshot(3))
    named_at = done.index(written.name)
    before, after = set(done[:named_at]), set(done[named_at:])
    needed = [written, *written.rglob("*"), *logs, pool, pool.parent]
    assert len(needed) == 11
    for path in needed:
        assert path.stat().st_ino in before, path
    for path in (written.parent, tmp_path):
        assert path.stat().st_ino in after, path


def test_a_log_that_cannot_be_flushed_lets_no_checkpoint_be_named(tmp_path):
    write_checkpoint(tmp_path, snapshot(3))
    (tmp_path / METRICS_FILE).mkdir()
    assert_refused(tmp_path, "Is a directory")


def test_a_part_is_not_written_where_the_folder_of_the_run_is_gone(tmp_path):
    class Second(Processes):
        def __init__(self):
            self.index, self.count, self.told = 1, 2, []

        def gather(self, label, value):
            self.told.append(value)
            return [value]

    second = Second()
    with pytest.raises(FileNotFoundError):
        write_checkpoint(tmp_path / "gone", snapshot(3), second)
    assert "error" in second.told[0]
    assert not (tmp_path / "gone").exists()


def test_a_checkpoint_takes_the_place_of_one_of_the_same_iteration(tmp_path):
    write_checkpoint(tmp_path, snapshot(3))
    written = write_checkpoint(tmp_path, snapshot(3, wall_s=9.0))
    assert [*checkpoints_of(tmp_path)] == [written]
    assert newest_sound(tmp_path)[1].wall_s == 9.0
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_nothing_is_written_where_the_folder_of_the_run_is_gone(tmp_path, monkeypatch):
    """Also where it goes while a checkpoint is in the writing, after whatever file."""
    move = Path.replace
    places = ["config.json", "policies.msgpack", "state-0.msgpack", "manifest.json"]
    with pytest.raises(FileNotFoundError):
        write_checkpoint(tmp_path / "gone", snapshot(3))
    for name in places:
        run_dir = tmp_path / name / "run"
        run_dir.mkdir(parents=True)

        def replace(self, target, run_dir=run_dir, name=name):
            if Path(target).name == name:
                run_dir.rename(run_dir.with_name("elsewhere"))
            return move(self, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", replace)
            with pytest.raises(FileNotFoundError):
                write_checkpoint(run_dir, snapshot(3))
        assert not run_dir.exists()
    with pytest.raises(FileNotFoundError):
        write_snapshot(tmp_path / "gone", "past", 3, PolicyStack({}, None, None))
    assert not (tmp_path / "gone").exists()
