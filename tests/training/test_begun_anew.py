"""Runs that were killed before they had saved anything, and who goes on where several would."""

import dataclasses
import json
import shutil

import pytest
from lamps import (
    NUM_ENVS,
    NUM_STEPS,
    make_trainer,
    read_entries,
    resume,
    without_clock,
)

from jaxmarl_ppo.config.run import CheckpointConfig
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.run_folder import members_of, read_record

STEPS = NUM_ENVS * NUM_STEPS
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=STEPS, keep=20)


def killed_run(run_dir, **changes):
    """A run as it is where it was killed before its first checkpoint: with its record and log."""
    make_trainer(run_dir, **changes).train()
    for folder in (run_dir, *members_of(run_dir)):
        for name in ("checkpoints", "params"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in ("curve.png", "report.html"):
            (folder / name).unlink()
    assert len(read_entries(run_dir)) == 4
    return run_dir


def resume_anew(run_dir, **kwargs):
    with pytest.warns(RuntimeWarning, match="begins anew from its record"):
        return resume(run_dir, **kwargs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("whole") / "run", checkpoints=EVERY).train()


def test_a_run_without_a_checkpoint_begins_anew_to_the_bit(whole, tmp_path):
    run_dir = killed_run(tmp_path / "run")
    events = {path.name for path in run_dir.glob("events.out.tfevents.*")}
    run_id = read_record(run_dir)["id"]
    result = resume_anew(run_dir).train()
    assert without_clock(result.history) == without_clock(whole.history)
    assert without_clock(read_entries(run_dir)) == without_clock(whole.history)
    assert len([*run_dir.glob("events.out.tfevents.*")]) == len(events) == 1
    assert read_record(run_dir)["id"] == run_id
    assert resume(run_dir).log_interval == whole.history[0]["iteration"]


def test_a_group_without_a_checkpoint_begins_anew_to_the_bit(tmp_path):
    expected = make_trainer(tmp_path / "whole", num_seeds=2).train()
    run_dir = killed_run(tmp_path / "run", num_seeds=2)
    result = resume_anew(run_dir).train()
    assert without_clock(result.history) == without_clock(expected.history)
    for found, member in zip(result.members, expected.members, strict=True):
        assert without_clock(read_entries(found.run_dir)) == without_clock(member.history)


def test_a_run_that_begins_anew_keeps_its_folder_whatever_comes(tmp_path):
    run_dir = killed_run(tmp_path / "run")
    (run_dir / "metrics.jsonl").unlink()
    trainer = resume_anew(run_dir)
    trainer._set_up = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert read_record(run_dir)["config"]["num_envs"] == NUM_ENVS
    resume_anew(run_dir)


def test_what_ended_without_checkpoints_does_not_begin_anew(tmp_path):
    never = CheckpointConfig(keep=0)
    for name, changes in {"run": {}, "group": {"num_seeds": 2}}.items():
        make_trainer(tmp_path / name, checkpoints=never, total_env_steps=STEPS, **changes).train()
        with pytest.raises(ValueError, match="has no checkpoint to resume from"):
            resume(tmp_path / name)


def test_a_record_of_something_else_does_not_begin(whole, tmp_path):
    """Such as that of a search, which has no id."""
    record = {k: v for k, v in read_record(whole.run_dir).items() if k != "id"}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="has no checkpoint to resume from"):
        resume(tmp_path)


