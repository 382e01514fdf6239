"""The benchmark: what it counts, against sums by hand, and what it reports."""

import importlib
import json
from dataclasses import replace
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import status_of
from hybrid_env_deploy import Hybrid
from plan_envs import Plan, bring_in

from jaxmarl_ppo.bench import peers as bench_peers
from jaxmarl_ppo.bench import training as bench
from jaxmarl_ppo.bench.flops import matmul_shapes
from jaxmarl_ppo.bench.peers import PEERS, Peer, compare
from jaxmarl_ppo.bench.scaling import FLOP, STEP, SWEEPS, WorkloadSeries, growth, scaling
from jaxmarl_ppo.bench.stepping import Share, draw_legal, play_steps, random_play
from jaxmarl_ppo.bench.timing import time_in_turn
from jaxmarl_ppo.bench.training import measure
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.cli import bench as bench_cli
from jaxmarl_ppo.learner.build import make_learner

SMALL = Workload("tic_tac_toe", network_kwargs={"hidden_sizes": (8,)}, num_envs=2, num_steps=2)
TINY = Workload(mapping="per_agent", num_envs=4, num_steps=3, num_epochs=2, num_minibatches=2)
# 64 x 64 and two heads on 8 inputs (bob, alice) and 4 actions; one trunk.
BOB_FLOPS = 2 * (8 * 64 + 64 * 64 + 64 * 4 + 64)
EVE_FLOPS = 2 * (4 * 64 + 64 * 64 + 64 * 4 + 64)


@pytest.fixture(scope="module")
def tiny():
    return measure(TINY, repeats=1, startup=False)


def test_products_of_a_network_are_all_counted():
    (group,) = make_learner(*TINY.make()).players.policy_groups
    products = [(1, 8, 64), (1, 64, 64), (1, 64, 4), (1, 64, 1)]
    assert sorted(matmul_shapes(group.network)) == sorted(products)


def test_products_of_an_lstm_and_of_convolutions():
    lstm = (
        make_learner(*Workload("tic_tac_toe", network="lstm").make())
        .players.policy_groups[0]
        .network
    )
    assert sorted(matmul_shapes(lstm))[-2:] == [(1, 64, 256), (1, 64, 256)]
    small = {"channels": (5, 7), "hidden_sizes": (6,)}
    workload = Workload("tic_tac_toe", {"planes": True}, "cnn", small)
    cnn = make_learner(*workload.make()).players.policy_groups[0].network
    # 9 cells, 3 x 3 neighbours of 3 planes and then of 5; then dense layers.
    assert matmul_shapes(cnn) == [(9, 27, 5), (9, 45, 7), (1, 63, 6), (1, 6, 9), (1, 6, 1)]


def test_layers_in_front_of_the_heads_are_those_that_the_options_say():
    workload = bench_cli.to_workload(
        "tic_tac_toe", {"default_policy": {"network": {"head_sizes": (5,)}}}
    )
    (group,) = make_learner(*workload.make()).players.policy_groups
    products = matmul_shapes(group.network)
    assert {(1, 64, 5), (1, 5, 9), (1, 5, 1)} <= set(products)
    assert (1, 64, 9) not in products


@pytest.mark.rare
def test_arithmetic_of_a_step_is_that_of_its_decisions(tiny):
    # Everybody acts at each of 12 steps; a rollout trains as many decisions as it makes. That eve's
    # inputs are padded to the width of the others is no work.
    forward = 12 * (2 * BOB_FLOPS + EVE_FLOPS)
    assert tiny["gflop_per_step"] == pytest.approx(forward * (1 + 3 * 2) / 1e9)


def test_a_result_adds_up(tiny):
    assert sum(tiny["time_shares"].values()) == pytest.approx(1.0)
    assert tiny["decisions_per_s"] == pytest.approx(3 * tiny["env_steps_per_s"])
    assert 0 < tiny["fraction_of_limit"] < 1
    assert tiny["hardware"]["jax"] == jax.__version__
    json.dumps(tiny)


