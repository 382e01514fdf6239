"""Manifests whose checksums are right, as anybody can compute one, and whose content is not."""

import copy
import json
import os
import random

import pytest
from checkpoint_data import position, snapshot

from jaxmarl_ppo.cli.session import existing_run
from jaxmarl_ppo.config.pbt import PbtConfig
from jaxmarl_ppo.config.run import EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.search import Range
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.runs.checkpoints import newest_sound, write_checkpoint
from jaxmarl_ppo.runs.files import CONFIG_FILE, MANIFEST_FILE, SNAPSHOTS_FILE
from jaxmarl_ppo.runs.group_checkpoints import (
    GroupSnapshot,
    read_pbt,
    read_stopped,
    write_group_checkpoint,
)
from jaxmarl_ppo.runs.lineage import Event, from_json, to_json
from jaxmarl_ppo.runs.manifest import (
    DamagedCheckpoint,
    _digest_of_manifest,
    read_archive,
    read_manifest,
    read_position,
)
from jaxmarl_ppo.training.seed_group import seeds_of
from jaxmarl_ppo.training.setup import _events

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
            for read in (read_position, read_stopped, read_pbt):
                try:
                    read(checkpoint)
                except ValueError as error:
                    assert MANIFEST_FILE in str(error) or checkpoint.name in str(error)  # noqa: PT017
        forge(checkpoint, lambda m, key=key: m.pop(key, None))


@pytest.mark.parametrize("key", ["iteration", "env_steps", "wall_s", "saved_by", "sha256"])
def test_what_a_position_needs_must_be_there(checkpoint, key):
    forge(checkpoint, lambda m: m.pop(key))
    with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint"):
        read_position(checkpoint)


CHANGES = {
    "stage": 1,
    "since": 96,
    "logged": 96,
    "values": {"default_ppo.gamma": 0.9},
    "set_by": ["Grow"],
}


def test_changes_are_read_and_may_be_missing(checkpoint):
    assert read_position(checkpoint).changes is None
    forge(checkpoint, lambda m: m.update(changes=CHANGES))
    assert read_position(checkpoint).changes == CHANGES
    forge(checkpoint, lambda m: m.pop("changes"))  # as older versions wrote it
    assert read_position(checkpoint).changes is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stage", -1),
        ("stage", True),
        ("since", "3"),
        ("values", [0.9]),
        ("values", {"gamma": "0.9"}),
        ("set_by", "Grow"),
        ("set_by", [3]),
    ],
)
def test_changes_that_cannot_be_are_damage(checkpoint, key, value):
    forge(checkpoint, lambda m: m.update(changes={**CHANGES, key: value}))
    with pytest.raises(DamagedCheckpoint, match=rf"is no manifest .*: changes.{key} is"):
        read_position(checkpoint)
    forge(checkpoint, lambda m: m.update(changes=value))
    with pytest.raises(DamagedCheckpoint, match=r"is no manifest of a checkpoint: changes"):
        read_position(checkpoint)


@pytest.mark.parametrize("name", ["../../../secret", "/dev/zero", "", "a/../../b"])
def test_no_file_outside_a_checkpoint_is_read(checkpoint, name):
    forge(checkpoint, lambda m: m["sha256"].update({name: "0" * 64}))
    with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint: sha256 is"):
        read_position(checkpoint)
    forge(checkpoint, lambda m: m["sha256"].pop(name))
    forge(checkpoint, lambda m: m.update(members={name or "..": {"sha256": "0" * 64}}))
    with pytest.raises(DamagedCheckpoint, match="members is"):
        read_position(checkpoint)


def test_a_pipe_in_the_place_of_a_file_keeps_nobody(checkpoint):
    name = next(iter(read_manifest(checkpoint)["sha256"]))
    (checkpoint / name).unlink()
    os.mkfifo(checkpoint / name)
    with pytest.raises(DamagedCheckpoint, match="is no file"):
        read_position(checkpoint)
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
            read_position(checkpoint)
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


