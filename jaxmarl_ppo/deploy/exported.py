"""Policies that act from one file with JAX alone.

>>> bob = load_exported("bob.jaxexport")
>>> action, hidden = bob.act(observation, bob.initial_hidden(len(observation)))

This module imports JAX and NumPy alone. The file can be read without it too, being a zip archive of
`header.json` and of two programs that `jax.export` serialised, `greedy` and `sampled`, each with
its parameters inside:

>>> import json, zipfile
>>> import jax.export, numpy as np
>>> with zipfile.ZipFile("bob.jaxexport") as file:
...     header = json.loads(file.read("header.json"))
...     program = jax.export.deserialize(bytearray(file.read("greedy")))
>>> hidden = [np.zeros((5, *leaf["shape"][1:]), leaf["dtype"]) for leaf in header["hidden"]]
>>> inputs = {"features": ..., "action_mask": ...}  # [5, ...] each, as header["inputs"] says
>>> action, hidden = jax.jit(program.call)(inputs, hidden)

`sampled` takes a third argument, `jax.random.key_data(key)`. Both return the recurrent state for
the agent's next decision. An action that has both choices and numbers is a dict of `choices` and
`numbers`, and the previous one is two inputs, `prev_choices` and `prev_numbers`. In the header,
every agent has the form of its own actions, in which `act` returns them. `jax.export` itself needs
the package `flatbuffers`.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from jaxmarl_ppo.deploy.calling import Actor, AgentShape, Rows, Signature
from jaxmarl_ppo.deploy.forms import Form, form_from_json
from jaxmarl_ppo.machine.text import printable

# Those that are read. Format 1 has actions that are one choice, or numbers in a vector.
FORMATS = (1, 2)
HEADER, PROGRAMS = "header.json", ("greedy", "sampled")
MAX_HEADER = 10_000_000  # bytes
# What a program may call beside operations on arrays: checks of shapes, notes on where arrays lie,
# random bits, sorting, linear algebra. Others run kernels of their own, or code of the host.
_CALLS = re.compile(
    r"shape_assertion|Sharding|annotate_device_placement|(cu|hip)_threefry2x32_ffi|TopK|top_k_\w+"
    r"|ApproxTopK|lapack_\w+_ffi|cusolver_\w+_ffi|cublas_\w+_ffi|hipsolver_\w+_ffi|hipblas_\w+_ffi"
    r"|Qr|Eigh|LuDecomposition|ProductOfElementaryHouseholderReflectors|mhlo\.\w+|chlo\.\w+"
)
_CALLED = re.compile(r'custom_call @(?:"([^"]*)"|([\w.$-]+))|call_target_name = "([^"]*)"')
_HOST_CALL = re.compile(r"\b(?:stablehlo|mhlo)\.(send|recv|infeed|outfeed)\b")


@dataclass(frozen=True, eq=False, repr=False)
class ExportedPolicy(Actor):
    """A policy read from a file; its actions are those of the `Policy` that was exported.

    Attributes:
        signature: its inputs and outputs.
        programs: `greedy`, and `sampled`, by name.
        header: of the file.
    """

    signature: Signature
    programs: Mapping[str, jax.export.Exported]
    header: Mapping[str, Any]
    params: tuple[()] = ()

    @property
    def batch(self) -> str | int:
        """Number of rows per call, or the name of the dimension where any number is allowed."""
        return self.header["inputs"]["features"]["shape"][0]

    def decide(
        self, params: Any, inputs: Rows, hidden: list[jax.Array], key: jax.Array | None
    ) -> Any:
        """Decide for rows of full width; see `Actor.decide`."""
        del params  # they are inside the programs
        num_rows, batch = inputs["features"].shape[0], self.batch
        if isinstance(batch, int) and num_rows != batch:
            raise ValueError(
                f"this policy was exported for batches of {batch}, got {num_rows} observations"
            )
        if key is None:
            return self.programs["greedy"].call(inputs, hidden)
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.key_data(key)
        if key.shape != (2,):
            raise ValueError(
                f"an exported policy draws by threefry keys, of shape (2,), got {key.shape}; "
                "make one by jax.random.key(seed, impl='threefry2x32')"
            )
        return self.programs["sampled"].call(inputs, hidden, key)


def load_exported(path: str | Path) -> ExportedPolicy:
    """Read what `Policy.export` wrote.

    Raises:
        ValueError: If the file is missing, damaged or of another format.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{str(path)!r} does not exist: no exported policy")
    return unpack(path.read_bytes(), str(path))


