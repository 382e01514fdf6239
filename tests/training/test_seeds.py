"""Seeds that train side by side: each is the run that it would be alone, and the group keeps on."""

import dataclasses
import shutil

import numpy as np
import pytest
from lamps import (
    CONFIG,
    NAN_REWARD,
    NUM_ENVS,
    NUM_STEPS,
    LampParams,
    Lamps,
    Unlucky,
    assert_same_end,
    cut_back,
    make_trainer,
    read_entries,
    resume,
    without_clock,
)
from on_devices import call_on_devices
from page_data import read_page

from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import Snapshots
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation import evaluate_group, evaluate_run
from jaxmarl_ppo.machine import cores
from jaxmarl_ppo.pages.report import report_data
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of, newest_sound
from jaxmarl_ppo.runs.run_folder import load_run, members_of, read_record
from jaxmarl_ppo.runs.status import read_end
from jaxmarl_ppo.training.errors import EnvironmentFault
from jaxmarl_ppo.training.seed_group import seeds_of
from jaxmarl_ppo.training.trainer import Trainer

PER_ITERATION = NUM_ENVS * NUM_STEPS
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=PER_ITERATION, keep=10)
OFTEN = {"checkpoints": EVERY, "num_seeds": 3, "seed": 5}
EVALUATED = {"evaluation": EvaluationConfig(every_env_steps=5 * PER_ITERATION, episodes=4)}


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Three seeds that nothing stops, with a checkpoint of every iteration, evaluated twice."""
    run_dir = tmp_path_factory.mktemp("group") / "run"
    return make_trainer(run_dir, **OFTEN, **EVALUATED).train()


def test_every_member_is_a_run_of_its_own(group, tmp_path):
    assert [member.run_dir.name for member in group.members] == ["seed-5", "seed-6", "seed-7"]
    alone = make_trainer(tmp_path / "alone", seed=6, num_devices=1, **EVALUATED).train()
    member = group.members[1]
    found, expected = to_arrays(member.state), to_arrays(alone.state)
    for name in expected:
        # Without optimisation two programs may round a last bit differently.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert [e["iteration"] for e in member.history] == [e["iteration"] for e in alone.history]
    run = load_run(member.run_dir, env=Lamps())
    assert (run.config.seed, run.config.num_seeds) == (6, 1)
    assert evaluate_run(member.run_dir, episodes=4, env=Lamps())["env"] == "lamps"
    for name in ("curve.png", "report.html", "params/policies.msgpack", "metrics.jsonl"):
        assert (member.run_dir / name).stat().st_size > 0


def test_seeds_share_the_devices_that_are_more_than_they(tmp_path):
    call_on_devices(4, check_seeds_on_two_devices_each, tmp_path)


def check_seeds_on_two_devices_each(folder):
    """Train two seeds on four devices, and one of them again on two, and resume."""
    kwargs = {"num_seeds": 2, "num_envs": 16, "checkpoints": EVERY}
    group = make_trainer(folder / "group", **kwargs).train()
    assert read_record(group.run_dir)["config"]["num_devices"] == 4
    alone = make_trainer(folder / "alone", num_envs=16, seed=1, num_devices=2).train()
    assert [m.run_dir.name for m in group.members] == ["seed-0", "seed-1"]
    found, expected = to_arrays(group.members[1].state), to_arrays(alone.state)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert_same_end(resume(cut_back(group.run_dir, folder / "torn", 4)).train(), group)


@pytest.mark.parametrize(
    ("num_seeds", "num_devices", "is_resumed", "expected"),
    [
        (2, None, False, 4),
        (3, None, False, 2),
        (8, None, False, 1),
        (2, None, True, 1),
        (2, 4, False, 2),
        (2, 4, True, 2),
        (4, 3, False, 1),
    ],
)
def test_devices_of_each_seed(monkeypatch, num_seeds, num_devices, is_resumed, expected):
    monkeypatch.setattr(cores, "local_devices", lambda: [None] * 8)
    config = TrainConfig(num_envs=64, num_seeds=num_seeds, num_devices=num_devices, seed=3)
    seeds = seeds_of(config, is_resumed)
    assert [own.seed for own in seeds] == list(range(3, 3 + num_seeds))
    assert {own.num_devices for own in seeds} == {expected}


@pytest.mark.parametrize("num_devices", [3, 6])
def test_devices_that_seeds_cannot_share(monkeypatch, num_devices):
    monkeypatch.setattr(cores, "local_devices", lambda: [None] * 8)
    config = TrainConfig(num_envs=64, num_seeds=2, num_devices=num_devices)
    message = rf"num_devices={num_devices} cannot be shared out evenly over 2 runs of 64 envs"
    with pytest.raises(ValueError, match=message):
        seeds_of(config)


def test_the_log_of_the_group_has_means_and_intervals(group):
    entries = [member.history[-1] for member in group.members]
    last = group.history[-1]
    returns = [entry["agents"]["ann_0"]["return_mean"] for entry in entries]
    assert last["seeds"] == 3
    assert last["env_steps"] == 10 * PER_ITERATION
    assert last["agents"]["ann_0"]["return_mean"] == pytest.approx(np.mean(returns))
    assert last["decisions"] == sum(entry["decisions"] for entry in entries)
    low, high = (last[end]["agents"]["ann_0"]["return_mean"] for end in ("ci95_low", "ci95_high"))
    assert min(returns) <= low <= last["iqm"]["agents"]["ann_0"]["return_mean"] <= high
    assert high <= max(returns)
    own = [member.evaluations[-1]["all"]["return_mean"] for member in group.members]
    assert group.evaluations[-1]["all"]["return_mean"] == pytest.approx(np.mean(own))
    assert len(group.evaluations) == 2


@pytest.mark.rare_cases("1")
@pytest.mark.parametrize("iteration", [1, 8])
def test_a_killed_group_goes_on_to_the_bit(group, tmp_path, iteration):
    torn = cut_back(group.run_dir, tmp_path / "torn", iteration)
    assert_same_end(resume(torn).train(), group)


def test_a_kill_between_the_checkpoints_of_members_is_mended(group, tmp_path):
    """The group then has none of that moment, and goes back to the one before."""
    torn = cut_back(group.run_dir, tmp_path / "torn", 6)
    shutil.rmtree(checkpoints_of(torn)[0])
    shutil.rmtree(checkpoints_of(torn / "members" / "seed-7")[0])
    assert newest_sound(torn)[1].iteration == 5
    assert_same_end(resume(torn).train(), group)


def test_a_group_goes_back_before_a_damaged_member(group, tmp_path):
    torn = cut_back(group.run_dir, tmp_path / "torn", 6)
    damaged = checkpoints_of(torn / "members" / "seed-6")[0] / "params" / "policies.msgpack"
    damaged.write_bytes(b"nothing")
    with pytest.warns(RuntimeWarning, match="differs from its checksum: going back"):
        again = resume(torn)
    assert again._resumption.position.iteration == 5  # type: ignore[union-attr]


@pytest.mark.rare
def test_checkpoints_of_members_go_with_those_of_the_group(tmp_path):
    keep = dataclasses.replace(EVERY, keep=1)
    run = make_trainer(tmp_path / "run", num_seeds=2, checkpoints=keep).train()
    for folder in [run.run_dir, *members_of(run.run_dir)]:
        assert [path.name for path in checkpoints_of(folder)] == ["000000010"]


def test_a_member_goes_on_alone(group, tmp_path):
    torn = cut_back(group.run_dir, tmp_path / "torn", 8)
    alone = resume(torn / "members" / "seed-6").train()
    assert alone.env_steps == group.env_steps
    assert without_clock(alone.history)[:2] == without_clock(group.members[1].history)[:2]


@pytest.mark.rare
def test_a_callback_stops_the_group_which_goes_on(group, tmp_path):
    class Stop:
        def __call__(self, entry):
            return entry["iteration"] >= 3

    stopped = make_trainer(tmp_path / "run", callbacks=[Stop()], **OFTEN, **EVALUATED).train()
    assert stopped.interrupted
    assert stopped.env_steps < group.env_steps
    assert_same_end(resume(tmp_path / "run").train(), group)


@pytest.fixture(scope="module")
def unlucky(tmp_path_factory):
    """Three seeds, of which one is stopped by its environment."""
    run_dir = tmp_path_factory.mktemp("unlucky") / "run"
    faulty = LampParams(fault=NAN_REWARD)
    with pytest.warns(
        RuntimeWarning, match=r"is stopped, and the other seeds continue: environment"
    ):
        return make_trainer(run_dir, faulty, Unlucky(), **OFTEN).train()


def test_a_member_that_is_at_fault_is_stopped_and_the_others_go_on(unlucky):
    (name,) = unlucky.stopped_members
    assert "EnvironmentFault" in unlucky.stopped_members[name]
    assert len(unlucky.members) == 2
    assert not unlucky.interrupted
    assert all(member.run_dir.name != name for member in unlucky.members)
    assert unlucky.history[-1]["seeds"] == 2
    stopped = unlucky.run_dir / "members" / name
    load_run(stopped, env=Unlucky())  # its policies from before
    assert len(read_entries(stopped)) < len(unlucky.history)
    end = read_end(stopped)
    assert (end.state, end.reason) == ("failed", unlucky.stopped_members[name])
    assert read_end(unlucky.run_dir).state == "finished"
    assert [name, f"failed: {end.reason}", "bad"] in report_data([unlucky.run_dir])["facts"]
    page = read_page((unlucky.run_dir / "report.html").read_text())
    assert report_data([unlucky.run_dir])["facts"][1:] == page["facts"][1:]


def test_a_member_that_was_stopped_stays_so(unlucky, tmp_path):
    torn = cut_back(unlucky.run_dir, tmp_path / "torn", 9)
    (name,) = unlucky.stopped_members
    shutil.copytree(unlucky.run_dir / "members" / name, torn / "members" / name, dirs_exist_ok=True)
    result = resume(torn, env=Unlucky()).train()
    assert result.stopped_members == {
        name: unlucky.stopped_members[name],
    }
    assert_same_end(result, unlucky)
    load_run(torn / "members" / name, env=Unlucky())


def test_a_fault_of_all_members_ends_the_group(tmp_path):
    faulty = LampParams(fault=NAN_REWARD)
    with pytest.raises(EnvironmentFault, match=r"saved in .*seed-5"):
        make_trainer(tmp_path / "run", faulty, **OFTEN).train()
    load_run(tmp_path / "run" / "members" / "seed-7", env=Lamps())


def test_a_group_is_evaluated_and_reported(group):
    report = evaluate_group(group.run_dir, episodes=4, env=Lamps())
    assert list(report["members"]) == ["seed-5", "seed-6", "seed-7"]
    own = [r["agents"]["bob_0"]["return_mean"] for r in report["members"].values()]
    numbers = report["numbers"]["agents/bob_0/return_mean"]
    assert numbers["mean"] == pytest.approx(np.mean(own))
    assert min(own) <= numbers["ci95_low"] <= numbers["iqm"] <= numbers["ci95_high"] <= max(own)
    alone = evaluate_run(group.members[0].run_dir, episodes=4, env=Lamps())
    assert report["members"]["seed-5"]["agents"] == alone["agents"]
    data = report_data([group.run_dir])
    assert [run["name"] for run in data["runs"]] == ["seed-5", "seed-6", "seed-7"]
    assert "ci95_low/agents/ann_0/return_mean" in data["group"]["series"]
    assert "evaluation/iqm/all/return_mean" in data["group"]["series"]


def test_a_group_is_no_run(group, tmp_path):
    with pytest.raises(ValueError, match=r"holds 3 runs; name one of them, such as .*seed-5"):
        load_run(group.run_dir, env=Lamps())
    spec = dataclasses.replace(CONFIG.default_policy, load=str(group.run_dir))
    with pytest.raises(ValueError, match="holds 3 runs; name one of them"):
        make_trainer(tmp_path / "run", default_policy=spec)
    spec = dataclasses.replace(spec, load=str(group.members[0].run_dir))
    make_trainer(tmp_path / "run", default_policy=spec)


def test_what_cannot_be_several_seeds_is_refused(group, tmp_path):
    with pytest.raises(ValueError, match=r"run folder .* exists and is not empty"):
        make_trainer(group.run_dir, **OFTEN)
    with pytest.raises(ValueError, match="num_devices=3 exceeds the 2 that JAX sees here"):
        make_trainer(tmp_path / "run", num_seeds=2, num_devices=3)
    with pytest.raises(ValueError, match="num_seeds"):
        make_trainer(tmp_path / "run", num_seeds=0)
    mapping = Matchups(({"ann_0": "now", "bob_0": "then"},))
    policies = {"then": Snapshots("now", size=8, add_every=8, on_device=4)}
    with pytest.raises(ValueError, match=r"snapshots of 'then' lie in files"):
        make_trainer(tmp_path / "run", num_seeds=2, mapping=mapping, policies=policies)


def test_the_trainer_takes_a_number_of_seeds(tmp_path):
    env = Lamps()
    trainer = Trainer(env, env.default_params, CONFIG, tmp_path, check_env=False, num_seeds=2)
    assert trainer.config.num_seeds == 2
