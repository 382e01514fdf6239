"""Manifests whose checksums are right, as anybody can compute one, and whose content is not."""

import copy
import json
import os
import random

import pytest
from checkpoint_data import snapshot

from jaxmarl_ppo.runs.checkpoints import newest_sound, write_checkpoint
from jaxmarl_ppo.runs.files import MANIFEST_FILE, SNAPSHOTS_FILE
from jaxmarl_ppo.runs.group_checkpoints import read_pbt, read_stopped
from jaxmarl_ppo.runs.lineage import from_json
from jaxmarl_ppo.runs.manifest import (
    DamagedCheckpoint,
    _digest_of_manifest,
    read_archive,
    read_manifest,
    read_standing,
)

ODD = (None, True, -1, 1e300, 2**70, "", "..", "/dev/zero", [], [[]], {}, {"a": None}, "\x1b[2J")


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "run").mkdir()
    return write_checkpoint(tmp_path / "run", snapshot(3))


def forge(folder, change):
    """Change a manifest, and sign it again."""
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    del manifest["sha256_of_manifest"]
    change(manifest)
    manifest["sha256_of_manifest"] = _digest_of_manifest(manifest)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))


def test_any_value_in_any_place_is_read_or_refused(checkpoint):
    original = (checkpoint / MANIFEST_FILE).read_text()
    for key in json.loads(original):
        for value in ODD:
            (checkpoint / MANIFEST_FILE).write_text(original)
            if key == "sha256_of_manifest":
                continue
            forge(checkpoint, lambda m, key=key, value=value: m.update({key: value}))
            for read in (read_standing, read_stopped, read_pbt):
                try:
                    read(checkpoint)
                except ValueError as error:
                    assert MANIFEST_FILE in str(error) or checkpoint.name in str(error)  # noqa: PT017
        forge(checkpoint, lambda m, key=key: m.pop(key, None))


@pytest.mark.parametrize("key", ["iteration", "env_steps", "wall_s", "saved_by", "sha256"])
def test_what_a_standing_needs_must_be_there(checkpoint, key):
    forge(checkpoint, lambda m: m.pop(key))
    with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint"):
        read_standing(checkpoint)


@pytest.mark.parametrize("name", ["../../../secret", "/dev/zero", "", "a/../../b"])
def test_no_file_outside_a_checkpoint_is_read(checkpoint, name):
    forge(checkpoint, lambda m: m["sha256"].update({name: "0" * 64}))
    with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint: sha256 is"):
        read_standing(checkpoint)
    forge(checkpoint, lambda m: m["sha256"].pop(name))
    forge(checkpoint, lambda m: m.update(members={name or "..": {"sha256": "0" * 64}}))
    with pytest.raises(DamagedCheckpoint, match="members is"):
        read_standing(checkpoint)


def test_a_pipe_in_the_place_of_a_file_keeps_nobody(checkpoint):
    name = next(iter(read_manifest(checkpoint)["sha256"]))
    (checkpoint / name).unlink()
    os.mkfifo(checkpoint / name)
    with pytest.raises(DamagedCheckpoint, match="is no file"):
        read_standing(checkpoint)
    with pytest.raises(ValueError, match="is no file"):
        newest_sound(checkpoint.parent.parent)


def test_a_list_of_snapshots_may_be_anything(checkpoint):
    archive = {"past": [{"iteration": 2, "sha256": "0" * 64}]}
    rng = random.Random(0)
    for value in filter(None, ODD):  # where nothing is listed, nothing is missing
        odd = copy.deepcopy(archive)
        place = rng.choice([odd, odd["past"][0]])
        place[rng.choice(list(place))] = value
        (checkpoint / SNAPSHOTS_FILE).write_text(json.dumps(odd))
        with pytest.raises(DamagedCheckpoint):
            read_standing(checkpoint)
        assert read_archive(checkpoint) == odd


def test_a_lineage_may_be_anything():
    with pytest.raises(ValueError, match="is no event of a lineage"):
        from_json([{"member": "seed-0"}])
    for value in ODD:
        with pytest.raises(ValueError, match="is no event of a lineage"):
            from_json([value])
        if value not in ([], [[]]):
            with pytest.raises(ValueError, match="a lineage must be a list of events"):
                from_json(value)
