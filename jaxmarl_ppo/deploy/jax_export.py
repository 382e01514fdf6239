"""Export of a policy to a file that acts with JAX alone, checked against the original."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.spaces import has_range
from jaxmarl_ppo import __version__
from jaxmarl_ppo.deploy.calling import Rows, Signature
from jaxmarl_ppo.deploy.exported import ExportedPolicy, pack, unpack
from jaxmarl_ppo.deploy.forms import widen_mask
from jaxmarl_ppo.deploy.network_actor import NetworkActor
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.networks.distributions import MaskedCategorical

PLATFORMS = ("cpu", "cuda", "tpu")
KNOWN_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
NUM_CHECKED_ROWS = 33
# Tolerances relative to the largest number; accelerators and low-precision networks round coarsely.
FINE_ROUNDING, COARSE_ROUNDING = 1e-5, 1e-2


def export_policy(
    policy: NetworkActor,
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
    policy: NetworkActor, platforms: tuple[str, ...], batch: str | int
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


def check_same(policy: NetworkActor, exported: ExportedPolicy) -> None:
    """Compare greedy and sampled actions, and memory, on random inputs.

    Actions may differ only if both are equally likely, to within rounding.

    Raises:
        ValueError: If they differ.
    """
    rounding = FINE_ROUNDING if is_precise(policy) else COARSE_ROUNDING
    batch = exported.batch
    num_rows = batch if isinstance(batch, int) else NUM_CHECKED_ROWS
    inputs, hidden = random_inputs(policy, num_rows)
    given = as_arguments(policy.signature, inputs)
    low, high = (np.where(has_range(*policy.bounds), bound, 0.0) for bound in policy.bounds)
    widest = np.max(high - low, initial=1.0)
    for key in (None, jax.random.key(1, impl="threefry2x32")):
        ours, held = policy.act(hidden=hidden, key=key, **given)
        theirs, other_held = exported.act(hidden=hidden, key=key, **given)
        ours, theirs = (split_action(policy.signature, action) for action in (ours, theirs))
        wrong = prefers(policy, (inputs, hidden, key), (ours[0], theirs[0]), rounding)
        wrong |= _far(ours[1], theirs[1], rounding * widest)
        for a, b in zip(held, other_held, strict=True):
            wrong |= _far(a, b, rounding)
        if wrong.any():
            raise ValueError(
                f"the exported policy acts differently from {policy.signature.policy!r} on "
                f"{wrong.sum()} of {num_rows} random inputs; nothing was written"
            )


def is_precise(policy: NetworkActor) -> bool:
    """Return whether the policy computes everything in float32 on this machine."""
    types = getattr(policy.network.module, "dtype", "float32"), policy.network.matmul_precision
    return set(types) == {"float32"} and jax.default_backend() == "cpu"


def as_arguments(signature: Signature, inputs: Rows) -> dict[str, Any]:
    """Convert inputs by name to arguments of `act`."""
    changed = {"features", *(f"prev_{name}" for name in signature.action)}
    given = {name: x for name, x in inputs.items() if name not in changed}
    if signature.prev_action:
        given["prev_action"] = signature.form.build(*signature.split_previous(inputs))
    return {"observation": inputs["features"], **given}


def split_action(signature: Signature, action: Any) -> tuple[np.ndarray, np.ndarray]:
    """Split actions from `act` into choices `[B, C]` and numbers `[B, N]`."""
    leaves = [np.asarray(x) for x in signature.form.flatten(action)]
    return signature.form.split(leaves, leaves[0].shape[:1])


def _far(a: Any, b: Any, rounding: float) -> np.ndarray:
    """Find rows of `[B, ...]` that differ by more than `rounding` or have NaN, `[B]` bool."""
    gap = np.abs(np.asarray(a) - np.asarray(b)).reshape(len(a), -1)
    return np.array([not (row <= rounding).all() for row in gap])


def random_inputs(policy: NetworkActor, num_rows: int) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Draw inputs by name, and memory, of any of the policy's agents in full width."""
    signature, rng = policy.signature, np.random.default_rng(num_rows)
    agent_shapes = list(signature.agent_shapes.values())
    which = rng.integers(len(agent_shapes), size=num_rows)

    def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "bool":
            return rng.random((num_rows, *shape)) < 0.5
        if dtype == "int32":
            return np.zeros((num_rows, *shape), np.int32)
        return rng.normal(size=(num_rows, *shape)).astype(np.float32)

    inputs = {name: draw(*spec) for name, spec in signature.inputs.items()}
    choices = _draw_choices(policy, which, inputs["action_mask"], rng)
    if signature.prev_action and choices.size:
        name = f"prev_{next(iter(signature.action))}"
        inputs[name] = choices.reshape(inputs[name].shape)
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


