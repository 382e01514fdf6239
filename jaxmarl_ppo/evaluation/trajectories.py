"""Complete episodes step by step, and their file format.

The file is NumPy's own archive of arrays: every field of `Trajectories` under its name, and the
number `format`. Reading it executes no code, and `numpy.load(path)` reads it without this package.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import numpy as np

from jaxmarl_ppo.config.checks import check_path
from jaxmarl_ppo.machine.archives import Declared, Npz
from jaxmarl_ppo.machine.files import open_atomically
from jaxmarl_ppo.machine.text import printable

# Those that are read. Format 2 has `choices` and `numbers` in place of `action`.
FORMATS = (1, 2)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Holds `E` complete episodes of up to `T` steps.

    Observations are from before the step, outcomes from after it. Beyond an episode's end masks are
    False, players -1 and numbers 0; but network outputs are NaN wherever no network decided.

    Attributes:
        env: name of the environment.
        greedy: whether networks took the most likely actions instead of samples.
        agents: names of the `A` slots.
        players: names of the `Q` players that could hold one.
        policies: names of the `P` policies.
        policy_of: the policy that each player belongs to, as an index into `policies`; -1 for none.
        episode: numbers of the episodes.
        length: steps of each.
        finished: False where the step limit cut an episode off.
        valid: the steps that belong to the episode.
        features: observed by the agents.
        action_mask: legal options of all choices, and the numbers that an action has.
        agent_mask: which slots had to act.
        alive: which slots held an agent.
        is_first: the next decision is the first of a life.
        player: the player of the slot, as an index into `players`; -1 for none.
        log_prob: of the action.
        value: the critic's, in units of the rewards that it was trained on.
        reward: earned at the step.
        terminated: the life ended at the step.
        truncated: the life was cut off at the step.
        action: as the environment took it, 0 for slots that did not have to act; None where agents
            have several choices, or choices and numbers.
        unsquashed_action: numbers as drawn, to which the density `log_prob` refers; NaN where no
            network decided; None where actions are not numbers alone.
        choices: chosen options, in place of `action`; 0 for slots that did not have to act.
        numbers: numbers as the environment took them, alike.
        numbers_as_drawn: as `unsquashed_action`, of `numbers`.
    """

    # Beside its type, the axes of each, `*` for any further ones, and the kinds of its values, as
    # NumPy calls them.
    env: Annotated[str, "", "U"]
    greedy: Annotated[bool, "", "b"]
    agents: Annotated[tuple[str, ...], "A", "U"]
    players: Annotated[tuple[str, ...], "Q", "U"]
    policies: Annotated[tuple[str, ...], "P", "U"]
    policy_of: Annotated[np.ndarray, "Q", "i"]
    episode: Annotated[np.ndarray, "E", "i"]
    length: Annotated[np.ndarray, "E", "i"]
    finished: Annotated[np.ndarray, "E", "b"]
    valid: Annotated[np.ndarray, "ET", "b"]
    features: Annotated[np.ndarray, "ETA*", "biuf"]
    action_mask: Annotated[np.ndarray, "ETAW", "b"]
    agent_mask: Annotated[np.ndarray, "ETA", "b"]
    alive: Annotated[np.ndarray, "ETA", "b"]
    is_first: Annotated[np.ndarray, "ETA", "b"]
    player: Annotated[np.ndarray, "ETA", "i"]
    log_prob: Annotated[np.ndarray, "ETA", "f"]
    value: Annotated[np.ndarray, "ETA", "f"]
    reward: Annotated[np.ndarray, "ETA", "f"]
    terminated: Annotated[np.ndarray, "ETA", "b"]
    truncated: Annotated[np.ndarray, "ETA", "b"]
    action: Annotated[np.ndarray | None, "ETA*", "if"] = None
    unsquashed_action: Annotated[np.ndarray | None, "ETAW", "f"] = None
    choices: Annotated[np.ndarray | None, "ETAC", "i"] = None
    numbers: Annotated[np.ndarray | None, "ETAN", "f"] = None
    numbers_as_drawn: Annotated[np.ndarray | None, "ETAN", "f"] = None


# By name, the axes of every array, and the kinds of its values.
_LAYOUT: dict[str, tuple[str, str]] = {
    name: get_args(hint)[1:]
    for name, hint in get_type_hints(Trajectories, include_extras=True).items()
}
_OPTIONAL = {"unsquashed_action"}
_IN_PLACE_OF_ACTION = {"choices", "numbers", "numbers_as_drawn"}


