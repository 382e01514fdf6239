"""Run folders that are renamed, removed or replaced while the run trains."""

import re
import shutil
import sys
import warnings

import pytest
from lamps import NUM_ENVS, NUM_STEPS, Lamps, make_trainer, read_entries, without_clock

from jaxmarl_ppo import CheckpointConfig, EvaluationConfig, ObjectiveConfig, PbtConfig, Range
from jaxmarl_ppo.runs.checkpoints import newest_sound
from jaxmarl_ppo.runs.files import LINEAGE_FILE
from jaxmarl_ppo.runs.place import RunFolderMoved, RunFolders
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training.trainer import Trainer

STEPS = NUM_ENVS * NUM_STEPS
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=2 * STEPS, keep=20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("whole") / "run", checkpoints=EVERY).train()


def once(entry_number, do):
    seen = []

    def see(entry):
        seen.append(entry)
        if len(seen) == entry_number:
            do()

    return see


def rename(run_dir):
    run_dir.rename(run_dir.with_name("elsewhere"))


def remove(run_dir):
    """Remove a folder at once, into which a checkpoint may be in the writing."""
    removed = run_dir.with_name("removed")
    run_dir.rename(removed)
    while removed.exists():
        shutil.rmtree(removed, ignore_errors=True)


def replace(run_dir):
    remove(run_dir)
    run_dir.mkdir()


def train(run_dir, change, **changes):
    """Train, and change the folder at the second entry of the log."""
    callbacks = [once(2, lambda: change(run_dir))]
    with warnings.catch_warnings():
        # Where a checkpoint is in the writing meanwhile.
        warnings.filterwarnings("ignore", "no checkpoint could be saved", RuntimeWarning)
        with pytest.raises(RunFolderMoved) as caught:
            make_trainer(run_dir, callbacks=callbacks, **changes).train()
    return str(caught.value)


CHANGES = {
    "renamed": (rename, "elsewhere", "was renamed to '.*elsewhere' while the run trained"),
    "removed": (remove, "run-recovered", "was removed while the run trained"),
    "replaced": (replace, "run-recovered", "was removed while the run trained"),
}
LINUX = sys.platform == "linux"  # which alone tells the new name


@pytest.mark.parametrize("how", CHANGES)
def test_a_run_whose_folder_is_no_longer_there_is_saved_elsewhere(whole, tmp_path, how):
    change, name, message = CHANGES[how]
    if how == "renamed" and not LINUX:
        name, message = "run-recovered", "was removed while the run trained"
    told = train(tmp_path / "run", change, checkpoints=EVERY)
    assert re.search(message, told)
    folder = tmp_path / name
    assert told.endswith(f"what was learnt is saved in {folder}, which can be resumed")
    others = {path.name for path in tmp_path.iterdir()} - {folder.name, "elsewhere"}
    assert others == ({"run"} if how == "replaced" else set())
    if how == "replaced":
        # It is somebody else's; a checkpoint that was to be written may have begun there.
        assert {path.name for path in (tmp_path / "run").iterdir()} <= {"checkpoints"}
    assert load_run(folder, env=Lamps()).population is not None
    assert newest_sound(folder, strict=True)[1].iteration < 10
    result = Trainer.resume(folder, env=Lamps(), progress=False, check_env=False).train()
    assert without_clock(result.history) == without_clock(whole.history)
    assert without_clock(read_entries(folder)) == without_clock(whole.history)


@pytest.mark.parametrize("how", CHANGES)
def test_a_run_that_saves_nothing_before_its_end_is_told_at_its_end(tmp_path, how):
    change, name, _ = CHANGES[how]
    never = CheckpointConfig(keep=0)
    train(tmp_path / "run", change, checkpoints=never)
    folder = tmp_path / (name if LINUX else "run-recovered")
    assert load_run(folder, env=Lamps()).population is not None
    assert len(read_entries(folder)) == 4


@pytest.mark.parametrize("what", ["run", "run/members/seed-1"])
def test_a_group_of_which_a_folder_is_gone_is_saved_elsewhere(tmp_path, what):
    expected = make_trainer(tmp_path / "whole", num_seeds=2, checkpoints=EVERY).train()
    told = train(
        tmp_path / "run", lambda _: remove(tmp_path / what), num_seeds=2, checkpoints=EVERY
    )
    assert f"{what}' was removed while the run trained" in told
    folder = tmp_path / "run-recovered"
    assert not (tmp_path / what).exists()
    result = Trainer.resume(folder, env=Lamps(), progress=False, check_env=False).train()
    assert without_clock(result.history) == without_clock(expected.history)
    for found, member in zip(result.members, expected.members, strict=True):
        assert without_clock(read_entries(found.run_dir)) == without_clock(member.history)


@pytest.mark.rare
def test_a_population_whose_folder_is_gone_is_saved_elsewhere(tmp_path):
    per_member = {
        "num_seeds": 2,
        "evaluation": EvaluationConfig(every_env_steps=2 * STEPS, episodes=4),
        "objective": ObjectiveConfig("evaluation/all/return_mean"),
        "pbt": PbtConfig({"default_ppo.learning_rate": Range(1e-3, 1e-1, log=True)}),
        "checkpoints": EVERY,
    }
    expected = make_trainer(tmp_path / "whole", **per_member).train()
    train(tmp_path / "run", remove, **per_member)
    folder = tmp_path / "run-recovered"
    result = Trainer.resume(folder, env=Lamps(), progress=False, check_env=False).train()
    assert without_clock(result.history) == without_clock(expected.history)
    lineage = [(path / LINEAGE_FILE).read_text() for path in (folder, tmp_path / "whole")]
    assert lineage[0] == lineage[1] != ""


def test_a_place_knows_its_folders(tmp_path):
    members = [tmp_path / "run" / "members" / name for name in ("a", "b")]
    for member in members:
        member.mkdir(parents=True)
    place = RunFolders(tmp_path / "run", members)
    place.check()
    assert place.renamed_to is None
    (tmp_path / "run").rename(tmp_path / "new")
    assert place.renamed_to == (tmp_path / "new" if LINUX else None)
    shutil.rmtree(tmp_path / "new" / "members" / "b")
    assert place.renamed_to is None  # it is not complete
    with pytest.raises(RunFolderMoved, match="run' was removed"):
        place.check()
    place.close()
    place.close()
