"""Run folders: what a run saves, and loading it. Loading never executes code."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import jax
from flax import linen as nn

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_env_names import is_own, missing_file
from jaxmarl_ppo.config import as_json, env_as_json
from jaxmarl_ppo.config.as_json import FORMAT, READABLE_FORMATS
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner, to_evaluate
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.files import names_in, path_part
from jaxmarl_ppo.machine.text import listed
from jaxmarl_ppo.policies.population_file import load_population
from jaxmarl_ppo.policies.snapshot_files import reject_group
from jaxmarl_ppo.runs.checkpoints import checkpoints_of, newest_sound
from jaxmarl_ppo.runs.files import (
    CHECKPOINTS,
    CONFIG_FILE,
    CURVE_FILE,
    LOCK_FILE,
    MEMBERS,
    POLICIES_FILE,
)
from jaxmarl_ppo.runs.named_env import check_allow_imports, check_effect, make_env
from jaxmarl_ppo.types import Population, PyTree

T = TypeVar("T")

_PACKAGES = ("jaxmarl-ppo", "jax", "jaxlib", "flax", "optax")


@dataclass(frozen=True)
class RecordedRun:
    """Holds the configuration and environment of a run."""

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig


@dataclass(frozen=True)
class LoadedRun(RecordedRun):
    """Holds a finished run, ready to act or to continue training."""

    learner: Learner
    population: Population


def load_run(
    run_dir: str | Path,
    *,
    env: MultiAgentEnv | str | None = None,
    env_params: PyTree | None = None,
    network: nn.Module | None = None,
    config: TrainConfig | None = None,
    allow_imports: Sequence[str] = (),
) -> LoadedRun:
    """Rebuild environment, learner and trained policies of a run.

    Registered environments are made again from the record. Code named in the record, as the
    environment or an argument of an adapter, is imported only if the caller also names it: files
    must not decide which code runs.

    Args:
        run_dir: its folder, or that of one of its checkpoints. An unfinished run is loaded from its
            newest checkpoint.
        env: an environment; or the name of code that makes it, such as `package.module:Class`,
            `path/to/file.py:Class`, or a function there. Needed where the record has no such name,
            since `Trainer` was given an environment that Python code made: it is then made without
            arguments. Where the record has the name, it is to be named once more, and is made with
            the recorded arguments.
        env_params: instead of the recorded parameters.
        network: needed where `default_policy.network` was a custom module.
        config: the run's complete configuration, needed where other parts of it cannot be rebuilt
            from a file: a mapping function, a scripted function, a module of a single policy.
        allow_imports: further names of code that the record may have imported.

    Raises:
        ValueError: If a file is missing, damaged, or does not fit.
    """
    reject_group(Path(run_dir))
    recorded = read_run(
        run_dir,
        env=env,
        env_params=env_params,
        network=network,
        config=config,
        allow_imports=allow_imports,
    )
    # The run's initial policies and its devices are no longer needed, and may be gone.
    learner = make_learner(
        recorded.env, recorded.env_params, to_evaluate(recorded.config), strict=False
    )
    expected = jax.eval_shape(learner.init_population, jax.random.key(0))
    population = load_newest(
        Path(run_dir), lambda path: load_population(path, learner.players.names, expected)
    )
    return LoadedRun(recorded.env, recorded.env_params, recorded.config, learner, population)


def read_run(
    run_dir: str | Path,
    *,
    env: MultiAgentEnv | str | None = None,
    env_params: PyTree | None = None,
    network: nn.Module | None = None,
    config: TrainConfig | None = None,
    allow_imports: Sequence[str] = (),
) -> RecordedRun:
    """Read a run's configuration from its record; the arguments are those of `load_run`.

    Raises:
        ValueError: If the record is missing or damaged, or something in it cannot be rebuilt.
    """
    record = read_record(Path(run_dir))
    if config is None:
        recorded = record["config"]
        if record["format"] == 1 and isinstance(recorded, Mapping):
            recorded = as_json.from_format_1(recorded)
        config = as_json.config_from_dict(recorded, network)
    elif network is not None:
        raise ValueError("network has no effect beside config; drop one of them")
    if isinstance(env, MultiAgentEnv):
        if allow_imports:
            raise ValueError(f"allow_imports={allow_imports} has no effect beside an environment")
        known_params = env.default_params if env_params is None else None
    else:
        env, known_params = _recorded_env(record["env"], env, check_allow_imports(allow_imports))
    _check_same_agents(env, record["env"])
    if env_params is None:
        env_params = env_as_json.params_from_json(record["env"]["params"], known_params)
    return RecordedRun(env, env_params, config)


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a run, the content of its `config.json`.

    Raises:
        ValueError: If it is missing, damaged, or of another version.
    """
    _check_is_there(folder)
    record = as_json.read_json(folder / CONFIG_FILE)
    missing = [key for key in ("format", "env", "config") if key not in record]
    if missing:
        raise ValueError(f"{folder / CONFIG_FILE} lacks {', '.join(missing)}: not a run's record")
    if record["format"] not in READABLE_FORMATS:
        versions = record.get("versions")
        writer = versions.get("jaxmarl-ppo") if isinstance(versions, Mapping) else None
        raise ValueError(
            f"{folder} has format {show(record['format'])}, written by jaxmarl-ppo "
            f"{show(writer) if isinstance(writer, str) else 'of an unknown version'}; this version "
            f"reads the formats {', '.join(map(str, READABLE_FORMATS))}"
        )
    env_as_json.check_env_record(record["env"])
    return record


