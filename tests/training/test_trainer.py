"""The host's side of training: records, determinism, faults, interruption, loading."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import serialization
from lamps import (
    CONFIG,
    EXPLODING,
    INF_FEATURES,
    NAN_REWARD,
    NO_ACTION,
    NUM_ENVS,
    NUM_STEPS,
    LampParams,
    Lamps,
    Rounds,
    assert_same,
    make_trainer,
    read_entries,
    without_clock,
)

import jaxmarl_envs
from jaxmarl_ppo.config.as_json import write_json
from jaxmarl_ppo.config.mapping import MappingFunction
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.devices import compiled_runs
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs import run_folder
from jaxmarl_ppo.runs.files import CONFIG_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import JsonLinesLogger
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.runs.status import read_end
from jaxmarl_ppo.training import slicing
from jaxmarl_ppo.training.errors import EnvironmentFault, TrainingDiverged
from jaxmarl_ppo.training.trainer import Trainer


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("run") / "new").train()


def load(run_dir, **kwargs):
    return load_run(run_dir, **{"env": Lamps(), **kwargs})


def test_record_of_a_run(result):
    assert not result.interrupted
    assert result.env_steps == CONFIG.total_env_steps
    entries = read_entries(result.run_dir)
    assert entries == result.history
    assert [entry["iteration"] for entry in entries] == [3, 6, 9, 10]
    names = {path.name.split(".")[0] for path in result.run_dir.iterdir()}
    assert len(repr(result)) < 300  # as a notebook shows it
    kept = {"config", "metrics", "events", "params", "curve", "report", "checkpoints", "end"}
    assert names - {""} == kept
    assert (result.run_dir / "curve.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((result.run_dir / "config.json").read_text())
    assert record["env"]["name"] == "lamps"
    assert record["config"]["default_policy"]["network"]["hidden_sizes"] == [4]
    assert record["versions"]["jax"] == jax.__version__
    assert record["platform"]["num_devices"] == jax.device_count()


def test_entries_count_everything_once(result):
    """Totals are totals, and the intervals' own counts add up to them."""
    per_iteration = NUM_ENVS * NUM_STEPS
    for entry in result.history:
        assert entry["env_steps"] == entry["iteration"] * per_iteration
        assert entry["decisions"] == 2 * entry["env_steps"]
        assert entry["decisions_per_step"] == 2.0
        assert entry["env_steps_per_s"] > 0
        assert entry["peak_memory_mb"] > 0
    decided = sum(p["decisions"] for entry in result.history for p in entry["policies"].values())
    assert decided == 2 * CONFIG.total_env_steps
    # Every environment ends a life of either agent at every fifth step.
    for agent in Lamps.agents:
        lives = [entry["agents"][agent] for entry in result.history]
        assert sum(life["episodes"] for life in lives) == NUM_ENVS * (10 * NUM_STEPS // 5)
        assert all(life["lit"] == pytest.approx(life["return_mean"]) for life in lives)
        assert all(life["length_mean"] == 5.0 for life in lives)
    walls = [entry["wall_s"] for entry in result.history]
    assert walls == sorted(walls)


def test_tensorboard_scalars(result):
    event_file = pytest.importorskip("tensorboardX.proto.event_pb2")
    from tensorboardX.record_writer import RecordWriter  # noqa: F401  the format's other half

    (path,) = result.run_dir.glob("events.*")
    found = {}
    data = path.read_bytes()
    while data:  # length (8 bytes), its checksum (4), the event, its checksum (4)
        size = int.from_bytes(data[:8], "little")
        event = event_file.Event.FromString(data[12 : 12 + size])
        found |= {(v.tag, event.step): v.simple_value for v in event.summary.value}
        data = data[16 + size :]
    last = result.history[-1]
    for name, policy in last["policies"].items():
        key = (f"policies/{name}/entropy", last["env_steps"])
        assert found[key] == pytest.approx(policy["entropy"])


def test_same_seed_gives_the_same_metrics(result, tmp_path):
    again = make_trainer(tmp_path / "again").train()
    assert without_clock(again.history) == without_clock(result.history)
    assert_same(again.population, result.population)


def test_a_second_run_of_a_trainer_compiles_nothing(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make_trainer(None)
    first = made.train()
    monkeypatch.setattr(Devices, "jit", None)
    second = made.train()
    assert first.run_dir != second.run_dir
    assert without_clock(second.history) == without_clock(result.history)
    assert_same(second.population, result.population)


def test_slices_change_no_bit(result, tmp_path, monkeypatch):
    # A slice that may last no time has one iteration; the others have 1, 8 and 1.
    monkeypatch.setattr(slicing, "SLICE_S", 0.0)
    short = make_trainer(tmp_path / "short", log_interval=10).train()
    monkeypatch.setattr(slicing, "SLICE_S", 1e9)
    long = make_trainer(tmp_path / "long", log_interval=10).train()
    assert without_clock(short.history) == without_clock(long.history)
    assert_same(short.population, result.population)
    assert_same(long.population, result.population)


def test_another_seed_gives_other_metrics(result, tmp_path):
    other = make_trainer(tmp_path / "other", seed=1).train()
    assert without_clock(other.history) != without_clock(result.history)


@pytest.mark.rare
def test_one_environment(tmp_path):
    changes = {"num_envs": 1, "total_env_steps": 50}
    result = make_trainer(tmp_path / "one", log_interval=None, **changes).train()
    assert result.env_steps == 56  # whole iterations
    assert [entry["env_steps"] for entry in result.history] == list(range(8, 57, 8))
    assert jax.tree.all(jax.tree.map(lambda x: bool(np.isfinite(x).all()), result.population))


@pytest.mark.parametrize(("iterations", "interval"), [(10, 1), (250, 2), (1000, 10)])
def test_about_a_hundred_entries(tmp_path, iterations, interval):
    steps = iterations * NUM_ENVS * NUM_STEPS
    made = make_trainer(tmp_path / "new", log_interval=None, total_env_steps=steps)
    assert made.log_interval == interval


@pytest.fixture(scope="module")
def before_fault(tmp_path_factory):
    """Two iterations, which is where step 17 finds a run with 8 steps per rollout."""
    steps = 2 * NUM_ENVS * NUM_STEPS
    return make_trainer(tmp_path_factory.mktemp("good") / "new", total_env_steps=steps).train()


@pytest.mark.rare_cases(
    "1-reward-gave NaN in 'reward' of agent 'bob_0'-0.0",
    "2-features-gave an infinite value in 'features' of agent 'bob_0'-1000000000.0",
)
@pytest.mark.parametrize(
    ("kind", "field", "what", "slices"),
    [
        (NAN_REWARD, "reward", "gave NaN in 'reward' of agent 'bob_0'", 0.0),
        (NAN_REWARD, "reward", "gave NaN in 'reward' of agent 'bob_0'", 1e9),
        (INF_FEATURES, "features", "gave an infinite value in 'features' of agent 'bob_0'", 1e9),
        (NO_ACTION, "action_mask", "gave no legal action in 'action_mask' of agent 'bob_0'", 1e9),
    ],
)
def test_fault_of_the_environment(tmp_path, monkeypatch, before_fault, kind, field, what, slices):
    monkeypatch.setattr(slicing, "SLICE_S", slices)
    monkeypatch.setattr(slicing, "SLICE_GROWTH", 1000)
    run_dir = tmp_path / "faulty"
    with pytest.raises(EnvironmentFault) as caught:
        make_trainer(run_dir, LampParams(fault=kind), log_interval=10).train()
    message = str(caught.value)
    assert f"environment 'lamps' {what} at step 1 of iteration 2" in message
    assert "its step 17 since training began" in message
    assert str(run_dir) in message
    assert (caught.value.field, caught.value.agent) == (field, "bob_0")
    assert (caught.value.step, caught.value.iteration) == (1, 2)
    end = read_end(run_dir)
    assert (end.state, end.reason) == ("failed", f"EnvironmentFault: {message}")
    assert_same(load(run_dir).population, before_fault.population)


def test_divergence_is_not_blamed_on_the_environment(tmp_path):
    run_dir = tmp_path / "diverged"
    ppo = dataclasses.replace(CONFIG.default_ppo, learning_rate=EXPLODING)
    with pytest.raises(
        TrainingDiverged, match=r"of ann_0 \(.*value_loss.*\).* of 96 environment steps are saved"
    ) as caught:
        make_trainer(run_dir, default_ppo=ppo).train()
    assert "grad_norm" in caught.value.policies["bob_0"]
    population = load(run_dir).population
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(population))
    assert len(read_entries(run_dir)) == 1


@pytest.mark.parametrize(
    ("params", "message", "odd"),
    [
        (
            LampParams(pays=1e20),
            r"Rewards are too large for float32 \(returns or rewards of \de\+2\d\)",
            "value_loss",
        ),
        (LampParams(shines=1e30), "The normaliser squares observations", "observation normaliser"),
    ],
)
def test_numbers_that_are_too_large_are_told_at_once(tmp_path, params, message, odd):
    with pytest.raises(TrainingDiverged, match=message) as caught:
        make_trainer(tmp_path / "run", params).train()
    assert "learning_rate" not in str(caught.value)
    assert "after 96 environment steps" in str(caught.value)  # the first check
    assert odd in caught.value.policies["ann_0"]
    population = load(tmp_path / "run").population
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(population))


