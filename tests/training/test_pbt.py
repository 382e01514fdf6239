"""Population-based training: members learn from each other, the same way whatever stops them."""

import dataclasses
import json
import warnings

import jax
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
    cut_back,
    make_trainer,
    read_entries,
    resume,
    without_clock,
)

import jaxmarl_envs
from jaxmarl_ppo import (
    CheckpointConfig,
    Choices,
    EvaluationConfig,
    ObjectiveConfig,
    PbtConfig,
    Range,
    Trainer,
)
from jaxmarl_ppo.config.run_file import settings
from jaxmarl_ppo.pages.report import report_data
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.lineage import ancestry, from_json, read_lineage, schedules, values_of
from jaxmarl_ppo.runs.run_folder import load_run, read_record
from jaxmarl_ppo.training.pbt_group import PbtGroup

PER_ITERATION = NUM_ENVS * NUM_STEPS
EVERY = CheckpointConfig(every_minutes=None, every_env_steps=PER_ITERATION, keep=10)
RATE, GAMMA = "default_ppo.learning_rate", "default_ppo.gamma"
NUM_ITERATIONS, NUM_MEMBERS = 4, 3
PBT = {
    "total_env_steps": NUM_ITERATIONS * PER_ITERATION,
    "checkpoints": EVERY,
    "num_seeds": NUM_MEMBERS,
    "evaluation": EvaluationConfig(every_env_steps=2 * PER_ITERATION, episodes=16),
    "objective": ObjectiveConfig(measure="evaluation/rivals/least/all/return_mean"),
    "pbt": PbtConfig(
        {RATE: Range(1e-3, 1e-1, log=True), GAMMA: Range(0.5, 1.0)}, rivals=("bob_0",)
    ),
}


