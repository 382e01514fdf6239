"""Every kind of file that is read, changed at random: it is read, or refused by a ValueError."""

import copy
import hashlib
import io
import json
import random
import tracemalloc
import zipfile
from typing import NamedTuple

import jax
import numpy as np
import pytest
from checkpoint_data import position, snapshot
from flax import serialization

import jaxmarl_envs
from jaxmarl_ppo.config.as_json import read_json, write_json
from jaxmarl_ppo.config.pbt import PbtConfig
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.run import EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.search import Range
from jaxmarl_ppo.config.search_file import read_search, read_space
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.deploy.exported import HEADER, load_exported
from jaxmarl_ppo.deploy.policy import Policy
from jaxmarl_ppo.evaluation.trajectories import Trajectories, load_trajectories, save_trajectories
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.on_ray.trainable import STANDING_FILE, STATE_FILE, read_saved
from jaxmarl_ppo.pages.report import report_data
from jaxmarl_ppo.policies.snapshot_files import read_snapshot, write_snapshot
from jaxmarl_ppo.runs import files
from jaxmarl_ppo.runs.checkpoints import write_checkpoint
from jaxmarl_ppo.runs.group_checkpoints import (
    GroupSnapshot,
    read_pbt,
    read_stopped,
    write_group_checkpoint,
)
from jaxmarl_ppo.runs.lineage import Event, to_json
from jaxmarl_ppo.runs.loggers import _keep_run_id, _read_run_id
from jaxmarl_ppo.runs.manifest import _digest_of_manifest, read_own_position, read_position
from jaxmarl_ppo.runs.run_folder import read_run, run_record
from jaxmarl_ppo.training.seed_group import seeds_of
from jaxmarl_ppo.training.setup import _events
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive

ENV, PARAMS = jaxmarl_envs.make("crypto")
SMALL = PolicySpec(network=MLP(hidden_sizes=(4,)))
CONFIG = TrainConfig(
    num_envs=4,
    num_steps=8,
    mapping={"eve_0": ["eve", "past"], "bob_0": "good", "alice_0": "good"},
    default_policy=SMALL,
    policies={"eve": SMALL, "past": Snapshots("eve", size=4, add_every=2, on_device=2)},
)
PBT = TrainConfig(
    num_seeds=2,
    evaluation=EvaluationConfig(every_env_steps=32),
    objective=ObjectiveConfig("evaluation/all/return_mean"),
    pbt=PbtConfig({"default_ppo.gamma": Range(0.9, 0.99)}),
)
NUMBERS = {"default_ppo.gamma": 0.9}
MEMBERS = ("seed-0", "seed-1")
VALUES = (None, True, -1, 2.5, 1e300, 2**70, 10**400, "", "x", "..", "\x1b[2J", [], [[1]], {})
VALUES += ({"a": {"b": [None]}}, ["x", 0], {"": {}}, "9" * 5000)
NUM_STRUCTURES, NUM_BYTES = 40, 12
MAX_BYTES = 8_000_000  # of memory, for files of some kilobytes


class Kind(NamedTuple):
    """A file, what reads it, and what is between its bytes and its content."""

    path: object
    read: object
    decode: object = json.loads
    encode: object = lambda data: json.dumps(data).encode()


def lines(content):
    return [json.loads(line) for line in content.splitlines()]


def as_lines(data):
    return "".join(json.dumps(line) + "\n" for line in data).encode()


def signed(manifest):
    """Write a manifest with the checksum that it should have, as anybody can."""
    if isinstance(manifest, dict):
        manifest.pop("sha256_of_manifest", None)
        manifest["sha256_of_manifest"] = _digest_of_manifest(manifest)
    return json.dumps(manifest).encode()


def players_of(content):
    return serialization.msgpack_restore(serialization.msgpack_restore(content)["players"])


def as_players(data):
    data = jax.tree.map(lambda x: x if type(x) is not int or x < 2**64 else 1e300, data)
    players = serialization.msgpack_serialize(data)
    content = {"format": 2, "sha256": hashlib.sha256(players).hexdigest(), "players": players}
    return serialization.msgpack_serialize(content)


def header_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return json.loads(file.read(HEADER))


def arrays_of(content):
    with np.load(io.BytesIO(content)) as arrays:
        return {name: array.tolist() for name, array in arrays.items()}


def as_arrays(data):
    """Write what NumPy can make of lists; what it cannot is an array of objects, which are code."""
    content, arrays = io.BytesIO(), {}
    for name, value in (data if isinstance(data, dict) else {"": data}).items():
        try:
            arrays[name] = np.array(value)
        except ValueError:
            arrays[name] = np.array(None)
    np.savez(content, **{name or "none": array for name, array in arrays.items()})
    return content.getvalue()