def _check_is_there(folder: Path) -> None:
    if folder.is_dir():
        return
    if folder.parent.name == CHECKPOINTS and folder.parent.is_dir():
        raise ValueError(
            f"checkpoint {str(folder)!r} is not there, or not any more: the process that trains "
            "keeps the newest ones and the best. Without --checkpoint the newest policies are read"
        )
    raise ValueError(f"run folder {str(folder)!r} does not exist")


def members_of(folder: Path) -> list[Path]:
    """List the folders of the runs in a group's, in the order of their seeds; none in a run's."""
    found = [path for path in (folder / MEMBERS).glob("*") if (path / CONFIG_FILE).is_file()]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def saved_nothing(folder: Path) -> bool:
    """Return whether a folder holds a run that was killed before its first save.

    Only runs that `train` began have an id; the record of a search has none.

    Raises:
        ValueError: If its record is damaged.
    """
    if not all(name.startswith(".") for name in names_in(folder / CHECKPOINTS)):
        return False
    # Both are written at the end of a run; a group writes one of them.
    if (folder / POLICIES_FILE).exists() or (folder / CURVE_FILE).exists():
        return False
    return (folder / CONFIG_FILE).is_file() and "id" in read_record(folder)


def find_policies(folder: Path) -> Path:
    """Find the newest policies of a run: those of its end, or of its newest sound checkpoint."""
    path = folder / POLICIES_FILE
    if path.is_file() or not checkpoints_of(folder):
        return path
    return newest_sound(folder)[0] / POLICIES_FILE


def load_newest(folder: Path, load: Callable[[Path], T]) -> T:
    """Load the newest policies of a run, which a training process may be replacing.

    Args:
        folder: of the run, or of one of its checkpoints.
        load: reads the given file.

    Raises:
        ValueError: As `load`, for a file that exists or that no newer one has replaced.
    """
    while True:
        path = find_policies(folder)
        try:
            return load(path)
        except ValueError:
            _check_is_there(folder)
            # Removed between search and read: there is a newer one.
            if path.is_file() or find_policies(folder) == path:
                raise


