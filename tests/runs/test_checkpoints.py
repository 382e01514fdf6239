"""Checkpoints are whole or absent, and what is damaged is found."""

import ast
import json
import pickle
import resource
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoint_data import TREE, position, snapshot

import jaxmarl_ppo
from jaxmarl_ppo.runs.checkpoint_arrays import from_arrays
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import (
    best_checkpoint,
    checkpoints_of,
    newest_sound,
    prune,
    remove_unfinished,
    set_damaged_aside,
    write_checkpoint,
)
from jaxmarl_ppo.runs.files import MANIFEST_FILE
from jaxmarl_ppo.runs.manifest import DamagedCheckpoint, read_position


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("run")
    for iteration in (1, 2, 3):
        write_checkpoint(run_dir, snapshot(iteration))
    return run_dir


@pytest.fixture
def run_dir(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")


def test_every_kind_of_array_comes_back_to_the_bit(run_dir):
    (folder, *_) = checkpoints_of(run_dir)
    restored = from_arrays(read_arrays(folder), TREE, folder)
    assert jax.tree.structure(restored) == jax.tree.structure(TREE)
    for found, expected in zip(jax.tree.leaves(restored), jax.tree.leaves(TREE), strict=True):
        assert found.dtype == expected.dtype
        if jnp.issubdtype(expected.dtype, jax.dtypes.prng_key):
            found, expected = jax.random.key_data(found), jax.random.key_data(expected)
        np.testing.assert_array_equal(found, expected)
    assert read_position(folder) == position(3)


def test_what_does_not_fit_is_named(run_dir):
    (folder, *_) = checkpoints_of(run_dir)
    arrays = read_arrays(folder)
    with pytest.raises(ValueError, match=r"count is int32\[\], but should be float32\[2\]"):
        from_arrays(arrays, {**TREE, "count": jnp.zeros(2)}, folder)
    with pytest.raises(ValueError, match=r"new is absent, but should be float32\[\]"):
        from_arrays(arrays, {**TREE, "new": jnp.float32(0)}, folder)
    with pytest.raises(ValueError, match=r"half is bfloat16\[2\], but should be absent"):
        from_arrays(arrays, {k: v for k, v in TREE.items() if k != "half"}, folder)


def test_remembered_actions_of_older_checkpoints_are_read_into_fewer_bytes(tmp_path):
    name = "state/per_env/rollout/env_state/games/past"
    tree = {"state": {"per_env": {"rollout": {"env_state": {"games": {"past": jnp.uint8([0])}}}}}}
    (found,) = jax.tree.leaves(from_arrays({name: np.array([255], np.int32)}, tree, tmp_path))
    assert found.dtype == np.uint8
    assert found.tolist() == [255]
    for other in (np.array([256], np.int32), np.array([1.0], np.float32)):
        with pytest.raises(ValueError, match=r"past is .*, but should be uint8"):
            from_arrays({name: other}, tree, tmp_path)


def test_a_flipped_bit_anywhere_is_found(run_dir):
    """Of every file of the newest checkpoint one bit, and of every file the last byte is lost."""
    newest, before = checkpoints_of(run_dir)[:2]
    files = sorted(path for path in newest.rglob("*") if path.is_file() and path.stat().st_size)
    assert len(files) == 4  # record, manifest, policies, arrays
    for path in files:
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 4
        for damaged in (bytes(flipped), content[:-2], b""):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"differs from its checksum|cannot be read"):
                read_position(newest)
            with pytest.warns(RuntimeWarning, match=f"going back to {before}, of 20 environment"):
                assert newest_sound(run_dir)[0] == before
        path.write_bytes(content)
    files[0].unlink()
    with pytest.raises(ValueError, match="is missing"):
        read_position(newest)


def test_damage_is_set_aside_and_its_place_taken_again(run_dir):
    newest, before = checkpoints_of(run_dir)[:2]
    (newest / "manifest.json").write_bytes(b"\xff\x00")
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert newest_sound(run_dir)[0] == before
    assert newest.is_dir()  # whoever only reads renames nothing
    set_damaged_aside(run_dir, before)
    assert newest.with_name(f"{newest.name}.damaged").is_dir()
    assert newest_sound(run_dir)[0] == before
    assert write_checkpoint(run_dir, snapshot(3)) == newest
    assert newest_sound(run_dir)[0] == newest


def test_without_a_sound_one_all_damages_are_told(run_dir):
    for folder in checkpoints_of(run_dir):
        (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no checkpoint of .* is sound: .*3/.*2/.*1/config.json"):
        newest_sound(run_dir)


def test_a_manifest_without_what_it_must_have_is_damaged(run_dir):
    (newest, *_) = checkpoints_of(run_dir)
    for content in ("[]", "{}", '{"format": 0}', '{"format": "2"}', "null"):
        (newest / "manifest.json").write_text(content)
        with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint"):
            read_position(newest)


def test_a_write_that_fails_leaves_nothing(run_dir):
    before = [path.name for path in checkpoints_of(run_dir)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))  # no file may be longer
    try:
        with pytest.raises(OSError, match="File too large"):
            write_checkpoint(run_dir, snapshot(4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == sorted(before)


def test_what_a_dead_process_left_is_removed(run_dir):
    unfinished = run_dir / "checkpoints" / ".000000009.tmp"
    (unfinished / "state").mkdir(parents=True)
    assert unfinished not in checkpoints_of(run_dir)
    remove_unfinished(run_dir)
    assert not unfinished.exists()
    assert len(checkpoints_of(run_dir)) == 3


@pytest.mark.parametrize(("goal", "best"), [("maximise", 2), ("minimise", 3)])
def test_the_newest_and_the_best_stay(tmp_path, goal, best):
    for iteration, value in [(1, None), (2, 5.0), (3, -1.0), (4, 2.0), (5, None)]:
        write_checkpoint(tmp_path, snapshot(iteration, objective=value))
    found = best_checkpoint(tmp_path, goal)
    assert int(found.name) == best
    prune(tmp_path, 2, found)
    assert [int(path.name) for path in checkpoints_of(tmp_path)] == [5, 4, best]


def test_nothing_that_is_loaded_executes(run_dir, monkeypatch):
    """Neither we nor what we call for it unpickle or evaluate."""

    def refuse(*args, **kwargs):
        raise AssertionError("executed what was in a file")

    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    monkeypatch.setattr("builtins.eval", refuse)
    (folder, *_) = checkpoints_of(run_dir)
    read_position(folder)
    assert read_arrays(folder)


def test_nothing_of_ours_knows_how_to_execute_a_file():
    forbidden = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for path in Path(jaxmarl_ppo.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            names.append(getattr(node, "module", None) or "")
            assert not {name.partition(".")[0] for name in names} & forbidden, path
            called = getattr(getattr(node, "func", None), "id", None)
            assert called not in ("eval", "exec"), path
            pickles = [k for k in getattr(node, "keywords", []) if k.arg == "allow_pickle"]
            assert all(getattr(k.value, "value", True) is False for k in pickles), path


def test_a_record_of_the_manifest_is_plain(run_dir):
    (newest, *_) = checkpoints_of(run_dir)
    manifest = json.loads((newest / MANIFEST_FILE).read_text())
    assert manifest["versions"] == {"jax": "0"}
    assert set(manifest["sha256"]) >= {"config.json", "params/policies.msgpack"}