def test_steps_of_an_infinite_norm_are_counted_as_left_out(tmp_path):
    """Clipped by it they would change nothing, and nobody would know."""
    params = LampParams(pays=1e20)
    result = make_trainer(tmp_path / "run", params, skip_nonfinite_updates=True).train()
    taken = [entry["policies"]["ann_0"]["skipped_steps"] for entry in result.history]
    assert sum(taken) == 10 * 2 * 2


def test_steps_that_are_not_finite_are_left_out_if_that_is_asked_for(tmp_path):
    """One policy's learning rate explodes; the other one learns on as if it had not."""
    steady = PolicySpec(network=CONFIG.default_policy.network, normalise_observations=True)
    wild = dataclasses.replace(
        steady, ppo=dataclasses.replace(CONFIG.default_ppo, learning_rate=EXPLODING)
    )
    beside, alone = (
        make_trainer(
            tmp_path / name,
            policies={"ann_0": spec},
            default_policy=steady,
            skip_nonfinite_updates=True,
        ).train()
        for name, spec in (("beside", wild), ("alone", steady))
    )
    skipped = [entry["policies"]["ann_0"]["skipped_steps"] for entry in beside.history]
    assert skipped[0] == 0
    assert skipped[-1] > 0
    bob = [[entry["policies"]["bob_0"] for entry in result.history] for result in (beside, alone)]
    assert bob[0] == bob[1]
    assert all(entry["skipped_steps"] == 0 for entry in bob[0])
    assert (
        "skipped_steps"
        not in make_trainer(tmp_path / "plain").train().history[0]["policies"]["bob_0"]
    )