# ---- Groups whose members learn from each other --------------------------------------------------

MEMBERS, GAMMA = ("seed-0", "seed-1"), "default_ppo.gamma"
EVENTS = [Event(0, 0, name, None, None, None, {}, {GAMMA: 0.9}) for name in MEMBERS]
PBT = TrainConfig(
    num_seeds=2,
    evaluation=EvaluationConfig(every_env_steps=32),
    objective=ObjectiveConfig("evaluation/all/return_mean"),
    pbt=PbtConfig({GAMMA: Range(0.9, 0.99)}),
)


@pytest.fixture
def group(tmp_path):
    (tmp_path / "group").mkdir()
    learnt = {"lineage": to_json(EVENTS), "scores": {"seed-0": 1.5}, "scored_at": 3}
    learnt["failed"] = {"seed-1": "it diverged"}
    stopped = dict.fromkeys(MEMBERS, "it diverged")
    record = {"format": 2, "env": {}, "config": {}}
    return write_group_checkpoint(
        tmp_path / "group", GroupSnapshot(record, position(3), stopped, learnt)
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lineage", None),
        ("lineage", [{}]),
        ("lineage", {"member": "seed-0"}),
        ("scores", [1.0]),
        ("scores", {"seed-0": "best"}),
        ("scores", {"seed-0": None}),
        ("scores", None),
        ("scored_at", None),
        ("scored_at", 1.5),
        ("failed", ["seed-1"]),
        ("failed", {"seed-1": 3}),
    ],
)
def test_what_members_learnt_is_checked_before_the_checkpoint_is_chosen(group, key, value):
    read_position(group)
    forge(group, lambda m: m["pbt"].update({key: value}))
    with pytest.raises(DamagedCheckpoint, match=f"is no manifest of a checkpoint: pbt.{key}"):
        read_position(group)
    forge(group, lambda m: m["pbt"].pop(key))
    with pytest.raises(DamagedCheckpoint, match=f"is no manifest of a checkpoint: pbt.{key}"):
        read_position(group)


@pytest.mark.parametrize("value", [[], "learnt", 0, True])
def test_what_members_learnt_is_a_table(group, value):
    forge(group, lambda m: m.update(pbt=value))
    with pytest.raises(DamagedCheckpoint, match="is no manifest of a checkpoint: pbt is"):
        read_position(group)


def test_a_lineage_must_be_that_of_the_configuration(group):
    assert _events(PBT, seeds_of(PBT), read_pbt(group)) == EVENTS
    forge(group, lambda m: m["pbt"]["lineage"].pop())
    with pytest.raises(ValueError, match="the lineage has no member 'seed-1'"):
        _events(PBT, seeds_of(PBT), read_pbt(group))
    other = [Event(0, 0, name, None, None, None, {}, {"learning_rate": 0.9}) for name in MEMBERS]
    forge(group, lambda m: m["pbt"].update(lineage=to_json(other)))
    with pytest.raises(ValueError, match=r"lineage has learning_rate, but pbt.space is of default"):
        _events(PBT, seeds_of(PBT), read_pbt(group))


def test_a_manifest_without_an_end_to_its_depth_is_damage(checkpoint):
    for depth in (200, 100_000):
        (checkpoint / MANIFEST_FILE).write_text("[" * depth + "]" * depth)
        with pytest.raises(DamagedCheckpoint, match="cannot be read"):
            read_manifest(checkpoint)


@pytest.mark.parametrize(
    "config", [None, [], "x", {"objective": []}, {"objective": {"goal": None}}]
)
def test_a_checkpoint_is_named_whatever_the_record_says_of_the_objective(checkpoint, config):
    run_dir = checkpoint.parent.parent
    env = {"name": "toy", "make": None, "params": {}, "agents": ["a"]}
    (run_dir / CONFIG_FILE).write_text(json.dumps({"format": 2, "env": env, "config": config}))
    assert existing_run(run_dir, "evaluate", "newest") == checkpoint