PLAIN = {
    **PBT,
    "objective": ObjectiveConfig("evaluation/all/return_mean"),
    "pbt": PbtConfig(PBT["pbt"].space),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Members that nothing stops, compared once, and the states of copies and of their parents."""
    copied, original = [], PbtGroup._copy

    def copy(self, run, parent, values):
        original(self, run, parent, values)
        copied.append([to_arrays(self.state_on_host(each)) for each in (run, parent)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PbtGroup, "_copy", copy)
        return make_trainer(tmp_path_factory.mktemp("pbt") / "run", **PBT).train(), copied


@pytest.fixture(scope="module")
def group(recorded):
    """What the members came to."""
    return recorded[0]


def lineage_of(run_dir):
    return read_lineage(run_dir / "lineage.jsonl")


def assert_same_states(found, expected):
    assert lineage_of(found.run_dir) == lineage_of(expected.run_dir)
    for own, other in zip(found.members, expected.members, strict=True):
        first, second = to_arrays(own.state), to_arrays(other.state)
        for name in second:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def assert_same_end(found, expected):
    assert_same_states(found, expected)
    for own, other in zip(found.members, expected.members, strict=True):
        assert without_clock(read_entries(own.run_dir)) == without_clock(other.history)
        assert without_clock(own.evaluations) == without_clock(other.evaluations)
        assert read_record(own.run_dir)["config"] == read_record(other.run_dir)["config"]
    assert without_clock(found.history) == without_clock(expected.history)
    assert found.best_member == expected.best_member


def test_every_copy_is_of_a_better_member_and_begins_with_its_state(group):
    events = lineage_of(group.run_dir)
    names = [member.run_dir.name for member in group.members]
    assert [event.member for event in events[:NUM_MEMBERS]] == names
    copies = events[NUM_MEMBERS:]
    assert {event.iteration for event in copies} == {2}
    assert copies
    for index, event in enumerate(copies, NUM_MEMBERS):
        assert event.parent in names
        assert event.member != event.parent
        assert event.score < event.parent_score
        assert event.before == values_of(events[:index], event.member)
        assert event.after != event.before
        assert event.env_steps == event.iteration * PER_ITERATION
        by_name = dict(zip(names, group.members, strict=True))
        (own,) = (e for e in by_name[event.member].evaluations if e["iteration"] == event.iteration)
        assert own["rivals"]["least"]["all"]["return_mean"] == event.score


def test_members_train_with_the_numbers_that_the_lineage_says(group):
    events = lineage_of(group.run_dir)
    for member in group.members:
        values = values_of(events, member.run_dir.name)
        for policy_group in member.state.training:
            rate, gamma = (
                policy_group.hyperparams.learning_rate.values,
                policy_group.hyperparams.gamma,
            )
            np.testing.assert_allclose(rate, values[RATE], rtol=1e-6)
            np.testing.assert_allclose(gamma, values[GAMMA], rtol=1e-6)
        config = load_run(member.run_dir, env=Lamps()).config
        # Alone it would meet nobody.
        assert config.objective.measure == "evaluation/all/return_mean"
        ppo = config.default_ppo
        assert (ppo.learning_rate, ppo.gamma) == (values[RATE], values[GAMMA])
    keys = {tuple(jax.random.key_data(member.state.key).tolist()) for member in group.members}
    assert len(keys) == NUM_MEMBERS


def test_a_copy_goes_on_where_its_parent_was(recorded):
    """But for its numbers, and for its key."""
    assert recorded[1]
    for own, parents in recorded[1]:
        for name, array in parents.items():
            if name == "key":
                assert not np.array_equal(own[name], array)
            elif "learning_rate" not in name and "gamma" not in name:
                np.testing.assert_array_equal(own[name], array, err_msg=name)


def test_a_copy_has_its_parent_s_optimiser_state_as_a_tree(tmp_path, monkeypatch):
    copied, original = [], PbtGroup._copy

    def copy(self, run, parent, values):
        original(self, run, parent, values)
        copied.append([to_arrays(self.state_on_host(each).training) for each in (run, parent)])

    monkeypatch.setattr(PbtGroup, "_copy", copy)
    ppo = dataclasses.replace(CONFIG.default_ppo, optimiser="muon")
    make_trainer(tmp_path / "run", **PLAIN, default_ppo=ppo).train()
    assert copied
    for own, parents in copied:
        names = [name for name in parents if "opt_state" in name and name.endswith("kernel")]
        assert names
        for name in names:
            assert np.abs(parents[name]).max() > 0.0
            np.testing.assert_array_equal(own[name], parents[name], err_msg=name)


@pytest.mark.rare_cases("3")
@pytest.mark.parametrize("iteration", [2, 3])
def test_a_killed_group_goes_on_to_the_bit(group, tmp_path, iteration):
    torn = cut_back(group.run_dir, tmp_path / "torn", iteration)
    (torn / "lineage.jsonl").write_text("half a li")
    assert_same_end(resume(torn).train(), group)


@pytest.mark.rare
def test_a_group_that_a_callback_stops_goes_on_to_the_bit(group, tmp_path):
    stop = lambda entry: entry["iteration"] >= 3  # noqa: E731
    stopped = make_trainer(tmp_path / "run", callbacks=[stop], **PBT).train()
    assert stopped.interrupted
    assert_same_end(resume(tmp_path / "run").train(), group)


@pytest.mark.rare
def test_a_group_that_goes_on_for_longer_is_one_that_was_so_long(tmp_path):
    """Its end was a moment of comparison, which comes once it goes on."""
    often = {**PBT, "evaluation": EvaluationConfig(every_env_steps=PER_ITERATION, episodes=16)}
    long, short = ({**often, "total_env_steps": n * PER_ITERATION} for n in (4, 2))
    expected = make_trainer(tmp_path / "long", **long).train()
    make_trainer(tmp_path / "short", **short).train()
    assert {event.iteration for event in lineage_of(tmp_path / "short")} <= {0, 1}
    found = resume(tmp_path / "short", total_env_steps=4 * PER_ITERATION).train()
    assert_same_states(found, expected)
    assert max(event.iteration for event in lineage_of(tmp_path / "long")) >= 2


def test_what_members_are_compared_by_stays_what_it_is(group):
    config = dataclasses.replace(CONFIG, **PBT)
    other = EvaluationConfig(every_env_steps=2 * PER_ITERATION, episodes=8)
    with pytest.raises(ValueError, match="cannot resume with another evaluation"):
        resume(group.run_dir, config=dataclasses.replace(config, evaluation=other))


def test_the_best_member_is_the_one_with_the_best_newest_score(group):
    scores = {
        member.run_dir.name: member.evaluations[-1]["rivals"]["least"]["all"]["return_mean"]
        for member in group.members
    }
    assert group.best_member == max(scores, key=scores.get)


def test_the_report_shows_the_lineage(group):
    data = report_data([group.run_dir])
    copies = lineage_of(group.run_dir)[NUM_MEMBERS:]
    assert len(data["lineage"]["rows"]) == len(copies)
    for run in data["runs"]:
        series = run["series"][f"numbers/{RATE}"]
        assert series["steps"][-1] == NUM_ITERATIONS * PER_ITERATION
        assert len(series["steps"]) == len(series["values"])


@pytest.mark.rare
def test_a_random_search_copies_nobody(tmp_path):
    pbt = PbtConfig(PBT["pbt"].space, fraction=0.0, rivals=("bob_0",))
    result = make_trainer(tmp_path / "run", **{**PBT, "pbt": pbt}).train()
    assert len(lineage_of(result.run_dir)) == NUM_MEMBERS
    assert result.best_member is not None


EVENTS = from_json(
    [
        {
            "env_steps": 10 * iteration,
            "iteration": iteration,
            "member": member,
            "parent": parent,
            "score": None,
            "parent_score": None,
            "before": {} if parent is None else {RATE: 0.0, "default_ppo.max_grad_norm": 0.0},
            "after": {RATE: rate, "default_ppo.max_grad_norm": 0.5 + iteration},
        }
        for iteration, member, parent, rate in (
            (0, "a", None, 1.0),
            (0, "b", None, 2.0),
            (2, "b", "a", 3.0),
            (4, "a", "b", 4.0),
            (6, "b", "a", 5.0),
            (8, "a", "b", 5.0),
        )
    ]
)


def test_ancestors_count_up_to_the_copy_that_was_taken_of_them():
    line = [(event.member, event.iteration) for event in ancestry(EVENTS, "b")]
    assert line == [("a", 0), ("b", 2), ("a", 4), ("b", 6)]
    found = schedules(EVENTS, "b", steps_per_iteration=10)
    points = ((0.0, 1.0), (10.0, 1.0), (20.0, 3.0), (30.0, 3.0), (40.0, 4.0), (50.0, 4.0))
    assert found[RATE] == (*points, (60.0, 5.0))
    assert found["default_ppo.max_grad_norm"] == 6.5  # which takes no schedule
    assert schedules(EVENTS, "a", 10)[RATE] == found[RATE]  # the last copy has the same rate


@pytest.mark.rare
def test_the_best_member_s_numbers_are_a_file_that_trains_again(tmp_path):
    env, params = jaxmarl_envs.make("basic")
    config = dataclasses.replace(CONFIG, **PLAIN)
    result = Trainer(env, params, config, tmp_path / "run", progress=False).train()
    found = settings(None, None, result.run_dir / "best.toml").config
    wanted = schedules(lineage_of(result.run_dir), str(result.best_member), PER_ITERATION)
    assert found.default_ppo.learning_rate == wanted[RATE]
    assert (found.pbt, found.num_seeds) == (None, 1)
    assert result.best_member is not None


@pytest.mark.rare
def test_a_member_that_diverges_becomes_a_copy(tmp_path):
    pbt = PbtConfig({RATE: Choices([1e-2, 3e38])}, resample_probability=0.0)
    changes = {**PLAIN, "pbt": pbt, "total_env_steps": 6 * PER_ITERATION}
    with pytest.warns(RuntimeWarning, match="waits to become a copy of another member: training"):
        result = make_trainer(tmp_path / "run", **changes, seed=1).train()
    copies = [event for event in lineage_of(result.run_dir) if event.parent is not None]
    revived = [event for event in copies if event.reason is not None]
    assert revived
    assert all("TrainingDiverged" in event.reason for event in revived)
    for event in revived:
        assert event.score is None
        entries = read_entries(result.run_dir / "members" / event.member)
        assert any(entry["iteration"] > event.iteration for entry in entries)
    torn = cut_back(result.run_dir, tmp_path / "torn", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = resume(torn).train()
    assert_same_end(again, result)
    assert again.stopped_members.keys() == result.stopped_members.keys()


def refused(match, tmp_path, **changes):
    with pytest.raises(ValueError, match=match):
        make_trainer(tmp_path / "run", **{**PBT, **changes})


def test_what_has_no_meaning_is_refused(tmp_path):
    space, plain, pbt = PBT["pbt"].space, PLAIN["objective"], PLAIN["pbt"]
    refused("set num_seeds to at least 2, got 1", tmp_path, num_seeds=1)
    refused("needs an objective", tmp_path, objective=ObjectiveConfig(), pbt=pbt)
    refused("do not fit: with rivals", tmp_path, objective=plain)
    refused("do not fit: with rivals", tmp_path, pbt=pbt)
    refused(
        "rivals names 'eve'; valid: ann_0, bob_0", tmp_path, pbt=PbtConfig(space, rivals=["eve"])
    )
    refused("names all agents", tmp_path, pbt=PbtConfig(space, rivals=["ann_0", "bob_0"]))
    refused("with which other agents play too", tmp_path, mapping="shared")
    log = ObjectiveConfig("all/return_mean")
    refused("set log_interval", tmp_path, objective=log, pbt=pbt, log_interval=None)
    odd = PbtConfig(space, every_env_steps=3 * PER_ITERATION)
    refused("a multiple of the 2 between evaluations", tmp_path, objective=plain, pbt=odd)
    late = PbtConfig(space, every_env_steps=4 * PER_ITERATION)
    refused("has no effect: members are compared every 128", tmp_path, objective=plain, pbt=late)
    unknown = PbtConfig({"policies.ann.ppo.gamma": Range(0.5, 1.0)})
    refused("policies has no 'ann'", tmp_path, objective=plain, pbt=unknown)
    wrong = PbtConfig({GAMMA: Range(0.5, 1.5)})
    refused(
        r"pbt can reach default_ppo.gamma = 1.5, where gamma",
        tmp_path,
        objective=plain,
        pbt=wrong,
    )
    idle = PbtConfig({"default_ppo.target_kl": Range(0.01, 0.1)})
    refused("target_kl=0.01 has no effect", tmp_path, objective=plain, pbt=idle)
    absent = PbtConfig({"default_ppo.log_barrier_coef": Range(0.01, 0.1)})
    refused("log_barrier_coef, which is None", tmp_path, objective=plain, pbt=absent)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"space": {}}, "names at least one number"),
        ({"space": {"num_envs": Range(1, 9)}}, "num_envs, which population-based training cannot"),
        ({"space": {"default_ppo.num_epochs": Range(1, 9)}}, "num_epochs, which cannot change"),
        ({"space": {"env.params.life": Range(1, 9)}}, "env.params.life, which population-based"),
        ({"space": {GAMMA: 0.5}}, "must be a Range or Choices"),
        ({"space": {GAMMA: Choices(["a", "b"])}}, "a finite number"),
        ({"fraction": 0.6}, r"lie in \[0.0, 0.5\]"),
        ({"perturb": 1.0}, "greater than 1"),
        ({"fraction": 0.0, "perturb": 1.5}, "perturb=1.5 has no effect with pbt.fraction=0"),
    ],
)
def test_what_cannot_be_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        PbtConfig(**{"space": {GAMMA: Range(0.5, 1.0)}, **arguments})


@pytest.mark.rare
def test_a_member_at_fault_becomes_a_copy_of_one_that_is_not(tmp_path):
    faulty = LampParams(fault=NAN_REWARD)
    changes = {**PLAIN, "objective": ObjectiveConfig("agents/ann_0/return_mean")}
    changes |= {"log_interval": 2, "total_env_steps": 6 * PER_ITERATION}
    del changes["evaluation"]
    with pytest.warns(RuntimeWarning, match="waits to become a copy of another member: environ"):
        result = make_trainer(tmp_path / "run", faulty, Unlucky(), **changes, seed=5).train()
    copies = [event for event in lineage_of(result.run_dir) if event.reason is not None]
    assert copies
    assert all("EnvironmentFault" in str(event.reason) for event in copies)
    assert len(result.members) == NUM_MEMBERS
    assert not result.stopped_members


def test_lines_of_the_lineage_are_json(group):
    lines = (group.run_dir / "lineage.jsonl").read_text().splitlines()
    assert all(set(json.loads(line)["after"]) == {RATE, GAMMA} for line in lines)
