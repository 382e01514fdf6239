"""Pools of which only a part lies on the device: files, exchanges, results, going on."""

import dataclasses
import itertools
import json
import re
import shutil

import jax
import numpy as np
import pytest
from lamps import without_clock

import jaxmarl_envs
from jaxmarl_ppo import Policy
from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.policies.snapshot_files import find_snapshot, snapshot_path
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of, newest_sound
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training.snapshot_archive import SnapshotArchive
from jaxmarl_ppo.training.trainer import Trainer

STEPS, ITERATIONS = 8 * 16, 24
POOL = Snapshots("main", size=None, on_device=3, add_every=4, exchange_every=1)
SMALL = PolicySpec(network=MLP(hidden_sizes=(4,)))


def make_trainer(run_dir, pool=POOL, iterations=ITERATIONS, spec=SMALL, keep=ITERATIONS, **kwargs):
    config = TrainConfig(
        total_env_steps=iterations * STEPS,
        num_envs=8,
        num_steps=16,
        num_devices=1,
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=2, learning_rate=1e-2),
        log_interval=1,
        mapping=Matchups(({"x": "main", "o": "main"}, {"x": "main", "o": "past"})),
        default_policy=spec,
        policies={"past": pool},
        checkpoints=CheckpointConfig(every_minutes=None, every_env_steps=STEPS, keep=keep),
    )
    made = jaxmarl_envs.make("tic_tac_toe")
    return Trainer(*made, config, run_dir, progress=False, **kwargs)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a checkpoint of every iteration."""
    return make_trainer(tmp_path_factory.mktemp("league") / "run").train()


@pytest.fixture(scope="module")
def states(run):
    """The arrays of every checkpoint and what it says of the archive, the oldest first."""
    folders = checkpoints_of(run.run_dir)[::-1]
    return [
        (read_arrays(folder), json.loads((folder / "snapshots.json").read_text())["past"])
        for folder in folders
    ]


def pool_of(arrays, name):
    return arrays[f"state/population/league/pools/0/{name}"]


def stacks(arrays):
    return {k: x for k, x in arrays.items() if k.startswith("state/population/policy_groups/0")}


def test_every_snapshot_has_a_file_and_comes_back(run, states):
    taken = list(range(0, ITERATIONS + 1, 4))
    assert [one["iteration"] for one in states[-1][1]] == taken
    assert all(snapshot_path(run.run_dir, "past", k).is_file() for k in taken)
    came_back = set()
    for (before, _), (after, _) in itertools.pairwise(states):
        new = set(pool_of(after, "added_at")) - set(pool_of(before, "added_at"))
        came_back |= new - {pool_of(after, "last_added").item()}
    assert came_back >= set(taken[:3])
    described = run.history[-1]["league"]["pools"]["past"]
    assert described["snapshots"] == len(taken)
    assert sorted(described["added_at"]) != taken


def test_a_place_holds_what_was_learnt_when_its_snapshot_was_taken(states):
    """To the bit, however often it went and came."""
    learnt = {}
    for iteration, (arrays, _) in enumerate(states, 1):
        learnt[iteration] = {name: x[0] for name, x in stacks(arrays).items()}
        for place, taken in enumerate(pool_of(arrays, "added_at")):
            if taken:  # there is no checkpoint of the beginning
                for name, x in stacks(arrays).items():
                    np.testing.assert_array_equal(x[1 + place], learnt[int(taken)][name], name)


def test_nobody_who_plays_is_exchanged(states):
    exchanged = 0
    for (before, _), (after, _) in itertools.pairwise(states):
        new = pool_of(after, "added_at") != pool_of(before, "added_at")
        alive = after["state/per_env/rollout/obs/alive"]
        playing = after["state/per_env/rollout/player"][alive]
        for place in np.nonzero(new)[0]:
            assert 1 + place not in playing
            exchanged += 1
    assert exchanged > 8


def test_results_stay_with_a_snapshot(states):
    """While it is away they are what they were, and they are there when it comes back."""
    came_back = 0
    for (before, archived), (after, then) in itertools.pairwise(states):
        was, now = pool_of(before, "added_at"), pool_of(after, "added_at")
        known = {one["iteration"]: np.array(one["results"]) for one in then}
        for one in archived:
            if one["iteration"] not in was and one["iteration"] not in now:
                np.testing.assert_array_equal(known[one["iteration"]], one["results"])
        for place in np.nonzero(was != now)[0]:
            if now[place] in (one["iteration"] for one in archived):
                tables = [
                    after[f"state/population/league/{x}"] for x in ("score", "payoff", "games")
                ]
                found = np.array([[t[1 + place, :1], t[:1, 1 + place]] for t in tables])
                np.testing.assert_array_equal(found, known[now[place]])
                assert not tables[2][1 + place, 1:].any()  # against places that change hands
                came_back += found[2].sum() > 0
    assert came_back > 3


@pytest.mark.parametrize("iteration", [2, 13])
def test_a_killed_run_goes_on_to_the_bit(run, states, tmp_path, iteration):
    torn = tmp_path / "torn"
    shutil.copytree(run.run_dir, torn)
    for folder in checkpoints_of(torn):
        if int(folder.name) > iteration:
            shutil.rmtree(folder)
    shutil.rmtree(torn / "params")
    found = Trainer.resume(torn, progress=False).train()
    first, second = to_arrays(found.state), to_arrays(run.state)
    for name in second:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert without_clock(found.history) == without_clock(run.history)
    archived = json.loads((checkpoints_of(torn)[0] / "snapshots.json").read_text())
    assert archived["past"] == states[-1][1]


def test_a_checkpoint_without_its_snapshots_is_passed_over(run, tmp_path):
    torn = tmp_path / "torn"
    shutil.copytree(run.run_dir, torn)
    path = snapshot_path(torn, "past", 20)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.warns(RuntimeWarning, match=r"000000020.msgpack, on which .*differs from its chec"):
        folder, _ = newest_sound(torn)
    assert int(folder.name) == 19
    path.unlink()
    with pytest.warns(RuntimeWarning, match="on which .* stands, is missing"):
        newest_sound(torn)


@pytest.mark.rare
def test_a_bounded_pool_forgets_the_oldest(tmp_path):
    """Their files too, once no checkpoint stands on them any more."""
    pool = dataclasses.replace(POOL, size=4, on_device=2, add_every=2)
    result = make_trainer(tmp_path / "run", pool, iterations=20, keep=1).train()
    folder = snapshot_path(result.run_dir, "past", 0).parent
    kept = {int(path.stem) for path in folder.iterdir()}
    assert kept == {14, 16, 18, 20}
    assert result.history[-1]["league"]["pools"]["past"]["snapshots"] == 4
    newest_sound(result.run_dir)


@pytest.mark.rare
def test_a_snapshot_that_is_lost_does_not_end_a_run(tmp_path):
    def lose(entry):
        if entry["iteration"] == 12:
            shutil.rmtree(tmp_path / "run" / "snapshots")

    trainer = make_trainer(tmp_path / "run", callbacks=[lose], keep=1)
    with pytest.warns(RuntimeWarning) as told:  # a checkpoint may be in the writing meanwhile
        result = trainer.train()
    lost = "does not exist.*training continues without this snapshot"
    assert any(re.search(lost, str(warning.message)) for warning in told)
    assert result.env_steps == ITERATIONS * STEPS
    # Those that are lost for good hold up no checkpoint.
    assert newest_sound(result.run_dir)[1].iteration == ITERATIONS


def test_a_snapshot_is_taken_out_by_its_name(run, states, tmp_path):
    """Also one that does not lie on the device at the end, and to start another run from."""
    away = next(k for k in range(4, 20, 4) if k not in pool_of(states[-1][0], "added_at"))
    name = f"past@it{away}"
    found = Policy.load(run.run_dir, name)
    then = Policy.load(run.run_dir / "checkpoints" / f"{away:09}", "main")
    assert found.signature.policy == name
    jax.tree.map(np.testing.assert_array_equal, found.params, then.params)
    spec = dataclasses.replace(SMALL, load=f"{run.run_dir}:{name}")
    (loaded,) = make_trainer(tmp_path / "next", spec=spec).learner.loaded
    first = jax.tree.map(lambda x: x[0], then.params)
    jax.tree.map(np.testing.assert_array_equal, loaded.policy, first)
    with pytest.raises(ValueError, match="past@it5"):
        Policy.load(run.run_dir, "past@it5")


def test_the_log_and_cross_play_name_who_played(run):
    league = run.history[-1]["league"]
    assert set(league["players"]) > {"main"}
    assert all(name == "main" or name.startswith("past@it") for name in league["players"])
    tags = [name for name, _ in scalars(run.history[-1])]
    assert "league/elo/main" in tags
    assert "league/pools/past/win_rate" in tags
    assert not any("@it" in tag for tag in tags)
    hardest = league["pools"]["past"]["hardest"]
    assert [one["win_rate"] for one in hardest] == sorted(
        (one["win_rate"] for one in hardest), reverse=True
    )
    loaded = load_run(run.run_dir)
    report = cross_play(loaded.learner, loaded.population, episodes=2, baselines=False)
    assert sum("past@it" in name for name in report["columns"]["players"]) == 3


def test_the_hard_ones_are_drawn_more_often(run, tmp_path):
    """By the exponent of their win rates; evenly where `draw` says so."""
    players = load_run(run.run_dir).learner.players
    results = np.zeros((4, 3, 2, 1))
    results[:, 2] = 98.0
    results[:, 0, 0, 0] = [9.0, 19.0, 39.0, 79.0]  # win rates of 0.1, 0.2, 0.4 and 0.8
    recorded = [
        {"iteration": 4 * k, "sha256": "", "results": results[k].tolist()} for k in range(4)
    ]
    resident = np.array([4])
    for changes, weights in (
        ({}, [1, 0, 1, 1]),
        ({"draw": "prioritised"}, [1, 0, 4, 8]),
        ({"draw": "prioritised", "priority": 2.0}, [1, 0, 16, 64]),
    ):
        spec = dataclasses.replace(POOL, **changes)
        pools = (dataclasses.replace(players.pools[0], spec=spec),)
        changed = dataclasses.replace(players, pools=pools)
        archive = SnapshotArchive(changed, tmp_path, {"past": recorded})
        drawn = [archive._draw("past", resident, [seed, 1, 0]) for seed in range(3000)]
        shares = np.bincount(np.array(drawn) // 4, minlength=4) / 3000
        np.testing.assert_allclose(shares, np.array(weights) / sum(weights), atol=0.04)


@pytest.mark.parametrize("pool", ["..", ".", "a/b", "../../x", "x" * 300, "\x00"])
def test_files_of_snapshots_lie_in_a_folder_of_their_pool(tmp_path, pool):
    path = snapshot_path(tmp_path, pool, 7)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert path.resolve().parent.parent == (tmp_path / "snapshots").resolve()
    assert find_snapshot(tmp_path, f"{pool}@it7") == path
