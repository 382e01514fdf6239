"""What a run leaves in its folder, and how to get it back. Nothing read here executes."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config import as_json, env_as_json
from jaxmarl_ppo.config.as_json import FORMAT, READABLE_FORMATS
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner, to_evaluate
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.population_file import load_population
from jaxmarl_ppo.runs.files import CONFIG_FILE, POLICIES_FILE
from jaxmarl_ppo.types import Population, PyTree

_PACKAGES = ("jaxmarl-ppo", "jax", "jaxlib", "flax", "optax")


@dataclass(frozen=True)
class LoadedRun:
    """Holds a finished run, ready to act or to be trained on."""

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig
    learner: Learner
    population: Population


def load_run(
    run_dir: str | Path,
    *,
    env: MultiAgentEnv | None = None,
    env_params: PyTree | None = None,
    network: nn.Module | None = None,
    config: TrainConfig | None = None,
) -> LoadedRun:
    """Rebuild environment, learner and trained policies of a run.

    Args:
        run_dir: its folder.
        env: needed where `jaxmarl_envs.make` did not build the environment; else it does so again.
        env_params: instead of the recorded parameters.
        network: needed where `default_policy.network` was a module of the user's own.
        config: the run's whole configuration, needed where other parts of it cannot be rebuilt from
            a file: a mapping function, a scripted function, a module of a single policy.

    Raises:
        ValueError: a file is missing, damaged, or does not fit.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} does not exist")
    record = as_json.read_json(folder / CONFIG_FILE)
    missing = [key for key in ("format", "env", "config") if key not in record]
    if missing:
        raise ValueError(f"{folder / CONFIG_FILE} lacks {', '.join(missing)}: not a run's record")
    if record["format"] not in READABLE_FORMATS:
        versions = record.get("versions")
        writer = versions.get("jaxmarl-ppo") if isinstance(versions, Mapping) else None
        raise ValueError(
            f"{folder} has format {show(record['format'])}, written by jaxmarl-ppo "
            f"{writer if isinstance(writer, str) else 'of an unknown version'}; this version reads "
            f"the formats {', '.join(map(str, READABLE_FORMATS))}"
        )
    env_as_json.check_env_record(record["env"])
    if config is None:
        recorded = record["config"]
        if record["format"] == 1 and isinstance(recorded, Mapping):
            recorded = as_json.from_format_1(recorded)
        config = as_json.config_from_dict(recorded, network)
    elif network is not None:
        raise ValueError("network has no effect beside config; drop one of them")
    env = _recorded_env(record["env"]) if env is None else env
    _check_same_agents(env, record["env"])
    if env_params is None:
        env_params = env_as_json.params_from_json(record["env"]["params"], env.default_params)
    # What the run started from and what it ran on are not needed any more, and may be gone.
    learner = make_learner(env, env_params, to_evaluate(config), strict=False)
    expected = jax.eval_shape(learner.init_population, jax.random.key(0))
    path = folder / POLICIES_FILE
    population = load_population(path, learner.players.names, expected)
    return LoadedRun(env, env_params, config, learner, population)


def run_record(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> dict[str, Any]:
    """Make the content of `config.json`: all that is needed to repeat and to load the run."""
    made = None if env.made_as is None else dict(zip(("name", "kwargs"), env.made_as, strict=True))
    return {
        "format": FORMAT,
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
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }


def new_run_dir(run_dir: str | Path | None, name: str) -> Path:
    """Choose the folder that a run will fill; nothing is created yet.

    Args:
        run_dir: the user's choice; None for `runs/<name>-<timestamp>`.
        name: what the run is.

    Raises:
        ValueError: something is there already.
    """
    if run_dir is None:
        stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
        folder, count = Path("runs") / stem, 1
        while folder.exists():
            count += 1
            folder = Path("runs") / f"{stem}-{count}"
        return folder
    folder = Path(run_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} is a file; choose another name")
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"run folder {str(folder)!r} exists and is not empty; choose another or remove it"
        )
    return folder


def _recorded_env(record: Mapping[str, Any]) -> MultiAgentEnv:
    made = record["make"]
    if made is None or made["name"] not in jaxmarl_envs.all_names():
        raise ValueError(
            f"environment {record['name']!r} was not built by `make`, or is not registered here; "
            "pass it from Python: load_run(run_dir, env=MyEnv(...))"
        )
    return _make_env(made["name"], made["kwargs"])


def _make_env(name: str, kwargs: Mapping[str, Any]) -> MultiAgentEnv:
    """Make an environment of recorded arguments, about which its class may know any error."""
    try:
        return jaxmarl_envs.make(name, **kwargs)[0]
    except (ValueError, ImportError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"environment {name!r} cannot be made with {show(kwargs)}: {reason}"
        ) from error


def _check_same_agents(env: MultiAgentEnv, record: Mapping[str, Any]) -> None:
    if list(env.agents) != record["agents"]:
        raise ValueError(
            f"the run was trained with the agents {', '.join(record['agents'])}, but environment "
            f"{env.name!r} has {', '.join(env.agents)}"
        )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
