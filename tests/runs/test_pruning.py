"""What of a folder of runs may be removed, and what never."""

import dataclasses
import shutil

import pytest
from run_folders import STEPS, end, log, make_group, make_run, record_of, write_policies

from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.run import CheckpointConfig
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.lock import locked
from jaxmarl_ppo.runs.pruning import check_prunable, loads_of, plan_removals, remove


def planned(*folders):
    """The names of the paths that would go, and the reasons why others stay."""
    found, left = plan_removals(folders)
    return [(each.folder, [path.name for path in each.paths]) for each in found], left


def kept(folder):
    return [int(path.name) for path in checkpoints_of(folder)[::-1]]


def pruned(*folders):
    found, _ = plan_removals(folders)
    return [remove(each, loads_of(folders)) for each in found]


def test_the_newest_checkpoint_and_the_best_one_stay(tmp_path):
    run = make_run(tmp_path / "run", (1, 2, 3, 4, 5), objectives={1: 1.0, 2: 3.0, 4: 2.0})
    (found,), left = plan_removals([run])
    assert not left
    assert found.num_bytes > 0
    assert remove(found, []) == found
    assert kept(run) == [2, 5]
    assert pruned(run) == []
    least = record_of()
    least["config"]["objective"]["goal"] = "minimise"
    run = make_run(tmp_path / "least", (1, 2, 3), record=least, objectives={1: 1.0, 2: 3.0})
    pruned(run)
    assert kept(run) == [1, 3]


def test_a_damaged_checkpoint_is_not_the_newest_one(tmp_path):
    run = make_run(tmp_path / "run", (1, 2, 3))
    with (run / "checkpoints" / "000000003" / "state-0.msgpack").open("ab") as file:
        file.write(b"odd")
    with pytest.warns(RuntimeWarning, match="going back to"):
        assert planned(run) == ([(run, ["000000001"])], {})


def test_a_checkpoint_of_another_run_stays(tmp_path):
    other = make_run(tmp_path / "other", (1,), record=record_of("b"))
    run = make_run(tmp_path / "run", (2, 3))
    shutil.move(other / "checkpoints" / "000000001", run / "checkpoints")
    found, left = planned(run)
    assert found == []
    assert "belongs to another run" in left[run]


@pytest.mark.parametrize(
    ("load", "protects"),
    [
        ("runs/run/checkpoints/000000001", True),
        ("run/checkpoints/000000001:main", True),
        ("run/checkpoints/0000000012", False),
        ("other_run/checkpoints/000000001", False),
        ("run", False),
    ],
)
def test_a_checkpoint_that_another_run_starts_from_stays(tmp_path, load, protects):
    run = make_run(tmp_path / "run", (1, 2, 3))
    policies = {"main": PolicySpec(load=load)}
    other = make_run(tmp_path / "other", (1,), record=record_of("b", policies=policies))
    ((_, names),), _ = planned(run, other)
    assert names == ["000000002", "000000001"][: 1 if protects else 2]


def test_a_run_in_use_stays_whole(tmp_path):
    run, failed = make_run(tmp_path / "run"), make_run(tmp_path / "failed", ())
    with locked(run), locked(failed):
        assert planned(run, failed) == ([], {})
    found, _ = plan_removals([run, failed])
    assert len(found) == 2
    for removal in found:
        with locked(removal.folder), pytest.raises(ValueError, match="is in use by process"):
            remove(removal, [])
    assert kept(run) == [1, 2, 3]
    assert (failed / "config.json").exists()


def test_what_may_go_is_decided_again_under_the_lock(tmp_path):
    run, failed = make_run(tmp_path / "run"), make_run(tmp_path / "failed", ())
    (first, second), _ = plan_removals([run, failed])
    # What was old is the newest one, and what had failed has a checkpoint.
    shutil.rmtree(run / "checkpoints" / "000000003")
    make_run(failed, (1,))
    assert remove(first, []).paths == (run / "checkpoints" / "000000001",)
    assert kept(run) == [2]
    assert remove(second, []).paths == ()
    assert kept(failed) == [1]