def check_new_record(path: Any) -> Path:
    """Return a path at which a record can be written.

    Raises:
        ValueError: If it is not a path or not an archive's name, or if the folder does not exist or
            the file does.
    """
    path = Path(check_path("record", path))
    if path.suffix != ".npz":
        raise ValueError(f"record must be the path of a new .npz file, got {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(
            f"folder {str(path.parent)!r} does not exist, so {path.name} cannot lie in it"
        )
    if path.exists():
        raise ValueError(f"{str(path)!r} exists; choose another name or remove it")
    return path


def save_trajectories(path: str | Path, trajectories: Trajectories) -> None:
    """Write episodes into a new file, array by array, so that none is in memory twice.

    Raises:
        ValueError: See `check_new_record`.
    """
    path = check_new_record(path)
    arrays = {name: getattr(trajectories, name) for name in _LAYOUT}
    with open_atomically(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        version = 1 if trajectories.choices is None else 2
        for name, array in {"format": version, **arrays}.items():
            if array is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)


def load_trajectories(path: str | Path) -> Trajectories:
    """Read a record of `evaluate_policies(..., record=path)` or `evaluate --record`.

    Raises:
        ValueError: If the file is missing, damaged or of another format.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{str(path)!r} does not exist: no record of episodes")
    arrays: dict[str, np.ndarray] = {}
    try:
        arrays: dict[str, np.ndarray] = {}
        with Npz(path) as file:
            version = _read_format(file)
            if version in FORMATS:
                _check_layout(file.declared, version)
                arrays = {name: file.array(name) for name in _LAYOUT if name in file.declared}
                _check_values(arrays)
    except Exception as error:  # a damaged archive can raise any error
        reason = printable(" ".join(str(error).split())) or type(error).__name__
        raise ValueError(f"{str(path)!r} is damaged or no record of episodes: {reason}") from error
    if version not in FORMATS:
        formats = " and ".join(map(str, FORMATS))
        raise ValueError(f"{str(path)!r} has format {version}; this version reads {formats}")
    plain = {
        name: array.item() if array.ndim == 0 else tuple(array.tolist())
        for name, array in arrays.items()
        if array.ndim == 0 or array.dtype.kind == "U"
    }
    return Trajectories(**{**arrays, **plain})


def _read_format(file: Npz) -> int | None:
    """Read the number of the format; None where there is none."""
    declared = file.declared.get("format")
    if declared is None or declared.shape != () or declared.dtype.kind != "i":
        return None
    return file.array("format").item()


def _check_layout(arrays: Mapping[str, Declared], version: int) -> None:
    """Reject arrays whose shapes are not those of complete episodes, in a version of the format.

    Raises:
        ValueError: If one is missing, unknown, or of another shape or kind.
    """
    others = _IN_PLACE_OF_ACTION if version == 1 else {"action", *_OPTIONAL}
    known = _LAYOUT.keys() - others
    missing = sorted(known - _OPTIONAL - arrays.keys())
    unknown = sorted(arrays.keys() - known - {"format"})
    if missing or unknown:
        raise ValueError(
            f"it lacks {', '.join(missing)}" if missing else f"it has unknown {', '.join(unknown)}"
        )
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        axes, kinds = _LAYOUT.get(name, ("", "i"))
        letters = axes.removesuffix("*")
        rank = len(array.shape)
        ranks = rank >= len(letters) if "*" in axes else rank == len(letters)
        if not ranks or array.dtype.kind not in kinds:
            raise ValueError(f"{name} is {array.dtype}{list(array.shape)}")
        for letter, size in zip(letters, array.shape, strict=False):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"{name} has shape {list(array.shape)}, which fits no other array")


def _check_values(arrays: Mapping[str, np.ndarray]) -> None:
    """Reject arrays whose values are not those of complete episodes.

    Raises:
        ValueError: If one contradicts another.
    """
    steps = np.arange(arrays["valid"].shape[1])
    if not np.array_equal(arrays["valid"], steps < arrays["length"][:, None]):
        raise ValueError("valid and length contradict each other")
    num_players, num_policies = len(arrays["players"]), len(arrays["policies"])
    for name, size in (("player", num_players), ("policy_of", num_policies)):
        if not ((arrays[name] >= -1) & (arrays[name] < size)).all():
            raise ValueError(f"{name} has a number that is not from -1 to {size - 1}")