def test_the_table_and_the_json_object(tiny, monkeypatch, capsys):
    asked = []
    started = {"import_s": 1.0, "trace_s": 1.0, "compile_s": 3.0, "compile_warm_s": 2.0}
    started |= {"first_update_s": 5.0, "first_update_warm_s": 4.0, "peak_memory_mb": 300.0}

    def measured(workload, repeats, startup):
        asked.append((workload, repeats, startup))
        return tiny | started

    monkeypatch.setattr(bench_cli, "measure", measured)
    options = [
        "--env",
        "crypto",
        "--network",
        "mlp",
        "--mapping",
        "per_agent",
        "--num-envs",
        "8",
        "--num-steps",
        "4",
    ]
    for extra in ([], ["--json"]):
        assert status_of("bench", *options, *extra) == 0
    workload = Workload(
        mapping="per_agent", num_envs=8, num_steps=4, network_kwargs={"separate_critic": True}
    )
    assert asked == [(workload, 5, True)] * 2
    out = capsys.readouterr().out
    assert "of the limit" in out
    last = json.loads(out.splitlines()[-1])
    assert {"env_steps_per_s", "decisions_per_s", "env_only_steps_per_s", "import_s"} <= set(last)
    assert {"compile_s", "first_update_s", "fraction_of_limit", "peak_memory_mb"} <= set(last)


@pytest.mark.rare
def test_a_fresh_process_is_timed():
    found = bench.measure_startup(SMALL)
    assert 0 < found["import_s"] < found["first_update_s"]
    assert 0 < found["trace_s"] < found["compile_warm_s"] < found["compile_s"]
    assert found["compile_s"] < found["first_update_s"]
    assert found["peak_memory_mb"] > 50


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--env chess", "unknown environment 'chess'"),
        ("--lstm-size 8", "(network 'mlp') has no 'lstm_size', which is of lstm"),
        (
            "--network lstm --gru-size 8",
            "(network 'lstm') has no 'gru_size', which is of gru, min_gru",
        ),
        ("--repeats 0", "repeats must be at least 1, got 0"),
        ("--mapping ensemble:0", "ensemble"),
        ("--num-minibatches 0", "num_minibatches must be a whole number of at least 1"),
        ("--compare chess", "cannot compare with 'chess'; valid packages: pgx, jaxmarl, gymnax"),
        ("--compare", "--compare needs a value"),
        ("--compare gymnax --repeats 0", "repeats must be at least 1, got 0"),
        ("--compare gymnax --num-envs 0", "num_envs must be a whole number of at least 1"),
        ("--compare gymnax --no-startup", "--startup has no effect with --compare"),
        ("--compare gymnax --scaling x.png", "are different things; give one of them"),
        ("--scaling x.png --network lstm", "--network has no effect with --scaling"),
        ("--scaling x.png --num-envs 8 --env basic", "--env, --num-envs have no effect"),
        ("--scaling x.pdf", "the picture's name must end in .png"),
        ("--scaling nowhere/x.png", "the folder 'nowhere' does not exist"),
    ],
)
def test_bad_options_are_one_line(options, message, capsys):
    assert status_of("bench", *options.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_calls_that_are_compared_take_turns():
    called = []
    seconds = time_in_turn([lambda: called.append("a"), lambda: called.append("b")], 2, warm_up=1)
    assert called == ["a", "b"] * 3
    assert [len(own) for own in seconds] == [2, 2]


@pytest.mark.parametrize("share", [Share(1, 4), Share.of(4)])
def test_a_call_plays_the_steps_that_it_should(share):
    def begin(keys):
        return jnp.zeros(len(keys), jnp.int32)

    def step(count, key):
        return count + 1, jnp.where(count < 7, 1.0, 0.0).sum()

    call = play_steps(begin, step, share, 5)
    for steps, paid in [(10, 2.0), (15, 0.0)]:  # 5 have been played before
        count, rewards = call()
        assert count.tolist() == [steps] * 4
        assert float(rewards.sum()) == 4 * paid


def test_environments_are_spread_evenly(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    assert [Share.of(n) for n in (8, 6, 3)] == [(4, 2), (3, 2), (3, 1)]


def test_legal_actions_are_drawn_evenly():
    mask = np.array([[False, True, False, True], [True] * 4, [False, False, True, False]])
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: draw_legal(key, jnp.asarray(mask)))(keys))
    shares = np.array([np.bincount(row, minlength=4) for row in drawn.T]) / len(keys)
    assert (shares[~mask] == 0).all()
    np.testing.assert_allclose(shares, mask / mask.sum(1, keepdims=True), atol=0.03)


