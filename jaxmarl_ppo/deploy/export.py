"""Export of a policy to a file that acts with JAX alone, checked against the original."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo import __version__
from jaxmarl_ppo.deploy.calling import Rows, Signature, pad_rows
from jaxmarl_ppo.deploy.exported import ExportedPolicy, pack, unpack
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PolicyStack

PLATFORMS = ("cpu", "cuda", "tpu")
KNOWN_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
NUM_CHECKED_ROWS = 33
# Tolerances relative to the largest number; accelerators and low-precision networks round coarsely.
FINE_ROUNDING, COARSE_ROUNDING = 1e-5, 1e-2


class ExportablePolicy(Protocol):
    """The interface of a `Policy` that export needs."""

    @property
    def signature(self) -> Signature:
        """Return the inputs and outputs of the policy."""
        ...

    @property
    def network(self) -> StackedNetwork:
        """The policy's network and distribution of actions."""
        ...

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest continuous actions, `[slots, N]` each."""
        ...

    @property
    def params(self) -> PolicyStack:
        """The policy's parameters and normalisers, `[1, ...]`."""
        ...

    def decide(
        self, params: Any, inputs: Rows, hidden: list[jax.Array], key: jax.Array | None
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Decide for rows of full width; see `Actor.decide`."""
        ...

    def forward(
        self, params: Any, inputs: Rows, hidden: list[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array, jax.Array]:
        """Run the network on rows; see `Policy.forward`."""
        ...

    @property
    def act(self) -> Callable[..., Any]:
        """Act for a batch; see `Actor.act`."""
        ...


def export_policy(
    policy: ExportablePolicy,
    path: str | Path,
    platforms: Sequence[str] = PLATFORMS,
    batch: str | int = "b",
) -> ExportedPolicy:
    """Write a policy into a file and check it against the original; see `Policy.export`."""
    path = check_new_file(path)
    if isinstance(platforms, str) or not platforms or not set(platforms) <= set(KNOWN_PLATFORMS):
        raise ValueError(
            f"platforms must be some of {', '.join(KNOWN_PLATFORMS)}, got {platforms!r}"
        )
    programs = make_programs(policy, tuple(platforms), batch)
    versions = {"jaxmarl-ppo": __version__, "jax": jax.__version__}
    content = pack(policy.signature, programs, versions)
    written = unpack(content, str(path))
    check_same(policy, written)
    write_atomically(path, content)
    return written


def check_new_file(path: str | Path) -> Path:
    """Return a path that does not exist yet.

    Raises:
        ValueError: If something is there already.
    """
    path = Path(path)
    if path.exists():
        raise ValueError(f"{str(path)!r} exists; choose another name or remove it")
    return path


def make_programs(
    policy: ExportablePolicy, platforms: tuple[str, ...], batch: str | int
) -> dict[str, jax.export.Exported]:
    """Compile the policy's two programs, with its parameters inside.

    Raises:
        ValueError: If it is neither the name of a dimension nor a number of rows.
    """
    if isinstance(batch, str) and batch.isidentifier():
        (num_rows,) = jax.export.symbolic_shape(batch)
    elif isinstance(batch, int) and not isinstance(batch, bool) and batch > 0:
        num_rows = batch
    else:
        raise ValueError(
            f"batch must be a name such as 'b' or a number of rows from 1, got {batch!r}"
        )
    signature = policy.signature
    inputs = {
        name: jax.ShapeDtypeStruct((num_rows, *shape), dtype)
        for name, (shape, dtype) in signature.inputs.items()
    }
    hidden = [jax.ShapeDtypeStruct((num_rows, *x.shape), x.dtype) for x in signature.hidden]

    def greedy(inputs: Rows, hidden: list[jax.Array]) -> Any:
        return policy.decide(policy.params, inputs, hidden, None)

    def sampled(inputs: Rows, hidden: list[jax.Array], key_data: jax.Array) -> Any:
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        return policy.decide(policy.params, inputs, hidden, key)

    key_data = jax.ShapeDtypeStruct((2,), jnp.uint32)
    export = jax.export.export
    # Also set in the file, since its platforms may multiply coarsely by default.
    with jax.default_matmul_precision("float32"):
        return {
            "greedy": export(jax.jit(greedy), platforms=platforms)(inputs, hidden),
            "sampled": export(jax.jit(sampled), platforms=platforms)(inputs, hidden, key_data),
        }


def check_same(policy: ExportablePolicy, exported: ExportedPolicy) -> None:
    """Compare greedy and sampled actions, and memory, on random inputs.

    Actions may differ only if both are equally likely, to within rounding.

    Raises:
        ValueError: If they differ.
    """
    fine = getattr(policy.network.module, "dtype", "float32") == "float32"
    fine &= policy.network.matmul_precision == "float32" and jax.default_backend() == "cpu"
    rounding = FINE_ROUNDING if fine else COARSE_ROUNDING
    batch = exported.batch
    num_rows = batch if isinstance(batch, int) else NUM_CHECKED_ROWS
    inputs, hidden = random_inputs(policy, num_rows)
    given = {name: x for name, x in inputs.items() if name != "features"}
    for key in (None, jax.random.key(1, impl="threefry2x32")):
        ours, held = policy.act(inputs["features"], hidden, key, **given)
        theirs, other_held = exported.act(inputs["features"], hidden, key, **given)
        if policy.signature.continuous:
            widest = max(1.0, *np.ravel(policy.bounds[1] - policy.bounds[0]))
            wrong = _far(ours, theirs, rounding * widest)
        else:
            wrong = _prefers(policy, (inputs, hidden, key), (ours, theirs), rounding)
        for a, b in zip(held, other_held, strict=True):
            wrong |= _far(a, b, rounding)
        if wrong.any():
            raise ValueError(
                f"the exported policy acts differently from {policy.signature.policy!r} on "
                f"{wrong.sum()} of {num_rows} random inputs; nothing was written"
            )


def _far(a: jax.Array, b: jax.Array, rounding: float) -> np.ndarray:
    """Find rows of `[B, ...]` that differ by more than `rounding` or have NaN, `[B]` bool."""
    gap = np.abs(np.asarray(a) - np.asarray(b)).reshape(len(a), -1)
    return np.array([not (row <= rounding).all() for row in gap])


def random_inputs(
    policy: ExportablePolicy, num_rows: int
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Draw inputs by name, and memory, of any of the policy's agents in full width."""
    signature, rng = policy.signature, np.random.default_rng(num_rows)
    agent_shapes = list(signature.agent_shapes.values())
    which = rng.integers(len(agent_shapes), size=num_rows)
    counts = np.array([agent_shape.num_actions for agent_shape in agent_shapes])[which]

    def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "bool":
            return rng.random((num_rows, *shape)) < 0.5
        if dtype == "int32":
            return rng.integers(counts).astype(np.int32)
        return rng.normal(size=(num_rows, *shape)).astype(np.float32)

    inputs = {name: draw(*spec) for name, spec in signature.inputs.items()}
    mask = inputs["action_mask"]
    mask[np.arange(num_rows), rng.integers(counts)] = True
    mask &= np.arange(signature.num_actions) < counts[:, None]
    if "agent" in inputs:
        inputs["agent"] = np.array([agent_shape.slot for agent_shape in agent_shapes], np.int32)[
            which
        ]
    moments = policy.params.obs_moments
    if moments is not None:
        own = (0, *(slice(size) for size in signature.feature_shape))
        mean, std = np.asarray(moments.mean)[own], np.sqrt(np.asarray(moments.var)[own])
        inputs["features"] = mean + std * inputs["features"]
    hidden = tuple(
        rng.uniform(-1.0, 1.0, (num_rows, *x.shape)).astype(x.dtype) for x in signature.hidden
    )
    return inputs, hidden


def _prefers(
    policy: ExportablePolicy, call: tuple[Any, Any, Any], actions: tuple[Any, Any], rounding: float
) -> np.ndarray:
    """Find rows in which the policy clearly prefers our discrete action to the other, `[B]`."""
    (inputs, hidden, key), (ours, theirs) = call, map(np.asarray, actions)
    if (ours == theirs).all():
        return np.zeros(len(ours), bool)
    rows = {name: jnp.asarray(x) for name, x in inputs.items()}
    _, outputs, _ = policy.forward(policy.params, rows, [jnp.asarray(h) for h in hidden])
    mask = pad_rows(rows["action_mask"], outputs.shape[1:])
    each, legal = np.arange(len(ours)), np.asarray(mask)
    scores = np.where(legal, outputs, -np.inf)
    largest = np.max(np.abs(scores), axis=-1, where=legal, initial=0.0)
    if key is None:
        return ~(scores[each, ours] - scores[each, theirs] <= rounding * largest)
    distribution = policy.network.distribution
    assert isinstance(distribution, MaskedCategorical)  # as actions are discrete
    sums = np.asarray(distribution.cumulative(outputs, mask))
    sums = np.insert(sums / sums[:, -1:], 0, 0.0, axis=1)
    drawn = np.asarray(distribution.noise(key, (len(ours),)))
    # Distance of the drawn number from the interval of the second.
    outside = np.maximum(sums[each, theirs] - drawn, drawn - sums[each, theirs + 1])
    return ~(legal[each, theirs] & (outside <= rounding * np.maximum(largest, 1.0)))