def pack(
    signature: Signature,
    programs: Mapping[str, jax.export.Exported],
    versions: Mapping[str, str],
) -> bytes:
    """Pack programs, their signature, and versions into the bytes of a file."""
    batch = programs[PROGRAMS[0]].in_avals[0].shape[0]
    header = {
        "format": 1 if _is_plain(signature.row_form) else 2,
        **describe(signature, batch if isinstance(batch, int) else str(batch)),
        "platforms": list(programs[PROGRAMS[0]].platforms),
        "versions": dict(versions),
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        # Without a date, so that the same policy gives the same bytes.
        file.writestr(zipfile.ZipInfo(HEADER), json.dumps(header, indent=2))
        for name, program in programs.items():
            file.writestr(zipfile.ZipInfo(name), bytes(program.serialize()))
    return content.getvalue()


def describe(signature: Signature, batch: int | str) -> dict[str, Any]:
    """Describe inputs and outputs as plain data, for `batch` rows or a dimension of that name."""
    action = {
        name: {"shape": [batch, *shape], "dtype": dtype}
        for name, (shape, dtype) in signature.action.items()
    }
    return {
        "policy": signature.policy,
        "env": signature.env,
        "agents": {
            name: {
                "slot": agent_shape.slot,
                "feature_shape": list(agent_shape.feature_shape),
                "num_actions": agent_shape.num_actions,
                "action": agent_shape.form.as_json(),
            }
            for name, agent_shape in signature.agent_shapes.items()
        },
        "inputs": {
            name: {"shape": [batch, *shape], "dtype": dtype}
            for name, (shape, dtype) in signature.inputs.items()
        },
        "hidden": [{"shape": [batch, *x.shape], "dtype": x.dtype.name} for x in signature.hidden],
        "action": action.get("action", action),
    }


def unpack(content: bytes, where: str) -> ExportedPolicy:
    """Read bytes from `pack`; errors name `where` they come from.

    Raises:
        ValueError: If they are damaged, of another format, or no exported policy.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            header = json.loads(_read(file, HEADER, MAX_HEADER))
            version = header["format"]
            blobs = {name: bytearray(_read(file, name, len(content))) for name in PROGRAMS}
        if version in FORMATS:
            signature = _signature(header)
            programs = {name: jax.export.deserialize(blob) for name, blob in blobs.items()}
            _check_programs(signature, header, programs)
            return ExportedPolicy(signature, programs, header)
    except Exception as error:  # a damaged file can raise any error
        reason = printable(f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise ValueError(f"{where!r} is damaged or no exported policy ({reason})") from error
    formats = " and ".join(map(str, FORMATS))
    raise ValueError(f"{where!r} has format {version!r}; this version reads {formats}")


def _is_plain(form: Form) -> bool:
    """Return whether actions are one choice, or numbers in a vector."""
    return form.kind in ("choice", "numbers")


def _read(file: zipfile.ZipFile, name: str, num_bytes: int) -> bytes:
    """Read an uncompressed part of the file, of limited size."""
    info = file.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > num_bytes:
        raise ValueError(f"{name} would have {info.file_size:,} bytes, at most {num_bytes:,}")
    return file.read(info)


def _signature(header: Any) -> Signature:
    """Read a policy's signature from an untrusted header.

    Raises:
        Exception: Of any kind, at the first thing that is not as `pack` writes it.
    """
    batch = header["inputs"]["features"]["shape"][0]
    if not isinstance(batch, str) and not _is_size(batch):
        raise ValueError(f"{batch!r} is no number of rows")
    inputs = {name: _row_shape(spec, batch) for name, spec in header["inputs"].items()}
    signature = Signature(
        policy=header["policy"],
        env=header["env"],
        agent_shapes={
            name: AgentShape(own["slot"], tuple(own["feature_shape"]), _form(own, header))
            for name, own in header["agents"].items()
        },
        feature_shape=inputs["features"],
        asks_agent="agent" in inputs,
        prev_action="prev_action" in inputs or "prev_choices" in inputs,
        prev_reward="prev_reward" in inputs,
        hidden=tuple(
            jax.ShapeDtypeStruct(_row_shape(leaf, batch), leaf["dtype"])
            for leaf in header["hidden"]
        ),
    )
    if not isinstance(signature.policy, str) or not isinstance(signature.env, str):
        raise ValueError("its policy or environment is not named by a word")
    if not signature.agent_shapes:
        raise ValueError("it plays no agent")
    for name, (slot, feature_shape, form) in signature.agent_shapes.items():
        sizes = (slot + 1, *feature_shape, form.factors.width)
        fits = len(feature_shape) == len(signature.feature_shape) and all(map(_is_size, sizes))
        widest = zip(feature_shape, signature.feature_shape, strict=fits)
        if not fits or any(own > wide for own, wide in widest):
            raise ValueError(f"agent {name!r} does not fit what the policy takes")
    expected = {name: shape for name, (shape, _) in signature.inputs.items()}
    if inputs != expected:
        raise ValueError(f"its agents need the inputs {expected}, but it has {inputs}")
    return signature


def _form(agent: Any, header: Any) -> Form:
    """Read the form of an agent's actions; older files have only the number of them."""
    if "action" in agent:
        return form_from_json(agent["action"], _is_size)
    is_float = header["action"]["dtype"] == "float32"
    return form_from_json(
        {"numbers": [agent["num_actions"]]} if is_float else {"choice": agent["num_actions"]},
        _is_size,
    )


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**31


def _row_shape(spec: Any, batch: Any) -> tuple[int, ...]:
    """Read the shape of a row of an array whose first axis must have `batch` of them."""
    first, *row = spec["shape"]
    if first != batch or not all(map(_is_size, row)):
        raise ValueError(f"{spec['shape']!r} is no shape of {batch!r} rows")
    return tuple(row)


def _check_programs(
    signature: Signature, header: Any, programs: Mapping[str, jax.export.Exported]
) -> None:
    """Reject programs whose inputs or outputs differ from the header.

    Raises:
        ValueError: If one does.
    """
    inputs = {name: _said(header["inputs"][name]) for name in signature.inputs}
    hidden = [_said(leaf) for leaf in header["hidden"]]
    if inputs.keys() != header["inputs"].keys():
        raise ValueError(f"it has the inputs {', '.join(header['inputs'])}")
    key_data = {"greedy": [], "sampled": [((2,), "uint32")]}
    for name, program in programs.items():
        takes = [*jax.tree.leaves((inputs, hidden), is_leaf=_is_said), *key_data[name]]
        action = header["action"]
        parts = [action] if "dtype" in action else [action[part] for part in signature.action]
        gives = [*map(_said, parts), *hidden]
        for said, avals in ((takes, program.in_avals), (gives, program.out_avals)):
            found = [
                (
                    tuple(size if isinstance(size, int) else str(size) for size in aval.shape),
                    aval.dtype.name,
                )
                for aval in avals
            ]
            if found != said:
                raise ValueError(f"{name} is a program for {found}, not for {said}")
        _check_calls(name, program.mlir_module())


def _check_calls(name: str, text: str) -> None:
    """Raise an error if a program does more than compute on arrays.

    Args:
        name: of the program.
        text: its operations, as MLIR prints them.

    Raises:
        ValueError: If it calls the host, or an unknown operation.
    """
    called = {next(filter(None, groups), "") for groups in _CALLED.findall(text)}
    unknown = sorted(call for call in called if not _CALLS.fullmatch(call))
    unknown += sorted(set(_HOST_CALL.findall(text)))
    if unknown:
        raise ValueError(f"{name} calls {', '.join(unknown)}, which no exported policy may do")


def _said(spec: Any) -> tuple[tuple[Any, ...], str]:
    return tuple(spec["shape"]), spec["dtype"]


def _is_said(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], str)
