"""ONNX files compute what JAX computes, for any number of rows."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmarl_ppo.deploy.onnx_graph import make_model

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 5)).astype(np.float32)
FILTERS = RNG.normal(size=(3, 2, 2, 6)).astype(np.float32)


def floats(*shape):
    return ((shape, "float32"),)


def draw(rows, shape, dtype):
    if dtype == "bool":
        return RNG.random((rows, *shape)) < 0.5
    if dtype == "int32":
        return RNG.integers(-9, 9, (rows, *shape)).astype(np.int32)
    return (RNG.normal(size=(rows, *shape)) * 2).astype(np.float32)


BOOLS = (((3,), "bool"), ((3,), "bool"))
INTS = (((3,), "int32"), ((3,), "int32"))
CASES = {
    "arithmetic": (
        lambda x, y: [x + y, x - y, x * y, x / y, jnp.maximum(x, y), jnp.minimum(x, 0.5), -x,
                      abs(x), jnp.sign(x), x**2, x**3, abs(x) ** y, lax.rem(x, y), x @ y.T @ y],
        *floats(4), *floats(4),
    ),
    "curves": (
        lambda x: [jnp.exp(x), jnp.tanh(x), nn.sigmoid(x), jnp.log(abs(x)), jnp.sqrt(abs(x)),
                   lax.rsqrt(abs(x)), jnp.log1p(abs(x)), jnp.expm1(x), jnp.sin(x), jnp.cos(x),
                   jnp.round(x), jnp.floor(x), jnp.ceil(x), jnp.exp2(x), jnp.clip(x, -1, 0.5)],
        *floats(3, 4),
    ),
    "activations": (
        lambda x: [nn.gelu(x), nn.gelu(x, approximate=False), nn.silu(x), nn.softplus(x),
                   nn.elu(x), nn.leaky_relu(x), nn.relu6(x), nn.softmax(x), nn.log_softmax(x),
                   nn.hard_swish(x), nn.standardize(x), nn.one_hot(x[:, 0].astype(int), 3)],
        *floats(5),
    ),
    "integers": (
        lambda x, y: [x + y, x * y, x // 3, x % 3, lax.div(x, 3), -x, x == y, x != y, x < y,
                      x >= y, x & y, x.astype(jnp.float32), x.max(-1), x.argmin(-1)],
        *INTS,
    ),
    "bools": (
        lambda x, y: [x & y, x | y, x ^ y, ~x, x.all(-1), x.any(-1), jnp.where(x, y, ~y),
                      jnp.where(x, 1.0, 0.0), x.sum(-1), x.argmax(-1), x == y, jnp.maximum(x, y),
                      jnp.minimum(x, y), x < y, x >= y],
        *BOOLS,
    ),
    "finite": (lambda x: [jnp.isfinite(1 / jnp.floor(x)), jnp.isnan(jnp.log(x))], *floats(4)),
    "shapes": (
        lambda x: [x.reshape(-1, 12), x.T, x[:, 1:], x[:, ::2], x[:, 0], x[..., -1], x[:, ::-1],
                   jnp.concatenate([x, x], 1), jnp.stack([x, 2 * x], 1), jnp.split(x, [1], -1),
                   jnp.pad(x, ((0, 0), (1, 0), (0, 2))), jnp.tile(x, (1, 2, 1)), x[:, None] + 1,
                   jnp.repeat(x, 2, axis=1), jnp.broadcast_to(x[:, :1], x.shape),
                   jnp.cumsum(x, -1), x + jnp.arange(4.0), jnp.moveaxis(x, 0, 1),
                   lax.slice_in_dim(x, 0, 0, axis=1).reshape(x.shape[0], 4, 0),
                   jnp.ones((3 * x.shape[0], 2)),
                   jnp.broadcast_to(x.reshape(-1, 1, 4), (3 * x.shape[0], 2, 4)) @ WEIGHTS],
        *floats(3, 4),
    ),
    "reductions": (
        lambda x: [x.sum(), x.sum(-1), x.mean((1, 2)), x.max(1), x.min(-1), x.prod(-1), x.std(-1),
                   x.argmax(-1), x.argmin(1), jnp.linalg.norm(x, axis=-1)],
        *floats(3, 4),
    ),
    "products": (
        lambda x: [x @ WEIGHTS, jnp.einsum("bij,bkj->bik", x, x), jnp.einsum("bij,bij->b", x, x),
                   jnp.einsum("bij,jk->kbi", x, WEIGHTS), x[:, 0] @ WEIGHTS,
                   jax.vmap(lambda w: x @ w)(WEIGHTS[None]), jnp.einsum("bij,cij->bc", x, x)],
        *floats(3, 4),
    ),
    "convolutions": (
        lambda x: [
            lax.conv_general_dilated(x, FILTERS, (1, 1), "SAME", **NHWC),
            lax.conv_general_dilated(x, FILTERS, (2, 1), "VALID", **NHWC),
            lax.conv_general_dilated(x, FILTERS, (1, 1), ((2, 1), (0, 1)), (1, 1), (2, 1), **NHWC),
            lax.conv_general_dilated(x, FILTERS[:, :, :1], (1, 1), "SAME",
                                     feature_group_count=2, **NHWC),
            nn.max_pool(x, (2, 2), (2, 1)), nn.avg_pool(x, (2, 3), padding="SAME"),
        ],
        *floats(6, 5, 2),
    ),
    "look-ups": (
        lambda x, y: [jnp.asarray(WEIGHTS)[x % 4], jnp.take(WEIGHTS, y[:, 0], axis=0),
                      jnp.take(WEIGHTS, x, axis=1, mode="clip"), jnp.asarray(WEIGHTS[0])[x % 5],
                      lax.dynamic_slice(y, (0, jnp.int32(2)), (y.shape[0], 1))],
        *INTS,
    ),
    "types": (
        lambda x, y: [(x.astype(jnp.int8) + 1).astype(jnp.float32), x.astype(bool), y + x,
                      jnp.where(y, x, x.astype(int))],
        *floats(3), ((3,), "bool"),
    ),
    "nothing but constants": (
        lambda x: [jnp.ones((x.shape[0], 3)), jnp.zeros((x.shape[0], 2), bool).reshape(-1, 1, 2),
                   jnp.broadcast_to(WEIGHTS, (x.shape[0], 4, 5))],
        *floats(2),
    ),
}  # fmt: skip
NHWC = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}


def by_name(fn):
    return lambda inputs: {f"y{i}": y for i, y in enumerate(jax.tree.leaves(fn(*inputs.values())))}


def session_of(fn, *specs):
    inputs = {f"x{i}": spec for i, spec in enumerate(specs)}
    model = make_model(by_name(fn), inputs, {"about": "a test"})
    onnx.checker.check_model(model, full_check=True)
    return runtime.InferenceSession(model.SerializeToString())


def test_a_nan_is_the_largest_and_the_smallest_number_as_in_jax():
    def fn(x):
        return [x.argmax(-1), x.argmin(-1)]

    lowest = np.finfo(np.float32).min
    x = np.array([[0, np.nan, 1], [lowest, np.nan, np.nan], [2, 1, 3]], np.float32)
    found = session_of(fn, *floats(3)).run(None, {"x0": x})
    np.testing.assert_array_equal(found, fn(jnp.asarray(x)))
    np.testing.assert_array_equal(found, [[1, 1, 2], [1, 1, 1]])


@pytest.mark.parametrize("name", CASES)
def test_a_file_computes_what_jax_computes(name):
    fn, *specs = CASES[name]
    session = session_of(fn, *specs)
    for rows in (1, 7):
        given = {f"x{i}": draw(rows, *spec) for i, spec in enumerate(specs)}
        wanted = jax.tree.leaves(fn(*map(jnp.asarray, given.values())))
        found = session.run(None, given)
        assert len(found) == len(wanted) > 0
        for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
            assert got.shape == want.shape, k
            assert got.dtype == want.dtype, k
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6, err_msg=str(k))


def test_low_precision_is_computed_in_float32():
    session = session_of(lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float32), *floats(4))
    x = draw(5, (4,), "float32")
    np.testing.assert_allclose(session.run(None, {"x0": x})[0], 3 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: jnp.sort(x), "`sort`"),
        (lambda x: lax.scan(lambda a, b: (a + b, a), x[:, 0], x.T)[1], "`scan`"),
        (lambda x: jnp.linalg.cholesky(x[:, None] * x[..., None]), "`cholesky`"),
        (lambda x: x * jnp.arange(x.shape[0])[:, None], "`iota` along the batch"),
        (lambda x: jnp.take_along_axis(x, x.astype(int), 1), "`gather` "),
        (lambda x: jnp.ones((x.shape[0] + 1, 2)), r"an axis of batch \+ 1"),
        (lambda x: lax.round(x), "`round` of halves away from zero"),
        (lambda x: x.astype(jnp.uint32), "numbers of type uint32"),
    ],
)
def test_what_it_cannot_compute_is_named(fn, what):
    with pytest.raises(ValueError, match=f"an ONNX file cannot compute {what}"):
        session_of(fn, *floats(4))


def test_inputs_have_the_types_of_a_file():
    with pytest.raises(ValueError, match="an ONNX file cannot compute inputs of type bfloat16"):
        session_of(lambda x: x + 1, ((4,), "bfloat16"))


def test_what_is_broadcast_stays_small():
    model = make_model(by_name(lambda x: jnp.tanh(x @ WEIGHTS + 1.0) * 2), {"x": floats(4)[0]}, {})
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["MatMul", "Add", "Tanh", "Mul", "Identity"]