def _draw_choices(
    policy: NetworkActor, which: np.ndarray, mask: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw an option of every choice, `[B, C]`, which `mask [B, W]` then allows, by each agent.

    What an agent does not have becomes illegal.
    """
    signature = policy.signature
    factors = [agent_shape.form.factors for agent_shape in signature.agent_shapes.values()]
    wide = signature.factors
    exists = np.array([widen_mask(np.ones(x.width, bool), x, wide) for x in factors])[which]
    each, start, choices = np.arange(len(which)), 0, np.zeros((len(which), len(wide.counts)), int)
    for choice, count in enumerate(wide.counts):
        counts = exists[:, start : start + count].sum(-1)
        choices[:, choice] = rng.integers(counts)
        mask[each, start + rng.integers(counts)] = True
        start += count
    if not wide.counts:
        mask[each, rng.integers(exists.sum(-1))] = True
    mask &= exists
    return choices.astype(np.int32)


def prefers(
    policy: NetworkActor, call: tuple[Any, Any, Any], actions: tuple[Any, Any], rounding: float
) -> np.ndarray:
    """Find rows in which the policy clearly prefers one of our choices to the other, `[B]`.

    Args:
        policy: the original.
        call: inputs in rows, memory and the key.
        actions: our choices and the others, `[B, C]`.
        rounding: how far apart what is equally likely may be.
    """
    (inputs, hidden, key), (ours, theirs) = call, map(np.asarray, actions)
    if (ours == theirs).all():
        return np.zeros(len(ours), bool)
    rows = {name: jnp.asarray(x) for name, x in inputs.items()}
    _, outputs, _ = policy.forward(policy.params, rows, [jnp.asarray(h) for h in hidden])
    mask = policy.network_mask(rows)
    split, noise = policy.interface.split_mask, None
    if key is not None:
        noise = _uniform(policy.network.distribution.noise(key, (len(ours),)))
    wrong = np.zeros(len(ours), bool)
    for choice, (logits, legal) in enumerate(zip(split(outputs), split(mask), strict=True)):
        if choice < ours.shape[1]:
            drawn = None if noise is None else noise[:, choice]
            pair = ours[:, choice], theirs[:, choice]
            wrong |= _prefers_option(logits, legal, drawn, pair, rounding)
    return wrong


def _uniform(noise: Any) -> np.ndarray:
    """Take the uniform numbers of choices, `[B, C]`, of a distribution's noise."""
    return np.asarray(noise[0]) if isinstance(noise, tuple) else np.asarray(noise)[:, None]


def _prefers_option(
    logits: jax.Array,
    mask: jax.Array,
    drawn: np.ndarray | None,
    options: tuple[np.ndarray, np.ndarray],
    rounding: float,
) -> np.ndarray:
    """Find rows in which the first option of one choice is clearly preferred to the second, `[B]`.

    Args:
        logits: `[B, options]`.
        mask: `[B, options]`.
        drawn: the uniform numbers `[B]` that options are drawn by; None for the most likely ones.
        options: `[B]` each.
        rounding: as for `prefers`.
    """
    ours, theirs = options
    each, legal = np.arange(len(ours)), np.asarray(mask)
    scores = np.where(legal, logits, -np.inf)
    largest = np.max(np.abs(scores), axis=-1, where=legal, initial=0.0)
    if drawn is None:
        return ~(scores[each, ours] - scores[each, theirs] <= rounding * largest)
    sums = np.asarray(MaskedCategorical(legal.shape[1]).cumulative(logits, mask))
    sums = np.insert(sums / sums[:, -1:], 0, 0.0, axis=1)
    # Distance of the drawn number from the interval of the second.
    outside = np.maximum(sums[each, theirs] - drawn, drawn - sums[each, theirs + 1])
    return ~(legal[each, theirs] & (outside <= rounding * np.maximum(largest, 1.0)))
