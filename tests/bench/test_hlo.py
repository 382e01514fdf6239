"""What is read out of a compiled program, against programs that are known."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxmarl_ppo.bench.ahead import count
from jaxmarl_ppo.bench.hlo import read_program
from jaxmarl_ppo.bench.targets import CHIPS

# As XLA prints a GPU's program, of which little is left: a scan of 7, in it a loop that is as long
# as its data say and a condition, an update in place, and an exchange between devices.
PROGRAM = Path(__file__).parents[1].joinpath("support", "step.hlo").read_text()
NOTED = 'backend_config={"known_trip_count":{"n":"7"}}'


@pytest.mark.parametrize("noted", [NOTED, "backend_config={}"])
def test_loops_kernels_and_bytes(noted):
    main = read_program(PROGRAM.replace("NOTED", noted))
    assert (main.kernels, main.branches) == (0, [])
    (loop,) = main.loops
    assert loop.trip_count == 7
    step = loop.body
    assert step.kernels == 1
    # In place: a row of 4 is written, and one read, and where it goes.
    assert step.moved == 16 + 16 + 4
    assert step.collectives == {"all-reduce": (1, 16)}
    assert [way.kernels for way in step.branches[0]] == [1, 0]
    (inner,) = step.loops
    assert inner.trip_count is None
    assert inner.body.kernels == 2
    assert inner.body.moved == (16 + 16) + (16 + 16)


def test_what_an_iteration_launches():
    main = read_program(PROGRAM.replace("NOTED", NOTED))
    found = count(main, CHIPS["h200"])
    # A step: what is in place, the longer way of the condition, and one pass of the inner loop.
    assert found["kernels"] == {"env_step": 1 + 1 + 2, "gradient": [2], "iteration": 7 * (2 + 2)}
    # For the condition, before the pass of the inner loop, and behind it.
    assert found["round_trips"] == {"env_step": 1 + 2, "iteration": 7 * (1 + 2)}
    assert found["collectives"] == {"all-reduce": {"count": 7, "bytes": 7 * 16}}
    assert [loop["kernels"] for loop in found["loops"]] == [2]
    assert count(main, CHIPS["v5e"])["round_trips"] == {"env_step": 0, "iteration": 0}


def test_a_gradient_without_a_loop_is_known_by_its_name():
    text = PROGRAM.replace("NOTED", NOTED).replace("gradients/while", "while")
    scope = 'metadata={op_name="jit(step)/env_step/while/body/policy_group0/gradients/add"}'
    text = text.replace("calls=%double", f"calls=%double, {scope}")
    # The fusion of the inner loop, and that of the longer way of the condition.
    assert count(read_program(text), CHIPS["h200"])["kernels"]["gradient"] == [2]


def test_a_program_of_this_machine_is_read():
    def run(x, n):
        x, sums = jax.lax.scan(lambda x, _: (jnp.sin(x) @ x, x.sum()), x, length=11)
        return jax.lax.fori_loop(0, n, lambda _, x: jnp.cos(x) @ x, x), sums

    text = jax.jit(run).lower(jnp.ones((8, 8)), 3).compile().as_text()
    main = read_program(text)
    assert [loop.trip_count for loop in main.loops] == [11, None]
    assert all(loop.body.kernels for loop in main.loops)