def test_saved_policies_are_the_final_ones(result):
    loaded = load(result.run_dir)
    assert_same(loaded.population, result.population)
    (group,) = loaded.population.policy_groups
    assert (group.obs_moments.count > 0).all()
    assert loaded.config == dataclasses.replace(CONFIG, num_devices=1)
    assert loaded.env_params == LampParams()


def test_run_of_an_unregistered_environment_needs_it_again(result):
    with pytest.raises(
        ValueError, match="'lamps' was made in Python, or is not registered here; name"
    ):
        load_run(result.run_dir)


def test_a_run_of_the_first_format_is_read_and_of_an_unknown_one_refused(result, tmp_path):
    (tmp_path / "params").symlink_to(result.run_dir / "params")
    record = json.loads((result.run_dir / "config.json").read_text())
    assert record["format"] == 2
    names = {
        "mapping": "policies",
        "policies": "specs",
        "default_policy": "policy",
        "default_ppo": "ppo",
    }
    former = {names.get(key, key): value for key, value in record["config"].items()}
    (tmp_path / "config.json").write_text(json.dumps({**record, "format": 1, "config": former}))
    loaded = load(tmp_path)
    assert loaded.config == dataclasses.replace(CONFIG, num_devices=1)
    assert_same(loaded.population, result.population)
    later = {**record, "format": 3, "versions": {"jaxmarl-ppo": "9.9"}}
    (tmp_path / "config.json").write_text(json.dumps(later))
    with pytest.raises(
        ValueError, match=r"has format 3, written by jaxmarl-ppo '9.9'; this version reads .* 1, 2$"
    ):
        load(tmp_path)