def test_failed_starts_go(tmp_path):
    killed = make_run(tmp_path / "killed", ())
    log(killed, STEPS)
    failed = make_run(tmp_path / "failed", ())
    end(failed, "failed", "EnvironmentFault: NaN")
    write_policies(failed)
    for name in ("curve.png", "report.html"):
        (failed / name).touch()
    locked_once = tmp_path / "locked once"
    locked_once.mkdir()
    (locked_once / ".lock").touch()
    group = make_group(tmp_path / "group", ())
    folders = [killed, failed, locked_once, group]
    found, left = plan_removals(folders)
    assert (len(found), left) == (4, {})
    assert all(removal.is_failed_start for removal in found)
    pruned(*folders)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_start_with_something_else_in_it_stays(tmp_path):
    notes = make_run(tmp_path / "notes", ())
    (notes / "notes.txt").touch()
    stopped = make_run(tmp_path / "stopped", ())
    end(stopped, "stopped", "SIGINT")
    keeps_none = record_of(checkpoints=CheckpointConfig(keep=0))
    unsaved = make_run(tmp_path / "unsaved", (), record=keeps_none)
    log(unsaved, STEPS)
    trial = make_run(tmp_path / "trial", (), record=record_of(None))
    partly = make_group(tmp_path / "partly", (1,))
    shutil.rmtree(partly / "checkpoints")
    damaged = make_run(tmp_path / "damaged", ())
    (damaged / "config.json").write_text("{")
    loaded = make_run(tmp_path / "loaded", ())
    policies = {"main": PolicySpec(load="runs/loaded:main")}
    loads = make_run(tmp_path / "loads", (1,), record=record_of("b", policies=policies))
    folders = [notes, stopped, unsaved, trial, partly, damaged, loaded, loads]
    found, left = planned(*folders)
    assert found == []
    assert list(left) == [damaged]


def test_links_lead_nowhere(tmp_path):
    outside = make_run(tmp_path / "outside")
    run = make_run(tmp_path / "run", ())
    (run / "checkpoints").symlink_to(outside / "checkpoints")
    found, left = planned(run)
    assert found == []
    assert "is a link to" in left[run]
    (run / "checkpoints").unlink()
    (run / "metrics.jsonl").symlink_to(outside / "config.json")
    (run / "wandb").mkdir()
    (run / "wandb" / "latest").symlink_to(outside)
    pruned(run)
    assert not run.exists()
    assert kept(outside) == [1, 2, 3]
    assert (outside / "config.json").exists()
    (tmp_path / "link").symlink_to(outside)
    found, left = planned(tmp_path / "link")
    assert "is a link to" in left[tmp_path / "link"]


def test_a_group_keeps_what_its_newest_checkpoint_needs(tmp_path):
    group = make_group(tmp_path / "group", (1, 2, 3))
    members = [group / "members" / name for name in ("seed-0", "seed-1")]
    # Written by a group that was killed before it wrote its own.
    for member in members:
        shutil.copytree(member / "checkpoints" / "000000003", member / "checkpoints" / "000000004")
    shutil.rmtree(members[0] / "checkpoints" / "000000004")
    (removal,), _ = plan_removals([group])
    with locked(members[1]), pytest.raises(ValueError, match="is in use by process"):
        remove(removal, [])
    remove(removal, [])
    assert [kept(folder) for folder in (group, *members)] == [[3], [3], [3, 4]]


def test_a_search_stays_whole(tmp_path):
    search = make_run(tmp_path / "search", (1, 2))
    (search / "search.json").write_text("{}")
    assert planned(search) == ([], {})


def test_a_part_of_a_run_is_not_pruned_alone(tmp_path):
    group = make_group(tmp_path / "group", (1,))
    for part in ("members", "members/seed-0", "checkpoints"):
        with pytest.raises(ValueError, match="lies within a run, which is pruned as a whole"):
            check_prunable(group / part)
    check_prunable(group)
    check_prunable(tmp_path)


def test_sizes_are_those_of_what_goes(tmp_path):
    run = make_run(tmp_path / "run", (1, 2))
    (removal,), _ = plan_removals([run])
    with (run / "checkpoints" / "000000001" / "large").open("wb") as file:
        file.write(b"x" * 100_000)
    (larger,), _ = plan_removals([run])
    assert 100_000 <= larger.num_bytes - removal.num_bytes < 200_000
    assert dataclasses.replace(removal, num_bytes=larger.num_bytes) == larger