def write_logs(folder):
    entry = {
        "env_steps": 32,
        "decisions": 32,
        "iteration": 1,
        "wall_s": 1.5,
        "seconds": {"training": 1.0},
        "all": {"return_mean": 1.0},
        "agents": {"eve_0": {"return_mean": 1.0}},
        "league": {
            "players": ["eve", "good"],
            "win_rate": [[0.5, 0.5], [0.5, None]],
            "games": [[1, 2], [3, 4]],
            "elo": {"eve": 1000.0},
            "pools": {"past": {"added_at": [1, 2]}},
        },
    }
    report = {"env_steps": 32, "iteration": 1, "agents": {"eve_0": {"return_mean": 1.0}}}
    for name, line in ((files.METRICS_FILE, entry), (files.EVALUATIONS_FILE, report)):
        (folder / name).write_bytes(as_lines([line, line | {"env_steps": 64}]))


def write_runs(folder):
    """Write a run and a group of two, as training leaves them, without any training."""
    run, group = folder / "run", folder / "group"
    events = [Event(0, 0, name, None, None, None, {}, NUMBERS) for name in MEMBERS]
    events.append(Event(32, 1, *MEMBERS, 1.0, 2.0, NUMBERS, {"default_ppo.gamma": 0.8}))
    record = run_record(ENV, PARAMS, CONFIG, "id")
    for own in (run, group, *(group / files.MEMBERS / name for name in MEMBERS)):
        write_json(own / files.CONFIG_FILE, record)
        write_logs(own)
    (group / files.LINEAGE_FILE).write_bytes(as_lines(to_json(events)))
    learnt = {"scores": dict.fromkeys(MEMBERS, 1.0), "scored_at": 1, "failed": {"seed-1": "why"}}
    members = {"seed-0": snapshot(3), "seed-1": "diverged"}
    pbt = {"lineage": to_json(events), **learnt}
    group_checkpoint = write_group_checkpoint(
        group, GroupSnapshot(record, position(3), members, pbt)
    )
    return run, group, write_checkpoint(run, snapshot(3, "id")), group_checkpoint


def write_others(folder, run, learner):
    """Write what is read besides records, logs and checkpoints; return what reads each file."""
    expected = jax.eval_shape(learner.init_population, jax.random.key(0))
    population = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), expected)
    policy_group = jax.tree.map(lambda x: x[:1], population.policy_groups[0])
    one = jax.tree.map(lambda x: x[0], policy_group)
    write_snapshot(run, "past", 1, policy_group)
    taken = {"iteration": 1, "sha256": "0" * 64, "results": np.zeros((3, 2, 2)).tolist()}
    archive = {"past": [taken, taken | {"iteration": 2}]}
    write_json(folder / "snapshots.json", archive)
    search = {"search": {"num_trials": 4, "sampler": "random"}, "space": {}}
    search["space"] = {"default_ppo.gamma": {"low": 0.9, "high": 0.99}}
    write_json(folder / "search.json", search)
    write_json(run / files.LOGGERS_FILE, {"wandb": "an-id", "mlflow": "another"})
    write_json(folder / STANDING_FILE, {
        "standing": {"iteration": 1, "decisions": 2, "wall_s": 0.5}, "result": {"done": False}
    })  # fmt: skip
    np.savez(folder / STATE_FILE, weights=np.zeros(3), count=np.int32(1))
    Policy.of(learner, population, "eve").export(folder / "policy.jaxexport", ("cpu",))
    return one


