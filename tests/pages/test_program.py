"""What the script of a page computes beside what JAX computes."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("selenium")
from jax import lax

from jaxmarl_envs.threefry import fold_in, split, unrolled
from jaxmarl_ppo.deploy.portable import portable_array, portable_program
from jaxmarl_ppo.pages.page import read_static

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32) * 2


def ints(*shape, low=-9, high=9):
    return RNG.integers(low, high, shape).astype(np.int32)


def words(*shape):
    return RNG.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32)


def bools(*shape):
    return RNG.random(shape) < 0.5


KEYS = jax.random.split(jax.random.key(3), 4)
CASES = {
    "floats": (
        lambda x, y: [x + y, x - y, x * y, x / y, jnp.maximum(x, y), -x, abs(x), jnp.sign(x)],
        floats(3, 4),
        floats(3, 4),
    ),
    "curves": (
        lambda x: [
            jnp.exp(x),
            jnp.tanh(x),
            jax.nn.sigmoid(x),
            jnp.log(abs(x)),
            jnp.sqrt(abs(x)),
            lax.rsqrt(abs(x)),
            jnp.log1p(abs(x)),
            jnp.expm1(x),
            jnp.sin(x),
            jnp.cos(x),
            jnp.round(x),
            jnp.floor(x),
            x**3,
            jax.nn.gelu(x),
            jax.nn.silu(x),
            jax.nn.softplus(x),
            jax.nn.softmax(x),
        ],
        floats(5, 7),
    ),
    "whole numbers": (
        lambda x, y: [x + y, x * y, x // y, x % y, lax.div(x, y), lax.rem(x, y), x**2, -x],
        ints(40, low=-(2**31), high=2**31 - 1),
        ints(40, low=1, high=100),
    ),
    "words": (
        lambda x, s: [
            x + x,
            x * x,
            x - s,
            x << s,
            x >> s,
            ~x,
            x ^ s,
            lax.population_count(x),
            lax.clz(x),
            x < s,
            x.astype(jnp.int32),
            lax.bitcast_convert_type(x, jnp.int32) >> 3,
        ],
        words(50),
        words(50) % 40,
    ),
    "truths": (
        lambda a, b: [a & b, a | b, a ^ b, ~a, a.any(0), a.all(1), a.sum(), a.astype(jnp.float32)],
        bools(4, 5),
        bools(4, 5),
    ),
    "kinds": (
        lambda x: [
            x.astype(jnp.int32),
            x.astype(jnp.uint32),
            x.astype(bool),
            x.astype(jnp.int8).astype(jnp.float32),
            lax.bitcast_convert_type(x, jnp.uint32),
        ],
        abs(floats(20)) * 30,
    ),
    "shapes": (
        lambda x: [
            x.T,
            x.reshape(4, 6),
            x[:, None],
            x[1:, ::2],
            x[::-1],
            jnp.pad(x, ((1, 2), (0, 3)), constant_values=7.0),
            jnp.concatenate([x, x + 1], 1),
            jnp.stack([x, x], 1),
            jnp.broadcast_to(x[:, :1, None], (3, 8, 2)),
            jnp.tile(x, (2, 1)),
            *jnp.split(x, [3, 5], 1),
            lax.reshape(x, (4, 6), (1, 0)),
        ],
        floats(3, 8),
    ),
    "reductions": (
        lambda x: [
            x.sum(0),
            x.max(1),
            x.min(),
            x.mean((0, 2)),
            x.argmax(1),
            x.argmin(2),
            x.prod(2),
            jnp.cumsum(x, 1),
            lax.cummax(x, 2),
            lax.cumsum(x, 0, reverse=True),
        ],
        floats(3, 4, 5),
    ),
    "products": (
        lambda x, y, z: [x @ y, jnp.einsum("abc,acd->abd", z, z), jnp.einsum("ab,cb->ca", x, x)],
        floats(3, 4),
        floats(4, 6),
        floats(2, 5, 5),
    ),
    "convolution": (
        lambda x, k: [
            lax.conv_general_dilated(
                x, k, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            for strides, padding in (((1, 1), "SAME"), ((2, 1), "VALID"))
        ],
        floats(2, 5, 6, 3),
        floats(3, 2, 3, 4),
    ),
    "looking up": (
        lambda x, i: [
            x[i],
            x[:, i % 3],
            x[i, i % 4],
            x.at[i].get(mode="fill"),
            x.at[i].get(mode="clip"),
            jnp.take_along_axis(x, i[:, None] % 4, 1),
            jax.vmap(lambda row, k: row[k])(x, i[:6]),
            x[i.at[0].get()],
        ],
        floats(6, 4),
        ints(6, low=-3, high=9),
    ),
    "writing": (
        lambda x, i, y: [
            x.at[i].set(y),
            x.at[i % 5].add(y),
            x.at[i[0] % 3].set(0.0),
            x.at[1:3].set(5.0),
            jax.vmap(lambda row, k: row.at[k].set(9.0))(x, i),
            lax.dynamic_update_slice(x, y[:2, :2], (4, 1)),
            lax.dynamic_slice(x, (i[1], 1), (2, 2)),
        ],
        floats(5, 4),
        np.array([3, 7, -2, 0, 4], np.int32),
        floats(5, 4),
    ),
    "choices": (
        lambda c, x, y: [
            jnp.where(c, x, y),
            jnp.where(c[0, 0], x, y),
            jnp.clip(x, -1.0, 1.0),
            jnp.clip(x, y - 1.0, y),
            lax.select_n(c.astype(jnp.int32), x, y),
        ],
        bools(3, 4),
        floats(3, 4),
        floats(3, 4),
    ),
    "sorting": (
        lambda x, k: [
            jnp.sort(x, 1),
            jnp.argsort(x, 0),
            *lax.sort((k, x), num_keys=1, dimension=1),
            jnp.searchsorted(jnp.sort(x[0]), x[1]),
        ],
        floats(4, 6),
        ints(4, 6, low=0, high=3),
    ),
    "loops": (
        lambda x, n: [
            lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x + 1), (0, x))[1],
            *lax.scan(lambda c, y: (c + y, c * y), x[0], x),
            lax.scan(lambda c, y: (c + y, c * y), x[0], x, reverse=True)[1],
            lax.cond(n > 3, lambda: x, lambda: -x),
            lax.switch(n, [lambda: x, lambda: x + 1, lambda: x + 2]),
            lax.fori_loop(0, n, lambda i, c: c + i * x, x),
        ],
        floats(3, 4),
        np.int32(5),
    ),
    "random numbers": (
        lambda key, keys: [
            jax.random.bits(key, (3, 5)),
            jax.random.uniform(unrolled(key), (4,)),
            jax.random.key_data(split(key, 3)),
            jax.random.key_data(jax.random.fold_in(key, 77)),
            jax.random.key_data(fold_in(key, 78)),
            jax.vmap(lambda k: jax.random.uniform(k, (3,)))(keys),
            jax.random.key_data(jax.vmap(jax.random.split)(keys)),
            jax.random.categorical(key, jnp.zeros((6, 4))),
            jax.random.randint(key, (7,), 0, 10),
            jax.random.permutation(key, 8),
            jax.random.bernoulli(key, 0.3, (9,)),
        ],
        jax.random.key(11),
        KEYS,
    ),
}


def compute(driver, fn, *examples):
    """Compute a function in the browser, on flat arrays."""
    program = portable_program(fn, *examples)
    inputs = [portable_array(x) for x in jax.tree.leaves(examples)]
    script = (
        f"{read_static('program.js')}\n"
        "const program = JSON.parse(arguments[0]);"
        "return readProgram(program)(JSON.parse(arguments[1]).map(readArray))"
        ".map((y) => [y.kind, y.shape, Array.from(y.data, (x) =>"
        "  Number.isFinite(x) ? x : String(x))]);"
    )
    return driver.execute_script(script, json.dumps(program), json.dumps(inputs))


@pytest.mark.parametrize("name", CASES)
def test_the_script_computes_what_jax_computes(driver, name):
    fn, *examples = CASES[name]
    wanted = jax.tree.leaves(fn(*jax.tree.map(jnp.asarray, examples)))
    found = compute(driver, fn, *examples)
    assert len(found) == len(wanted)
    for k, (want, (kind, shape, data)) in enumerate(zip(wanted, found, strict=True)):
        assert (kind, shape) == (str(want.dtype), list(want.shape)), k
        got = np.array([float(x) for x in data]).reshape(want.shape)
        if kind == "float32":
            np.testing.assert_allclose(got, want, rtol=3e-6, atol=3e-6, err_msg=str(k))
        else:
            np.testing.assert_array_equal(got, np.asarray(want), str(k))


def test_what_it_cannot_compute_is_named():
    with pytest.raises(ValueError, match="a page cannot compute `cholesky`"):
        portable_program(jnp.linalg.cholesky, jnp.eye(3))
    with pytest.raises(ValueError, match="type bfloat16"):
        portable_program(lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), jnp.zeros(4))


def test_what_is_not_used_is_left_out():
    program = portable_program(lambda x: (jnp.sin(x), jnp.fft.fft)[0], jnp.zeros(3))
    assert [step[0] for step in program["steps"]] == ["sin"]
    twice = portable_program(lambda x: (jnp.sin(x), jnp.cos(x))[0], jnp.zeros(3))
    assert [step[0] for step in twice["steps"]] == ["sin"]