def test_damaged_checkpoints_do_not_make_a_run_begin_anew(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    shutil.rmtree(copy / "params")
    (copy / "curve.png").unlink()
    for folder in checkpoints_of(copy):
        folder.rename(folder.with_name(f"{folder.name}.damaged"))
    with pytest.raises(ValueError, match="has no checkpoint to resume from"):
        resume(copy)


def test_who_comes_second_is_told_that_the_run_has_gone_on(whole, tmp_path):
    """Both have chosen the same checkpoint; the first has ended when the second takes the lock."""
    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    for folder in checkpoints_of(copy)[:5]:
        shutil.rmtree(folder)
    shutil.rmtree(copy / "params")
    first, second = resume(copy), resume(copy)
    result = first.train()
    written = (copy / "params" / "policies.msgpack").read_bytes()
    before = [path.name for path in checkpoints_of(copy)]
    with pytest.raises(ValueError, match="was trained by another process meanwhile; resume it aga"):
        second.train()
    assert (copy / "params" / "policies.msgpack").read_bytes() == written
    assert [path.name for path in checkpoints_of(copy)] == before
    assert without_clock(result.history) == without_clock(whole.history)


def test_who_comes_second_to_a_run_without_a_checkpoint_is_told_too(tmp_path):
    run_dir = killed_run(tmp_path / "run")
    first, second = resume_anew(run_dir), resume_anew(run_dir)
    first.train()
    with pytest.raises(ValueError, match="was trained by another process meanwhile"):
        second.train()


def test_checkpoints_carry_the_id_of_their_run(whole, tmp_path):
    ids = set()
    for folder in (
        whole.run_dir,
        make_trainer(tmp_path / "run", checkpoints=EVERY).train().run_dir,
    ):
        manifest = json.loads((checkpoints_of(folder)[0] / "manifest.json").read_text())
        assert manifest["run"] == read_record(folder)["id"]
        ids.add(manifest["run"])
    assert len(ids) == 2
    assert min(map(len, ids)) == 32


def test_a_checkpoint_of_another_run_is_not_gone_on_from(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    other = make_trainer(tmp_path / "other", checkpoints=EVERY, total_env_steps=12 * STEPS).train()
    strange = checkpoints_of(other.run_dir)[0]
    shutil.copytree(strange, copy / "checkpoints" / strange.name)
    theirs, mine = (read_record(folder)["id"] for folder in (other.run_dir, copy))
    with pytest.raises(ValueError, match=f"another run: its id is '{theirs}', that .*'{mine}'"):
        resume(copy)
    assert (copy / "checkpoints" / strange.name).is_dir()


def test_members_have_ids_that_stay(tmp_path):
    run = make_trainer(tmp_path / "run", num_seeds=2, checkpoints=EVERY).train()
    ids = [read_record(folder)["id"] for folder in (run.run_dir, *members_of(run.run_dir))]
    assert ids[1:] == [f"{ids[0]}-{folder.name}" for folder in members_of(run.run_dir)]
    resume(run.run_dir, total_env_steps=11 * STEPS).train()
    for run_id, folder in zip(ids, (run.run_dir, *members_of(run.run_dir)), strict=True):
        manifest = json.loads((checkpoints_of(folder)[0] / "manifest.json").read_text())
        assert manifest["run"] == run_id == read_record(folder)["id"]


def test_a_run_without_an_id_goes_on_without_one(whole, tmp_path):
    """Of a version that gave none: its record and manifests lack it."""
    from jaxmarl_ppo.runs import manifest as manifests

    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    for folder in checkpoints_of(copy)[:5]:
        shutil.rmtree(folder)
    shutil.rmtree(copy / "params")
    record = {k: v for k, v in read_record(copy).items() if k != "id"}
    (copy / "config.json").write_text(json.dumps(record))
    for folder in checkpoints_of(copy):
        (folder / "config.json").write_text(json.dumps(record))
        manifest = json.loads((folder / "manifest.json").read_text())
        position = manifests.RunPosition(
            **{
                field.name: manifest[field.name]
                for field in dataclasses.fields(manifests.RunPosition)
            }
        )
        (folder / "manifest.json").unlink()
        manifests.write_manifest(folder, record, position, {})
    result = resume(copy).train()
    assert without_clock(result.history) == without_clock(whole.history)
    assert "id" not in read_record(copy)


def test_a_folder_that_cannot_hold_a_checkpoint_is_refused_before_anything_is_learnt(tmp_path):
    """Its own files have room, those in its checkpoints have not."""
    run_dir = tmp_path
    while len(str(run_dir)) < 4096 - 130:
        run_dir /= "d" * min(100, 4096 - 130 + 20 - len(str(run_dir)))
    with pytest.raises(ValueError, match="cannot hold a run: File name too long; choose another"):
        make_trainer(run_dir).train()
