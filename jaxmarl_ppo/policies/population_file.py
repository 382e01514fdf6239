"""The players of a run in a file, read together or one by one. Reading executes no code."""

import hashlib
from pathlib import Path
from typing import Any

import jax
from flax import serialization, traverse_util

from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.machine.archives import restore_msgpack
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.machine.text import listed, printable
from jaxmarl_ppo.policies.snapshot_pools import snapshot_name
from jaxmarl_ppo.types import PolicyStack, Population

FORMAT = 3
# Format 1 had no checksum, and stored the players' table itself instead of its bytes. Format 2
# called policy groups banks.
READABLE_FORMATS = (1, 2, FORMAT)
POLICIES_FILE = "params/policies.msgpack"


def save_population(
    path: Path, names: tuple[str, ...], population: Population, make_folder: bool = True
) -> None:
    """Write all players atomically.

    Args:
        path: the file.
        names: of all players, group by group.
        population: the players.
        make_folder: as in `open_atomically`.
    """
    state = serialization.to_state_dict(jax.device_get(population))
    packed = serialization.msgpack_serialize({"names": list(names), "population": state})
    digest = hashlib.sha256(packed).hexdigest()
    content = {"format": FORMAT, "sha256": digest, "players": packed}
    write_atomically(path, serialization.msgpack_serialize(content), make_folder)


def load_population(path: Path, names: tuple[str, ...], expected: Population) -> Population:
    """Load what `save_population` wrote, and check names and shapes.

    Args:
        path: the file.
        names: that the file must have.
        expected: of the shapes that it must have.

    Raises:
        ValueError: If the file is missing, damaged, of another format, or holds other players.
    """
    found, state = _read(path)
    if found != names:
        raise ValueError(
            f"{path} holds the policies {listed(found)}, but the configuration has {listed(names)}"
        )
    _check_shapes(path, state, serialization.to_state_dict(expected))
    return jax.tree.map(jax.numpy.asarray, serialization.from_state_dict(expected, state))


def load_player(path: Path, name: str, expected: PolicyStack) -> PolicyStack:
    """Load one network or snapshot from a file of players.

    Args:
        path: the file.
        name: of the player; of a snapshot, `past@it150` or that of its place, `past@2`.
        expected: one policy, of the shapes that it must have.

    Raises:
        ValueError: If the file is missing, damaged or of another format, or its player is missing
            or of another shape.
    """
    names, state = _read(path)
    try:
        own, networks = _find_player(names, state, name)
    except Exception as error:  # of a table that was not written by `save_population`
        reason = printable(f"{type(error).__name__}: {error}")
        raise ValueError(f"{path} does not hold policies by group ({reason})") from error
    if own is None:
        raise ValueError(
            f"{path} holds no network {show(name)}; it has {listed(networks) or 'none'}"
        )
    _check_shapes(path, own, serialization.to_state_dict(expected))
    return jax.tree.map(jax.numpy.asarray, serialization.from_state_dict(expected, own))


def _find_player(
    names: tuple[str, ...], state: Any, name: str
) -> tuple[Any | None, tuple[str, ...]]:
    """Find a player's rows, and the names of all networks."""
    groups, called = state["policy_groups"], _by_iteration(names, state.get("league", {}))
    first, stacks = 0, [groups[str(index)] for index in range(len(groups))]
    for stack in stacks:
        # Players are named group by group, and every leaf has a row for each member of its group.
        size = len(jax.tree.leaves(stack["params"])[0])
        for own in (called[first : first + size], names[first : first + size]):
            if name in own:
                row = own.index(name)
                return jax.tree.map(lambda x, row=row: x[row], stack), called
        first += size
    return None, called[:first]


def _by_iteration(names: tuple[str, ...], league: Any) -> tuple[str, ...]:
    """Name snapshots by their iterations; the file has the names of their places."""
    called, pools = list(names), league.get("pools", {})
    firsts = [player for player, name in enumerate(names) if name.endswith("@0")]
    if len(firsts) != len(pools):  # some policy is called like a place
        return names
    for index, first in enumerate(firsts):
        pool, name = pools[str(index)], names[first].removesuffix("@0")
        taken = pool["added_at"].tolist()[: int(pool["count"])]
        called[first : first + len(taken)] = [snapshot_name(name, k) for k in taken]
    return tuple(called)


def _read(path: Path) -> tuple[tuple[str, ...], Any]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist: the run saved no parameters")
    try:
        content: Any = restore_msgpack(path.read_bytes())
        version = content["format"]
        if version in (2, FORMAT):
            if hashlib.sha256(content["players"]).hexdigest() != content["sha256"]:
                raise ValueError("it differs from its checksum")
            content = restore_msgpack(content["players"])
        if version in READABLE_FORMATS:
            names = content["names"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"its names are {show(names)}")
            return tuple(names), _present_names(content["population"])
    except Exception as error:  # a damaged file can fail anywhere inside the decoder
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path} is damaged or not a file of policies ({printable(reason)})"
        ) from error
    raise ValueError(
        f"{path} is of format {show(version)}; this version of jaxmarl_ppo reads the formats "
        f"{', '.join(map(str, READABLE_FORMATS))}"
    )


def _present_names(population: Any) -> Any:
    """Rename the groups of policies in older files to their present name."""
    if not isinstance(population, dict) or "banks" not in population:
        return population
    return {("policy_groups" if key == "banks" else key): x for key, x in population.items()}


def _check_shapes(path: Path, state: Any, expected: Any) -> None:
    """Compare nested tables of arrays leaf by leaf, so that the message can name the leaf."""

    def leaves(tree: Any) -> dict[str, str]:
        flat = traverse_util.flatten_dict(tree, keep_empty_nodes=True)
        return {"/".join(map(str, path)): _describe(leaf) for path, leaf in flat.items()}

    found, wanted = leaves(state if isinstance(state, dict) else {"": state}), leaves(expected)
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"{path} does not fit the configuration: {printable(key)} is "
                f"{found.get(key, 'absent')} in the file, but should be {wanted.get(key, 'absent')}"
            )


def _describe(leaf: Any) -> str:
    if leaf is None:
        return "absent"
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is not None:
        return f"{dtype}{list(shape)}"
    return "empty" if leaf is traverse_util.empty_node else show(leaf)
