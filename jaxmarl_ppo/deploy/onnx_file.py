"""Export of a policy to ONNX, for use without JAX, checked by ONNX Runtime against the original."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.spaces import is_bound
from jaxmarl_ppo import __version__
from jaxmarl_ppo.deploy.calling import Signature
from jaxmarl_ppo.deploy.exported import describe
from jaxmarl_ppo.deploy.forms import widen_mask
from jaxmarl_ppo.deploy.jax_export import (
    as_arguments,
    check_new_file,
    is_precise,
    prefers,
    random_inputs,
    split_action,
)
from jaxmarl_ppo.deploy.network_actor import NetworkActor
from jaxmarl_ppo.deploy.onnx_graph import ROWS, Arrays, import_onnx, make_model
from jaxmarl_ppo.machine.extras import how_to_install
from jaxmarl_ppo.machine.files import write_atomically

FORMAT = 1
METADATA = "jaxmarl_ppo"  # key of the JSON in the file's metadata
NUM_CHECKED_ROWS = 1_000
# Tolerances relative to the largest number. A file computes layers of low precision in float32.
FINE_ROUNDING, COARSE_ROUNDING = 1e-4, 5e-2


class OnnxCheck(NamedTuple):
    """Holds how far an ONNX file and its policy are apart.

    Attributes:
        num_rows: random inputs that were compared.
        num_ties: those with other choices, which the policy finds equally good.
        differences: the greatest difference of each output of floats.
    """

    num_rows: int
    num_ties: int
    differences: Mapping[str, float]


def check_extras() -> None:
    """Import what export to ONNX needs.

    Raises:
        ValueError: If a package is missing; the message names the extra.
    """
    import_onnx()
    _import_runtime()


def export_onnx(policy: NetworkActor, path: str | Path) -> OnnxCheck:
    """Write a policy as an ONNX file and check it; see `Policy.export_onnx`."""
    path = check_new_file(path)
    check_extras()
    signature = policy.signature
    inputs = {**signature.inputs, **_memory("hidden", signature)}
    metadata = {METADATA: json.dumps(_metadata(policy), indent=2)}
    try:
        model = make_model(functools.partial(policy_step, policy), inputs, metadata)
    except ValueError as error:
        raise ValueError(
            f"policy {signature.policy!r} cannot be exported to ONNX: {error}; write its network "
            "with other operations, or export it for JAX, without --format onnx"
        ) from error
    content = model.SerializeToString()
    found = compare(policy, content)
    write_atomically(path, content)
    return found


def policy_step(policy: NetworkActor, inputs: Arrays) -> Arrays:
    """Compute all outputs of an ONNX file, by name; see `Policy.export_onnx`."""
    signature, interface = policy.signature, policy.interface
    hidden = [inputs[name] for name in _memory("hidden", signature)]
    moved, outputs, value = policy.forward(policy.params, inputs, hidden)
    action = policy.choose(inputs, outputs, None)
    found = dict(action) if isinstance(action, dict) else {"action": action}
    counts, num_numbers = signature.factors
    if counts:
        split = map(interface.split_mask, (outputs, policy.network_mask(inputs)))
        # The network may have more choices and options than the policy's agents.
        probs = [
            jax.nn.softmax(jnp.where(legal, logits, -jnp.inf))[:, :count]
            for logits, legal, count in zip(*split, counts, strict=False)
        ]
        found["probabilities"] = jnp.concatenate(probs, axis=-1)
    if num_numbers and interface.numbers is not None:
        parameters = interface.numbers.parameters(outputs[:, sum(interface.counts) :])
        found |= {name: x[:, :num_numbers] for name, x in parameters.items()}
    if not interface.joint_width:  # else the critic would have to see what the others do
        found["value"] = policy.in_rewards(policy.params, value)
    return found | dict(zip(_memory("next_hidden", signature), moved, strict=True))


def _memory(name: str, signature: Signature) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name the arrays of memory, with shape and type of a row."""
    return {f"{name}_{i}": (x.shape, x.dtype.name) for i, x in enumerate(signature.hidden)}


