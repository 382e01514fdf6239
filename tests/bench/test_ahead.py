"""Small workloads compiled for accelerators; `make accelerators` installs the compilers."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from fused_cases import ACTIONS, draw, run
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmarl_envs.backend import compiling_for
from jaxmarl_ppo.bench.hlo import read_program
from jaxmarl_ppo.bench.targets import check_target, make_target

SMALL = "--num-envs 64 --num-steps 16 --hidden-sizes 8 --num-epochs 2 --num-minibatches 2"


def is_there(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


for_gpu = pytest.mark.skipif(not is_there("jax_plugins.xla_cuda13"), reason="needs .[gpu-aot]")
for_tpu = pytest.mark.skipif(not is_there("libtpu"), reason="needs .[tpu-aot]")


def bench(options):
    """What `bench` says of a workload, compiled in a process of its own."""
    command = [sys.executable, "-m", "jaxmarl_ppo", "bench", "--json", *options.split()]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@for_gpu
@pytest.mark.parametrize(
    ("num_devices", "workload"),
    [
        (1, "--env tic_tac_toe"),
        (1, "--env shuttle_grid --network lstm --lstm-size 8"),
        (1, "--env shuttle_grid --network min_gru --gru-size 8"),
        (1, "--env crypto --mapping ensemble:2"),
        (2, "--env crypto --mapping per_agent"),
    ],
)
def test_a_gpu_does_not_wait_for_its_host(num_devices, workload):
    found = bench(f"--target h200 --num-devices {num_devices} {SMALL} {workload}")
    assert found["round_trips"] == {"env_step": 0, "iteration": 0}
    assert found["loops"] == []
    # The shuttles' own steps are half of theirs.
    assert 10 < found["kernels"]["env_step"] < (72 if "shuttle_grid" in workload else 45)
    (gradient,) = found["kernels"]["gradient"]
    # Of the LSTM with a pass of each of its loops over time.
    assert 10 < gradient < (60 if "lstm" in workload else 40)
    assert found["fits"]
    assert 0 < found["memory_mb"]["temporary"] < 15
    # Two epochs of two minibatches, each with an exchange.
    sums = found["collectives"].get("all-reduce", {"count": 0})["count"]
    assert sums >= 4 if num_devices == 2 else sums == 0


@for_gpu
def test_arithmetic_is_bounded_by_the_rate_of_the_precision():
    found = {
        precision: bench(f"--target h200 {SMALL} --env crypto --matmul-precision {precision}")
        for precision in ("float32", "tf32", "bfloat16")
    }
    fine, middle, coarse = (each["floor_ms"]["arithmetic"] for each in found.values())
    assert fine / middle == pytest.approx(495 / 67)
    assert middle / coarse == pytest.approx(2)


@for_gpu
@pytest.mark.parametrize(
    ("precision", "workload"),
    [
        ("float32", "--mapping ensemble:2"),
        ("tf32", "--mapping ensemble:2"),
        ("bfloat16", "--mapping ensemble:2"),
        ("tf32", "--mapping per_agent --env-kwargs continuous_actions=true"),
    ],
)
def test_small_networks_in_kernels_of_their_own(precision, workload):
    workload = f"--env crypto {workload} --matmul-precision {precision}"
    found, before = (
        bench(f"--target h200 {SMALL} {workload} {options}")["kernels"]
        for options in ("--fused-gradients --fused-acting", "")
    )
    assert found["gradient"][0] <= 3
    assert found["env_step"] < before["env_step"]


@for_gpu
def test_several_steps_to_an_iteration_need_fewer_kernels():
    alone, together = (
        bench(f"--target h200 {SMALL} --env crypto --rollout-unroll {steps}")["kernels"]
        for steps in (1, 4)
    )
    assert together["env_step"] < 0.75 * alone["env_step"]
    # All that is saved is within the loop, but for what is laid out before it.
    saved = 16 * (alone["env_step"] - together["env_step"])
    assert alone["iteration"] - together["iteration"] == pytest.approx(saved, abs=3)


@for_gpu
@pytest.mark.parametrize(("seed", "actions"), list(enumerate(ACTIONS)))
def test_a_fused_gradient_of_any_network_compiles(seed, actions):
    case = draw(seed, actions=actions, precision=("float32", "tf32", "bfloat16")[seed % 3])
    target = make_target("h200", 1)
    here = NamedSharding(Mesh(np.array(target.devices), ("devices",)), PartitionSpec())
    with compiling_for("gpu", target.devices):
        function, arrays = run(case, fused=True)
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), arrays
        )
        options = {"xla_gpu_autotune_level": 0}
        text = jax.jit(function).lower(*shapes).compile(compiler_options=options).as_text()
    assert "fused_gradient" in text
    assert read_program(text).kernels <= 4


@for_tpu
def test_a_program_for_a_tpu():
    found = bench(f"--target v5e:2x2 {SMALL} --env crypto --mapping per_agent")
    assert found["num_devices"] == 4
    assert found["kernels"]["env_step"] > 10
    assert found["round_trips"] == {"env_step": 0, "iteration": 0}
    assert found["collectives"]["all-reduce"]["count"] >= 4
    assert found["fits"]


@for_tpu
@pytest.mark.parametrize("mapping", ["per_agent", "ensemble:3"])
def test_a_tpu_pads_no_rows_of_few_numbers(mapping):
    workload = f"{SMALL} --num-envs 2048 --num-steps 64 --env crypto --mapping {mapping}"
    found = bench(f"--target v5e:2x2 --num-devices 1 {workload}")
    # Blocks take 22 MB. Where features are the fastest axis they are filled up to 128, and rows of
    # eight numbers alone take 201.
    assert 0 < found["memory_mb"]["temporary"] < 40


@pytest.mark.parametrize(
    ("name", "num_devices", "message"),
    [
        ("h300", None, "unknown target 'h300'; valid: a100, h100, h200, b200, or v5e"),
        ("h200:2x2", None, "a GPU has no topology; say --num-devices"),
        ("v5e", None, "lacks its topology"),
        ("v5e:two", None, "lacks its topology"),
        ("h200", 0, "num_devices must be at least 1, got 0"),
    ],
)
def test_targets_that_there_are_not(name, num_devices, message):
    with pytest.raises(ValueError, match=message):
        check_target(name, num_devices)


def test_a_target_needs_its_compiler(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install \./envs '\.\[gpu-aot\]'"):
        check_target("h200", None)
    with pytest.raises(ValueError, match=r"pip install \./envs '\.\[tpu-aot\]'"):
        check_target("v5e:2x2", None)
