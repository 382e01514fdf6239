"""The benchmark: what it counts, against sums by hand, and what it reports."""

import json

import jax
import pytest

from jaxmarl_ppo import bench, bench_cli
from jaxmarl_ppo.bench import Workload, matmul_shapes, measure
from jaxmarl_ppo.build import make_learner
from jaxmarl_ppo.cli import main

SMALL = Workload("tic_tac_toe", network_kwargs={"hidden_sizes": (8,)}, num_envs=2, num_steps=2)
TINY = Workload(policies="per_agent", num_envs=4, num_steps=3, num_epochs=2, num_minibatches=2)
# 64 x 64 and two heads on 8 inputs (bob, alice) and 4 actions; one trunk.
BOB_FLOPS = 2 * (8 * 64 + 64 * 64 + 64 * 4 + 64)
EVE_FLOPS = 2 * (4 * 64 + 64 * 64 + 64 * 4 + 64)


@pytest.fixture(scope="module")
def tiny():
    return measure(TINY, repeats=1, startup=False)


def test_products_of_a_network_are_all_counted():
    learner = make_learner(*TINY.make())
    eve, bob = (matmul_shapes(seats.bank) for seats in learner.players.banks)
    assert sorted(bob) == sorted([(1, 8, 64), (1, 64, 64), (1, 64, 4), (1, 64, 1)])
    assert sum(2 * m * k * n for m, k, n in eve) == EVE_FLOPS


def test_products_of_an_lstm_and_of_convolutions():
    lstm = make_learner(*Workload("tic_tac_toe", network="lstm").make()).players.banks[0].bank
    assert sorted(matmul_shapes(lstm))[-2:] == [(1, 64, 256), (1, 64, 256)]
    small = {"channels": (5, 7), "hidden_sizes": (6,)}
    workload = Workload("tic_tac_toe", {"planes": True}, "cnn", small)
    cnn = make_learner(*workload.make()).players.banks[0].bank
    # 9 cells, 3 x 3 neighbours of 3 planes and then of 5; then dense layers.
    assert matmul_shapes(cnn) == [(9, 27, 5), (9, 45, 7), (1, 63, 6), (1, 6, 9), (1, 6, 1)]


def test_arithmetic_of_a_step_is_that_of_its_decisions(tiny):
    # Everybody acts on each of 12 ticks; a rollout trains as many decisions as it makes.
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
        "--policies",
        "per_agent",
        "--num-envs",
        "8",
        "--num-steps",
        "4",
    ]
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["bench", *options, *extra])
        assert ended.value.code == 0
    workload = Workload(
        policies="per_agent", num_envs=8, num_steps=4, network_kwargs={"separate_critic": True}
    )
    assert asked == [(workload, 5, True)] * 2
    out = capsys.readouterr().out
    assert "of the limit" in out
    last = json.loads(out.splitlines()[-1])
    assert {"env_steps_per_s", "decisions_per_s", "env_only_steps_per_s", "import_s"} <= set(last)
    assert {"compile_s", "first_update_s", "fraction_of_limit", "peak_memory_mb"} <= set(last)


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
        ("--lstm-size 8", "lstm_size=8 has no effect with network 'mlp'"),
        ("--repeats 0", "repeats must be at least 1, got 0"),
        ("--policies ensemble:0", "ensemble"),
        ("--num-minibatches 0", "num_minibatches must be a whole number of at least 1"),
    ],
)
def test_bad_options_are_one_line(options, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["bench", *options.split()])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
