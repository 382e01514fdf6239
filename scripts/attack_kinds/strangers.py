"""Run folders, configurations and searches of strangers, which name code of theirs."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from attack_kinds.attempts import Attempt, command, train_tiny
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import CONFIG_FILE, MANIFEST_FILE
from jaxmarl_ppo.runs.manifest import read_own_position, write_manifest

GROUPS = {"all": ["a", "b"]}
COMMANDS = {
    "evaluate": "evaluate run",
    "evaluate --checkpoint": "evaluate run --checkpoint newest",
    "evaluate --cross-play": "evaluate run --cross-play",
    "export": "export run",
    "watch": "watch run",
    "play": "play run --export play.html",
    "report": "report run",
    "resume": "resume run --total-env-steps 640",
    "train a record": "train --config run/config.json --run-dir new",
    "train a file": "train run.json --run-dir new",
    "sweep a file": "sweep space.json --run-dir new",
    "sweep a folder": "sweep run",
}


def strangers_records(place: Path) -> Iterator[Attempt]:
    """Read files whose environment is made by a module, by every command."""
    mark = place / "imported"
    (place / "tracer.py").write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    train_tiny(place / "good")
    before = Path.cwd()
    os.chdir(place)
    sys.path.insert(0, str(place))
    try:
        for form, (name, kwargs) in _forms(place).items():
            _write(place, name, kwargs)
            for called, words in COMMANDS.items():
                ended = command(*words.split())
                wrong = "its code was run" if mark.exists() else ""
                if not wrong and ended.status == 0:
                    wrong = "it was used without a word"
                mark.unlink(missing_ok=True)
                sys.modules.pop("tracer", None)
                shutil.rmtree(place / "new", ignore_errors=True)
                yield Attempt("strangers' records", f"{form}, {called}", wrong, ended.last)
    finally:
        os.chdir(before)
        sys.path.remove(str(place))


def _forms(place: Path) -> dict[str, tuple[str, dict[str, object]]]:
    file = f"{place}/tracer.py:Game"
    rllib = {"env": "rllib", "groups": GROUPS, "env_kwargs": {"env_id": file}}
    twice = {"env": "joined", "groups": GROUPS, "env_kwargs": rllib}
    maps = {"map_size": [9, 9], "dir_path": str(place)}
    return {
        "a file": (file, {}),
        "a module": ("tracer:Game", {}),
        "rllib": ("rllib", {"env_id": file}),
        "rllib, a module": ("rllib", {"env_id": "tracer:Game"}),
        "pettingzoo": ("pettingzoo", {"env_id": "tracer"}),
        "gymnasium": ("gymnasium", {"env_id": "tracer:Game-v0"}),
        "a wrapper": ("grouped", {"env": file, "groups": GROUPS}),
        "a wrapper in a wrapper": ("grouped", {"env": "joined", "env_kwargs": twice}),
        "pickled maps": (
            "jaxmarl",
            {"env_id": "jaxnav", "map_id": "Grid-Buffer", "map_params": maps},
        ),
    }


def _write(place: Path, name: str, kwargs: dict[str, object]) -> None:
    """Write the run, the configuration and the search of a stranger."""
    kwargs = {"groups": GROUPS, **kwargs} if name == "grouped" else kwargs
    shutil.rmtree(place / "run", ignore_errors=True)
    shutil.copytree(place / "good", place / "run")
    for folder in (place / "run", *checkpoints_of(place / "run")):
        _forge(folder, name, kwargs)
    described = {"env": {"name": name, "kwargs": kwargs}, "total_env_steps": 320}
    (place / "run.json").write_text(json.dumps(described))
    search = {"space": {"seed": [1, 2]}, "search": {"num_trials": 2}}
    whole = {**described, "objective": {"measure": "all/return_mean"}, **search}
    (place / "space.json").write_text(json.dumps(whole))
    (place / "run" / "search.json").write_text(json.dumps(search))


def _forge(folder: Path, name: str, kwargs: dict[str, object]) -> None:
    """Let a record say how its environment was made, with checksums that are right."""
    manifest = folder / MANIFEST_FILE
    position = read_own_position(folder) if manifest.exists() else None
    record = json.loads((folder / CONFIG_FILE).read_text())
    record["env"]["make"] = {"name": name, "kwargs": kwargs}
    (folder / CONFIG_FILE).write_text(json.dumps(record))
    if position is not None:
        manifest.unlink()
        write_manifest(folder, record, position, {})