def _metadata(policy: NetworkActor) -> dict[str, Any]:
    """Describe a file: inputs, agents with their observations and actions, versions."""
    signature, interface = policy.signature, policy.interface
    found = describe(signature, ROWS)
    low, high = policy.bounds
    for agent, (slot, _, form) in signature.agent_shapes.items():
        num_numbers = form.factors.num_numbers
        everything = np.ones(form.factors.width, bool)
        found["agents"][agent] |= {
            "observation": [part._asdict() for part in policy.observation_parts[agent]],
            "action_mask": widen_mask(everything, form.factors, signature.factors).tolist(),
            "low": _or_none(low[slot, :num_numbers]),
            "high": _or_none(high[slot, :num_numbers]),
        }
    return {
        "format": FORMAT,
        **found,
        "options": list(signature.factors.counts),
        "numbers": interface.continuous if signature.factors.num_numbers else None,
        "versions": {"jaxmarl-ppo": __version__, "jax": jax.__version__},
    }


def _or_none(bounds: np.ndarray) -> list[float | None]:
    """List bounds `[N]`, with None where there is none: JSON has no infinite numbers."""
    return [bound if is_bound(bound) else None for bound in bounds.tolist()]


def compare(policy: NetworkActor, content: bytes) -> OnnxCheck:
    """Compare a file with its policy on random inputs, masks and memory.

    Choices may differ only if both are equally likely, to within rounding.

    Raises:
        ValueError: If results differ by more than rounding.
    """
    signature = policy.signature
    rounding = FINE_ROUNDING if is_precise(policy) else COARSE_ROUNDING
    inputs, hidden = random_inputs(policy, NUM_CHECKED_ROWS)
    given = inputs | dict(zip(_memory("hidden", signature), hidden, strict=True))
    theirs = _run(content, given)
    # Actions and memory as the policy itself returns them, everything else as it was traced.
    action, moved = policy.act(hidden=hidden, **as_arguments(signature, inputs))
    ours = jax.jit(functools.partial(policy_step, policy))(given)
    ours |= dict(zip(_memory("next_hidden", signature), moved, strict=True))
    choices, numbers = split_action(signature, action)
    acts = {name: theirs.pop(name) for name in signature.action}
    other = signature.split(acts if len(acts) > 1 else acts["action"])
    if numbers.size:
        name = "numbers" if len(acts) > 1 else "action"
        ours[name], theirs[name] = numbers, other[1]
    differences = {}
    for name, x in theirs.items():
        wanted = np.asarray(ours[name])
        differences[name] = float(np.abs(x - wanted).max())
        most = rounding * max(1.0, float(np.abs(wanted).max()))
        if not differences[name] <= most:  # or it is NaN
            raise ValueError(
                f"the ONNX file of policy {signature.policy!r} computes another {name} than the "
                f"policy, by up to {differences[name]:.1e} on {NUM_CHECKED_ROWS:,} random inputs; "
                f"at most {most:.1e} is rounding; nothing was written"
            )
    wrong = prefers(policy, (inputs, hidden, None), (choices, other[0]), rounding)
    if wrong.any():
        raise ValueError(
            f"the ONNX file of policy {signature.policy!r} makes other choices on {wrong.sum()} of "
            f"{NUM_CHECKED_ROWS:,} random inputs; nothing was written"
        )
    ties = int((choices != other[0]).any(-1).sum())
    return OnnxCheck(NUM_CHECKED_ROWS, ties, differences)


def _run(content: bytes, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Compute all outputs of an ONNX file by name, by ONNX Runtime on the CPU.

    Raises:
        ValueError: If it does not run the file.
    """
    runtime = _import_runtime()
    try:
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, {name: np.asarray(x) for name, x in inputs.items()})
    except Exception as error:  # its errors have no common class
        reason = " ".join(str(error).split())
        raise ValueError(
            f"ONNX Runtime {runtime.__version__} does not run the file ({reason}); nothing was "
            "written"
        ) from error
    return dict(zip(names, found, strict=True))


def _import_runtime() -> Any:
    return import_extra("onnxruntime", "onnx", how_to_install)