def test_load_run_refuses_what_does_not_fit(result, tmp_path):
    with pytest.raises(ValueError, match=r"run folder .* does not exist"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"config.json does not exist"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="lacks format, env, config"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(ValueError, match="cannot be read"):
        load_run(tmp_path)
    record = (result.run_dir / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(record)
    with pytest.raises(ValueError, match="the run saved no parameters"):
        load(tmp_path)
    path = tmp_path / "params" / "policies.msgpack"
    path.parent.mkdir()
    whole = (result.run_dir / "params" / "policies.msgpack").read_bytes()
    for content in (b"", b"\xc1 nonsense", whole[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="damaged or not a file of policies"):
            load(tmp_path)
    of_the_future = whole.replace(b"\xa6format\x03", b"\xa6format\x04")
    assert of_the_future != whole
    path.write_bytes(of_the_future)
    with pytest.raises(
        ValueError, match=r"is of format 4; this version of jaxmarl_ppo reads the formats 1, 2, 3"
    ):
        load(tmp_path)
    wider = record.replace(b'"hidden_sizes": [\n          4', b'"hidden_sizes": [\n          6')
    assert wider != record
    (tmp_path / "config.json").write_bytes(wider)
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"should be float32\[2, 6, 2\]"):
        load(tmp_path)
    shared = record.replace(b'"per_agent"', b'"shared"')
    (tmp_path / "config.json").write_bytes(shared)
    with pytest.raises(ValueError, match="holds the policies ann_0, bob_0, but the config"):
        load(tmp_path)


LEAGUE = {
    "env": Rounds(),
    "mapping": {"ann_0": "main", "bob_0": "past"},
    "policies": {"past": Snapshots("main", size=3, add_every=2)},
    "stagger_starts": False,
}


@pytest.fixture(scope="module")
def league(tmp_path_factory):
    return make_trainer(tmp_path_factory.mktemp("league") / "new", **LEAGUE).train()


@pytest.mark.rare
def test_a_pool_is_saved_with_the_policy_that_it_is_of(league, tmp_path):
    names = ("main", "past@0", "past@1", "past@2")
    loaded = load(league.run_dir, env=LEAGUE["env"])
    assert loaded.learner.players.names == names
    changes = {name: value for name, value in LEAGUE.items() if name != "env"} | {"num_devices": 1}
    assert loaded.config == dataclasses.replace(CONFIG, **changes)
    assert_same(loaded.population, league.population)
    # There is something to keep: a full pool of unequal snapshots, and results.
    (pool,), results = loaded.population.league.pools, loaded.population.league
    assert pool.count == 3
    assert len(set(pool.added_at.tolist())) == 3
    assert max(pool.added_at) >= 8
    (group,) = loaded.population.policy_groups
    kernels = group.params["policy_head"]["kernel"]
    assert all((kernels[i] != kernels[j]).any() for i in (1, 2, 3) for j in range(1, i))
    assert results.games[0, 1:].sum() > 10
    assert league.history[-1]["league"]["pools"] == {
        "past": {"snapshots": 3, "added_at": pool.added_at.tolist()}
    }
    # A pool of another size is another pool.
    record = (league.run_dir / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(record.replace(b'"size": 3', b'"size": 2'))
    path = tmp_path / "params" / "policies.msgpack"
    path.parent.mkdir()
    path.write_bytes((league.run_dir / "params" / "policies.msgpack").read_bytes())
    with pytest.raises(
        ValueError, match="past@1, past@2, but the configuration has main, past@0, "
    ):
        load(tmp_path, env=LEAGUE["env"])


def test_a_policy_starts_from_a_finished_run(league, tmp_path):
    origin = tmp_path / "origin:2"  # a colon is no sign of a policy's name
    shutil.copytree(league.run_dir, origin)
    spec = CONFIG.default_policy

    def make(network=spec.network, **loads):
        policies = {
            agent: dataclasses.replace(spec, network=network, load=f"{origin}{name and ':'}{name}")
            for agent, name in loads.items()
        }
        return make_trainer(tmp_path / "new", policies=policies)

    # The oldest snapshot, which is unlike its origin by now.
    (pool,) = league.population.league.pools
    entry = int(np.argmin(pool.added_at))
    names = [f"past@it{k}" for k in pool.added_at.tolist()]
    assert set(league.history[-1]["league"]["players"]) == {"main", *names}
    (old,) = league.population.policy_groups
    made = make(bob_0=f"past@{entry}")  # by its place in the pool
    by_place = made.learner.init_population(jax.random.key(1))
    made = make(bob_0=names[entry])
    population = made.learner.init_population(jax.random.key(1))
    assert_same(by_place, population)
    (new,) = population.policy_groups
    assert_same(jax.tree.map(lambda x: x[1], new), jax.tree.map(lambda x: x[1 + entry], old))
    assert not (new.params["value_head"]["kernel"][0] == old.params["value_head"]["kernel"]).any()
    known = ", ".join(["main", *names])
    with pytest.raises(ValueError, match=f"no network 'nobody'; it has {known}"):
        make(bob_0="nobody")
    with pytest.raises(ValueError, match="no network 'bob_0'"):
        make(bob_0="")
    with pytest.raises(
        ValueError, match=r"is float32\[4, 2\] in the file, but should be .*\[5, 2\]"
    ):
        make(bob_0="main", network=MLP(hidden_sizes=(5,)))
    # The run that it makes does without the one that it came from.
    write_json(tmp_path / CONFIG_FILE, made._record())
    save_population(tmp_path / POLICIES_FILE, made.learner.players.names, population)
    shutil.rmtree(origin)
    assert_same(load(tmp_path).population, population)
    with pytest.raises(ValueError, match="does not exist: the run saved no parameters"):
        make(bob_0="main")


def test_league_is_the_same_again_whatever_the_slices(league, tmp_path, monkeypatch):
    monkeypatch.setattr(slicing, "SLICE_S", 0.0)
    again = make_trainer(tmp_path / "again", **LEAGUE).train()
    assert without_clock(again.history) == without_clock(league.history)
    assert_same(again.population, league.population)


@pytest.mark.rare
def test_a_faulty_rollout_leaves_the_league_alone(tmp_path):
    """Step 26 is faulty; that iteration ends an episode too, and a snapshot is due after it."""
    params = LampParams(fault_time=26, life=29)
    steps = 3 * NUM_ENVS * NUM_STEPS
    before = make_trainer(tmp_path / "before", params, total_env_steps=steps, **LEAGUE).train()
    with pytest.raises(
        EnvironmentFault, match="gave NaN in 'reward' of agent 'bob_0' at step 2 of"
    ):
        make_trainer(tmp_path / "faulty", params.replace(fault=NAN_REWARD), **LEAGUE).train()
    loaded = load(tmp_path / "faulty", env=LEAGUE["env"])
    assert_same(loaded.population, before.population)


def light_ann(state, obs, params, key):
    return state.goal


class Plain(nn.Module):
    num_outputs: int = 0

    @nn.compact
    def __call__(self, hidden, inputs):
        return hidden, nn.Dense(self.num_outputs)(inputs), nn.Dense(1)(inputs)[..., 0]


@pytest.mark.parametrize(
    ("mapping", "policies"),
    [
        ("per_agent", {"ann_0": Scripted(light_ann)}),
        ("per_agent", {"ann_0": PolicySpec(network=Plain())}),
        (MappingFunction(lambda key, draw: jnp.array([0, 1]), ("a", "b")), {}),
    ],
    ids=["script", "module", "mapping"],
)
def test_what_no_file_can_hold_is_handed_in_again(tmp_path, mapping, policies):
    made = make_trainer(tmp_path, mapping=mapping, policies=policies)
    write_json(tmp_path / CONFIG_FILE, made._record())
    population = made.learner.init_population(jax.random.key(1))
    save_population(tmp_path / POLICIES_FILE, made.learner.players.names, population)
    with pytest.raises(ValueError, match=r"from Python: load_run\(run_dir, config=...\)"):
        load(tmp_path)
    loaded = load(tmp_path, config=made.config)
    assert_same(loaded.population, population)
    assert loaded.config is made.config
    with pytest.raises(ValueError, match="network has no effect beside config; drop one of them"):
        load(tmp_path, config=made.config, network=Plain())


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_saved_file_holds_no_code(result):
    """Message pack of arrays and names alone; nothing that a reader would have to execute."""
    content = serialization.msgpack_restore(
        (result.run_dir / "params" / "policies.msgpack").read_bytes()
    )
    leaves = jax.tree.leaves([content, serialization.msgpack_restore(content["players"])])
    assert all(isinstance(leaf, np.ndarray | int | str | bytes) for leaf in leaves)


def test_a_flipped_bit_among_the_parameters_is_found(result, tmp_path):
    shutil.copytree(result.run_dir, tmp_path / "run")
    path = tmp_path / "run" / POLICIES_FILE
    content = bytearray(path.read_bytes())
    for place in range(20, len(content), len(content) // 40):
        flipped = content.copy()
        flipped[place] ^= 2
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"damaged or not a file of policies|is of format"):
            load(tmp_path / "run")


def test_policies_with_the_former_name_of_their_groups_are_read(result, tmp_path):
    shutil.copytree(result.run_dir, tmp_path / "run")
    path = tmp_path / "run" / POLICIES_FILE
    players = serialization.msgpack_restore(
        serialization.msgpack_restore(path.read_bytes())["players"]
    )
    population = players["population"]
    population["banks"] = population.pop("policy_groups")
    path.write_bytes(serialization.msgpack_serialize({"format": 1, **players}))
    assert_same(load(tmp_path / "run").population, result.population)


def test_policies_of_the_first_format_are_read(result, tmp_path):
    shutil.copytree(result.run_dir, tmp_path / "run")
    path = tmp_path / "run" / POLICIES_FILE
    content = serialization.msgpack_restore(path.read_bytes())
    players = serialization.msgpack_restore(content["players"])
    path.write_bytes(serialization.msgpack_serialize({"format": 1, **players}))
    assert_same(load(tmp_path / "run").population, result.population)


def test_run_folder_in_use_is_refused_before_anything_else(tmp_path):
    (tmp_path / "note").touch()
    with pytest.raises(ValueError, match=f"{tmp_path}.* is not empty"):
        make_trainer(tmp_path)
    with pytest.raises(ValueError, match="note' is a file"):
        make_trainer(tmp_path / "note")
    (tmp_path / "empty").mkdir()
    make_trainer(tmp_path / "empty")


def test_run_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_folder.new_run_dir(None, "lamps-mlp-seed0")
    assert first.parent.name == "runs"
    assert first.name.startswith("lamps-mlp-seed0-20")
    first.mkdir(parents=True)
    assert run_folder.new_run_dir(None, "lamps-mlp-seed0") != first


def test_environment_is_built_again_as_it_was_made():
    import jaxmarl_envs

    env, params = jaxmarl_envs.make("tic_tac_toe", illegal="random")
    record = run_folder.run_record(env, params, TrainConfig())
    assert run_folder._recorded_env(record["env"], None)[0].illegal == "random"
    record = run_folder.run_record(type(env)(illegal="random"), params, TrainConfig())
    with pytest.raises(ValueError, match="'tic_tac_toe' was made in Python"):
        run_folder._recorded_env(record["env"], None)


def test_interruption_saves_what_was_learnt(tmp_path, monkeypatch):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("Ctrl-C is ignored here")
    made = make_trainer(tmp_path / "run", total_env_steps=10**9, log_interval=5)
    write = JsonLinesLogger.on_log

    def write_and_interrupt(log, entry):
        write(log, entry)
        if entry["iteration"] == 10:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(JsonLinesLogger, "on_log", write_and_interrupt)
    before = signal.getsignal(signal.SIGINT)
    result = made.train()
    assert signal.getsignal(signal.SIGINT) is before
    assert result.interrupted
    end = read_end(result.run_dir)
    assert (end.state, end.reason, end.env_steps) == ("stopped", "SIGINT", result.env_steps)
    assert result.env_steps == 10 * NUM_ENVS * NUM_STEPS
    assert len(read_entries(result.run_dir)) == 2
    assert_same(load(result.run_dir).population, result.population)


def test_second_interruption_aborts_at_once(tmp_path, monkeypatch):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("Ctrl-C is ignored here")
    made = make_trainer(tmp_path / "run", total_env_steps=10**9, log_interval=5)

    def interrupt_twice(log, entry):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("still going")

    monkeypatch.setattr(JsonLinesLogger, "on_log", interrupt_twice)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert signal.getsignal(signal.SIGINT) is before
    assert not (tmp_path / "run" / "params").exists()


def test_interruption_while_compiling_leaves_no_folder(tmp_path, monkeypatch):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("Ctrl-C is ignored here")
    made = make_trainer(tmp_path / "run")

    empty = compiled_runs.metrics_lib.empty

    def interrupt(*args):
        signal.raise_signal(signal.SIGINT)
        return empty(*args)

    monkeypatch.setattr(compiled_runs.metrics_lib, "empty", interrupt)
    with pytest.raises(KeyboardInterrupt, match="nothing was learnt"):
        made.train()
    assert not (tmp_path / "run").exists()


def test_training_outside_the_main_thread(tmp_path):
    """Where signal handlers cannot be installed."""
    results = []
    made = make_trainer(tmp_path / "run")
    thread = threading.Thread(target=lambda: results.append(made.train()))
    thread.start()
    thread.join()
    assert not results[0].interrupted


def test_import_is_light():
    code = (
        "import sys, jaxmarl_ppo\n"
        "heavy = 'jax flax distrax tensorflow_probability matplotlib tensorboardX rich'\n"
        "print([m for m in heavy.split() if m in sys.modules])\n"
        "missing = [n for n in jaxmarl_ppo.__all__ if getattr(jaxmarl_ppo, n, None) is None]\n"
        "print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_everything_else_is_imported_where_an_extra_is_not_installed():
    code = (
        "import sys, importlib.machinery as m\n"
        "found = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = lambda name, *rest: (\n"
        "    None if name == 'optuna' else found(name, *rest))\n"
        "from jaxmarl_ppo import *\n"
        "print('Sweep' in globals(), 'Trainer' in globals())\n"
        "try:\n"
        "    from jaxmarl_ppo import Sweep\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "False True",
        "a search needs optuna: pip install ./envs '.[optuna]' in a clone of the repository",
    ]


def test_unknown_name_of_the_package():
    import jaxmarl_ppo

    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        _ = jaxmarl_ppo.Trainr


def test_arguments_that_are_easily_mixed_up_are_refused(tmp_path):
    env, params = jaxmarl_envs.make("crypto")
    with pytest.raises(ValueError, match=r"the order is \(env, env_params, config\)"):
        Trainer(env, TrainConfig(), run_dir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"env must be a MultiAgentEnv, .* got 'crypto'"):
        Trainer("crypto", params, run_dir=tmp_path / "run")
    with (
        jax.enable_x64(True),
        pytest.raises(ValueError, match=r"jax_enable_x64 is True, .* unset JAX_ENABLE_X64"),
    ):
        Trainer(env, params, run_dir=tmp_path / "run")
