"""Checkpoints of a group of runs: those of its members, and one that lists them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_ppo.policies.snapshot_files import sha256_of
from jaxmarl_ppo.runs.checkpoints import CheckpointData, write_checkpoint, write_complete
from jaxmarl_ppo.runs.files import MANIFEST_FILE, MEMBERS
from jaxmarl_ppo.runs.manifest import RunPosition, read_manifest


@dataclass(frozen=True)
class GroupSnapshot:
    """Holds the content of a checkpoint of a group of runs.

    Attributes:
        record: the content of the group's `config.json`.
        position: the progress of the group.
        members: by the name of a member's folder, its snapshot, or what has stopped it for good.
        pbt: the state of population-based training, as JSON; None without it.
    """

    record: Mapping[str, Any]
    position: RunPosition
    members: Mapping[str, CheckpointData | str]
    pbt: Mapping[str, Any] | None = None


def write_group_checkpoint(group_dir: Path, snapshot: GroupSnapshot) -> Path:
    """Write the checkpoints of all members, and then that of the group, which refers to them.

    The group has no checkpoint of this iteration until the last file is complete.

    Raises:
        OSError: If it cannot be written.
    """
    members: dict[str, Any] = {}
    for name, own in snapshot.members.items():
        if isinstance(own, str):
            members[name] = {"stopped": own}
        else:
            folder = write_checkpoint(group_dir / MEMBERS / name, own)
            members[name] = {"sha256": sha256_of(folder / MANIFEST_FILE)}
    further = {"members": members} | ({} if snapshot.pbt is None else {"pbt": snapshot.pbt})
    return write_complete(group_dir, snapshot.record, snapshot.position, lambda _: None, **further)


def read_stopped(folder: Path) -> dict[str, str]:
    """Read from a group's checkpoint which members were stopped for good, and why."""
    members = read_manifest(folder).get("members", {})
    return {name: own["stopped"] for name, own in members.items() if "stopped" in own}


def read_pbt(folder: Path) -> dict[str, Any] | None:
    """Read the state of population-based training from a group's checkpoint."""
    return read_manifest(folder).get("pbt")