def test_every_kind_of_action_is_played_legally():
    """An illegal option, or a number beyond its bounds, would cost 100."""
    env = Hybrid()
    rewards = []
    for num_steps in (5, 10):
        _, reward = random_play(env, None, Share(1, 6), num_steps)()
        rewards.append(float(reward.sum()))
    assert rewards[0] > 6 * 5 * 2
    assert rewards[1] > 6 * 10 * 2


@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
def test_environments_in_plain_python_play_no_step_twice():
    played = []

    class Noted(Plan):
        length = 100

        def act(self, actions):
            played.append(actions)

    env = bring_in("gymnasium", Noted)
    play = random_play(env, (), Share(1, 2), 5)
    played.clear()
    for _ in range(3):
        play()
    assert len(played) == 2 * 5 * 3


@pytest.mark.rare
def test_both_sides_of_gymnax_play():
    peer = PEERS["gymnax"]
    theirs = peer.play(importlib.import_module("gymnax"), peer.game, Share.of(2), 3)
    ours = bench_peers._play_ours(peer.env, peer.env_kwargs, Share.of(2), 3)
    # Every step of the pole earns 1.
    assert float(theirs()[1].sum()) == float(ours()[1].sum()) == 6.0


@pytest.fixture
def fake_peer(monkeypatch):
    """A package `fake` with a game that takes no time, and no environments without a like."""
    played = []

    def play(module, game, share, num_steps):
        played.append((module.__name__, game, share.num_devices * share.num_envs, num_steps))
        return lambda: played.append("theirs")

    imported = importlib.import_module
    monkeypatch.setattr(
        bench_peers.importlib,
        "import_module",
        lambda name: ModuleType(name) if name == "fake" else imported(name),
    )
    monkeypatch.setattr(bench_peers, "version", {"fake": "1.2", "gymnax": "3.4"}.__getitem__)
    monkeypatch.setattr(bench_peers, "ALONE", ())
    monkeypatch.setitem(PEERS, "fake", Peer("noughts", play, "tic_tac_toe"))
    return played


def test_ours_against_a_peer_gives_a_ratio(fake_peer, monkeypatch):
    seconds = [[1.0, 2.0, 4.0], [2.0, 6.0, 4.0]]

    def timed(calls, repeats):
        ours, theirs = calls
        assert ours()[0][0].features.shape[0] == 4  # environments
        assert theirs() is None
        assert repeats == 3
        return seconds

    monkeypatch.setattr(bench_peers, "time_in_turn", timed)
    result = compare(["fake"], num_envs=4, num_steps=3, repeats=3)
    assert fake_peer == [("fake", "noughts", 4, 3), "theirs"]
    (pair,) = result["pairs"]
    assert pair["ours_per_s"] == {"median": 6.0, "min": 3.0, "max": 12.0}
    assert pair["theirs_per_s"] == {"median": 3.0, "min": 2.0, "max": 6.0}
    assert (pair["ratio"], pair["ratio_range"]) == (2.0, {"min": 1.0, "max": 3.0})
    assert result["versions"] == {"fake": "1.2"}


def test_a_comparison_is_timed_for_real(fake_peer):
    result = compare(["fake"], num_envs=2, num_steps=3, repeats=2)
    assert fake_peer.count("theirs") == 3
    assert 0 < result["pairs"][0]["ratio"] < 1  # what does nothing is faster