def run_record(
    env: MultiAgentEnv, env_params: PyTree, config: TrainConfig, run_id: str | None = None
) -> dict[str, Any]:
    """Make the content of `config.json`: all that is needed to repeat and to load the run.

    Args:
        env: of the run.
        env_params: of the run.
        config: of the run.
        run_id: random id of the run, which its checkpoints name; None for none.
    """
    made = None if env.made_as is None else dict(zip(("name", "kwargs"), env.made_as, strict=True))
    return {
        "format": FORMAT,
        **({} if run_id is None else {"id": run_id}),
        "env": {
            "name": env.name,
            "make": made,
            "params": env_as_json.params_to_json(env_params),
            "agents": list(env.agents),
        },
        "config": as_json.config_to_dict(as_json.with_explicit_network(config)),
        "versions": {name: _version(name) for name in _PACKAGES},
        "platform": {
            "backend": jax.default_backend(),
            "device": jax.devices()[0].device_kind,
            "num_devices": jax.device_count(),
            "num_processes": jax.process_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def new_run_dir(run_dir: str | Path | None, name: str) -> Path:
    """Choose the folder of a new run, without creating it.

    Args:
        run_dir: the user's choice; None for `runs/<name>-<timestamp>`.
        name: of the run.

    Raises:
        ValueError: If something is there already.
    """
    if run_dir is None:
        stem = f"{path_part(name)}-{datetime.now():%Y%m%d-%H%M%S}"
        folder, count = Path("runs") / stem, 1
        while folder.exists():
            count += 1
            folder = Path("runs") / f"{stem}-{count}"
        return folder
    check_unused(Path(run_dir))
    return Path(run_dir)


def check_unused(folder: Path) -> None:
    """Reject a folder that is not empty.

    Raises:
        ValueError: If there is.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} is a file; choose another name")
    # A process that died before its first write leaves a lock.
    if folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir()):
        raise ValueError(
            f"run folder {str(folder)!r} exists and is not empty; choose another or remove it"
        )


def _recorded_env(
    record: Mapping[str, Any], again: object, allow_imports: Sequence[str] = ()
) -> tuple[MultiAgentEnv, PyTree]:
    """Make the environment of a record, and its default parameters.

    Args:
        record: of the environment.
        again: the name of the user's code that may be imported, which makes the environment where
            the record does not say what does, or None.
        allow_imports: further such names.

    Raises:
        ValueError: If it cannot be made, or not without the user's permission.
    """
    if not isinstance(again, str | None):
        raise ValueError(f"env must be an environment or the name of one, got {again!r}")
    made, name = record["make"], record["name"]
    if (
        made is not None
        and not is_own(made["name"])
        and made["name"] not in jaxmarl_envs.all_names()
    ):
        made = None
    gone = None if made is None else missing_file(made["name"])
    if made is not None and gone is None:
        again = [] if again is None else [again]
        env, params = make_env(made["name"], made["kwargs"], [*again, *allow_imports], "the run")
        check_effect(env, [*again, *allow_imports])
        return env, params
    if again is None or (made is not None and again == made["name"]):
        why = (
            f"environment {name!r} was made in Python, or is not registered here"
            if made is None
            else f"the run's environment is {made['name']!r}, but file {str(gone)!r} is gone"
        )
        raise ValueError(
            f"{why}; name what makes it: --env path/to/file.py:Class or package.module:function, "
            "or from Python load_run(run_dir, env=MyEnv(...))"
        )
    kwargs = {} if made is None else made["kwargs"]
    env, params = make_env(again, kwargs, [again, *allow_imports], "--env")
    check_effect(env, allow_imports)
    if env.name != name:
        raise ValueError(
            f"the run was trained on environment {name!r}, but {again!r} makes {env.name!r}"
        )
    return env, params


def _check_same_agents(env: MultiAgentEnv, record: Mapping[str, Any]) -> None:
    if list(env.agents) == record["agents"]:
        return
    is_reordered = sorted(env.agents) == sorted(record["agents"])
    hint = "; list them in a fixed order, because that of a set differs by process"
    raise ValueError(
        f"the run was trained with the agents {listed(record['agents'])}, but environment "
        f"{env.name!r} has {listed(env.agents)}{hint if is_reordered else ''}"
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