def write_record(path):
    def full(kind, fill=0):
        return np.full((2, 3, 1), fill, kind)

    save_trajectories(
        path,
        Trajectories(
            env="toy", greedy=False, agents=("a",), players=("p",), policies=("p",),
            policy_of=np.zeros(1, int), episode=np.arange(2), length=np.array([3, 3]),
            finished=np.ones(2, bool), valid=np.ones((2, 3), bool),
            features=np.zeros((2, 3, 1, 2), np.float32), action_mask=np.ones((2, 3, 1, 4), bool),
            agent_mask=full(bool, True), alive=full(bool, True), is_first=full(bool),
            player=full(int), action=full(int), log_prob=full(np.float32), value=full(np.float32),
            reward=full(np.float32), terminated=full(bool), truncated=full(bool),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutations")
    run, group, checkpoint, group_checkpoint = write_runs(folder)
    learner = make_learner(ENV, PARAMS, CONFIG, strict=False)
    one = write_others(folder, run, learner)
    write_record(folder / "record.npz")

    def read_the_run(_):
        read_run(run)
        report_data([run])

    def read_search_of(path):
        said = read_json(path)
        read_search(said.get("search", {}))
        read_space(said.get("space", {}))

    def read_loggers(_):
        _read_run_id(run, "wandb")
        _keep_run_id(run, "mlflow", "another")

    def read_group(path):
        read_position(path.parent)
        read_stopped(path.parent)
        _events(PBT, seeds_of(PBT), read_pbt(path.parent))

    def read_checkpoint(path):
        read_own_position(path.parent)

    manifest, group_manifest = (x / files.MANIFEST_FILE for x in (checkpoint, group_checkpoint))
    exported = folder / "policy.jaxexport"

    def with_header(header):
        content = io.BytesIO()
        with zipfile.ZipFile(exported) as old, zipfile.ZipFile(content, "w") as new:
            for name in old.namelist():
                new.writestr(name, json.dumps(header) if name == HEADER else old.read(name))
        return content.getvalue()

    return {
        "config": Kind(run / files.CONFIG_FILE, read_the_run),
        "metrics": Kind(run / files.METRICS_FILE, read_the_run, lines, as_lines),
        "evaluations": Kind(run / files.EVALUATIONS_FILE, read_the_run, lines, as_lines),
        "lineage": Kind(
            group / files.LINEAGE_FILE, lambda _: report_data([group]), lines, as_lines
        ),
        "manifest": Kind(manifest, read_checkpoint),
        "signed manifest": Kind(manifest, read_checkpoint, encode=signed),
        "signed group": Kind(group_manifest, read_group, encode=signed),
        "snapshots": Kind(
            folder / "snapshots.json",
            lambda path: SnapshotArchive(learner.players, run, read_json(path)),
        ),
        "snapshot": Kind(
            run / "snapshots" / "past" / "000000001.msgpack",
            lambda _: read_snapshot(run, "past", 1, one),
            players_of,
            as_players,
        ),
        "search": Kind(folder / "search.json", read_search_of),
        "loggers": Kind(run / files.LOGGERS_FILE, read_loggers),
        "exported": Kind(exported, load_exported, header_of, with_header),
        "record": Kind(folder / "record.npz", load_trajectories, arrays_of, as_arrays),
        "standing": Kind(folder / STANDING_FILE, lambda path: read_saved(path.parent)),
        "state": Kind(
            folder / STATE_FILE, lambda path: read_saved(path.parent), arrays_of, as_arrays
        ),
    }


def places(data, path=()):
    """List the paths to everything in tables and lists."""
    found = [path] if path else []
    if isinstance(data, dict | list):
        for key, child in data.items() if isinstance(data, dict) else enumerate(data):
            found += places(child, (*path, key))
    return found


def changed(data, rng):
    """Put something else in a place, or remove what is there; return a copy."""
    data = copy.deepcopy(data)
    paths = places(data)
    # First how deep, as most places are at the bottom.
    depth = rng.choice(sorted({len(path) for path in paths}))
    *way, last = rng.choice([path for path in paths if len(path) == depth])
    inner = data
    for key in way:
        inner = inner[key]
    if rng.random() < 0.2:
        del inner[last]
    else:
        inner[last] = copy.deepcopy(rng.choice(VALUES))
    return data


def scratched(content, rng):
    """Cut off the end of some bytes, or change one or a few of them."""
    place = rng.randrange(len(content))
    if rng.random() < 0.3:
        return content[:place]
    new = rng.randbytes(rng.choice([1, 1, 4]))
    return content[:place] + new + content[place + len(new) :]


def read(kind, content):
    """Tell whether a file of this content is read; what it leads to is a ValueError at most."""
    kind.path.write_bytes(content)
    tracemalloc.start()
    try:
        kind.read(kind.path)
    except ValueError:
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MAX_BYTES
    return True


KINDS = ("config", "metrics", "evaluations", "lineage", "manifest", "signed manifest")
KINDS += ("signed group", "snapshots", "snapshot", "search", "loggers", "exported", "record")
KINDS += ("standing", "state")
# What a log lacks is told by a warning, and the rest is read.
FORGIVING = {"metrics", "evaluations", "lineage"}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_changed_at_random_is_read_or_refused(kinds, name):
    kind = kinds[name]
    original = kind.path.read_bytes()
    data, was_read = kind.decode(original), []
    try:
        assert read(kind, original)
        assert read(kind, kind.encode(data))
        for seed in range(NUM_STRUCTURES + NUM_BYTES):
            rng = random.Random(seed)
            if seed < NUM_STRUCTURES:
                content = kind.encode(changed(data, rng))
            else:
                content = scratched(original, rng)
            try:
                was_read.append(read(kind, content))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {content[:2000]!r}") from error
    finally:
        kind.path.write_bytes(original)
    assert False in was_read or name in FORGIVING