def test_a_missing_package_is_said_before_anything_is_measured(fake_peer, monkeypatch):
    def missing(name):
        if name in ("pgx", "jaxmarl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return ModuleType(name)

    monkeypatch.setattr(bench_peers.importlib, "import_module", missing)
    for name in ("pgx", "jaxmarl"):
        message = rf"'{name}' is not installed: pip install '\./envs\[{name}\]'"
        with pytest.raises(ValueError, match=message):
            compare(["fake", name], num_envs=2, num_steps=3, repeats=1)
    assert fake_peer == []


def test_a_package_that_lacks_something_itself_is_not_called_missing(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'svgwrite'", name="svgwrite")

    monkeypatch.setattr(bench_peers.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="svgwrite"):
        compare(["pgx"])


@pytest.mark.parametrize(
    ("options", "num_envs"), [("--compare pgx jaxmarl", 8192), ("--compare pgx --num-envs 64", 64)]
)
def test_the_table_and_the_json_object_of_a_comparison(options, num_envs, monkeypatch, capsys):
    asked = []
    rates = {"median": 3e6, "min": 2e6, "max": 4e6}
    pair = {"peer": "pgx", "game": "tic_tac_toe", "env": "tic_tac_toe", "ours_per_s": rates}
    pair |= {"theirs_per_s": rates, "ratio": 1.25, "ratio_range": {"min": 1.0, "max": 1.5}}

    def compared(*given):
        asked.append(given)
        return {
            "num_envs": num_envs,
            "num_steps": 128,
            "pairs": [pair],
            "alone": [{"env": "shuttle_grid", "ours_per_s": rates}],
            "versions": {"pgx": "2.6.0"},
        }

    monkeypatch.setattr(bench_cli, "compare", compared)
    for extra in ([], ["--json"]):
        assert bench_cli.main([*options.split(), *extra]) == 0
    names = tuple(name for name in ("pgx", "jaxmarl") if name in options)
    assert asked == [(names, num_envs, 128, 5)] * 2
    out = capsys.readouterr().out
    table = "".join(out.splitlines()[:-1])
    assert "3,000,000" in table
    assert "1.25" in table
    assert "shuttle_grid" in table
    last = json.loads(out.splitlines()[-1])
    assert last["hardware"]["jax"] == jax.__version__
    assert last["pairs"][0]["ratio"] == 1.25


def test_growth_is_the_dearest_over_the_cheapest():
    points = [{STEP: cost, FLOP: 2.0} for cost in (3.0, 2.0, 5.0, 4.0)]
    assert growth(points, STEP) == 2.5
    assert growth(points, FLOP) == 1.0


def test_a_sweep_changes_one_thing_and_keeps_the_decisions():
    by_name = {sweep.name: sweep for sweep in SWEEPS}
    envs = [by_name["envs"].workload(n) for n in by_name["envs"].values]
    assert {work.num_envs * work.num_steps for work in envs} == {32768}
    agents = [by_name["agents_all_act"].workload(n) for n in by_name["agents_all_act"].values]
    assert {work.env_kwargs["num_agents"] * work.num_steps for work in agents} == {1024}
    for name in ("agents_one_acts", "policies", "width"):
        swept = [by_name[name].workload(n) for n in by_name[name].values]
        assert len({(work.num_envs, work.num_steps) for work in swept}) == 1


@pytest.mark.rare
def test_a_sweep_is_measured_and_drawn(tmp_path, monkeypatch, capsys):
    alone = replace(SMALL, env="basic", env_kwargs={"num_agents": 1}, num_minibatches=1)
    sweep = WorkloadSeries(
        "tiny", "steps", (1, 3), lambda n: replace(alone, num_steps=n), per_flop=True
    )
    result = scaling([sweep], repeats=1)
    (found,) = result["sweeps"]
    # The only agent acts at every step, in each of two environments.
    assert [point["decisions"] for point in found["points"]] == [2.0, 6.0]
    for point in found["points"]:
        seconds = point[STEP] * point["decisions"] / 1e9
        assert point[FLOP] == pytest.approx(1e3 * seconds / point["gflop_per_step"])
    assert found["growth"] == growth(found["points"], STEP) > 1
    monkeypatch.setattr(bench_cli, "scaling", lambda repeats: result)
    path = tmp_path / "out.png"
    for extra in ([], ["--json"]):
        assert bench_cli.main(["--scaling", str(path), *extra]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert f"{found['growth']:.2f}" in out
    assert json.loads(out.splitlines()[-1])["sweeps"] == json.loads(json.dumps(result["sweeps"]))
