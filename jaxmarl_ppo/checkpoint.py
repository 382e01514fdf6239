"""What a run leaves in its folder, and how to get it back. Nothing read here executes."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from flax import linen as nn
from flax import serialization, traverse_util

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import config_io
from jaxmarl_ppo.build import make_learner
from jaxmarl_ppo.config import TrainConfig
from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.policy_bank import PolicyBank
from jaxmarl_ppo.types import Policies, PyTree

FORMAT = 1
CONFIG_FILE = "config.json"
POLICIES_FILE = "params/policies.msgpack"
_PACKAGES = ("jaxmarl-ppo", "jax", "jaxlib", "flax", "optax")


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, ready to act or to be trained on."""

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig
    learner: Learner
    policies: Policies  # [K, ...] leaves


def load_run(
    run_dir: str | Path,
    *,
    env: MultiAgentEnv | None = None,
    env_params: PyTree | None = None,
    network: nn.Module | None = None,
) -> LoadedRun:
    """Rebuild environment, learner and trained policies of a run.

    Args:
        run_dir: its folder.
        env: needed where `jaxmarl_envs.make` did not build the environment; else it does so again.
        env_params: instead of the recorded parameters.
        network: needed where the run was trained with a module of the user's own.

    Raises:
        ValueError: a file is missing, damaged, or does not fit.
    """
    folder = Path(run_dir)
    if not folder.is_dir():
        raise ValueError(f"run folder {str(folder)!r} does not exist")
    record = config_io.read_json(folder / CONFIG_FILE)
    missing = [key for key in ("format", "env", "config") if key not in record]
    if missing:
        raise ValueError(f"{folder / CONFIG_FILE} lacks {', '.join(missing)}: not a run's record")
    if record["format"] != FORMAT:
        raise ValueError(f"{folder} has format {record['format']!r}; this version reads {FORMAT}")
    config = config_io.config_from_dict(record["config"], network)
    env = _recorded_env(record["env"]) if env is None else env
    _check_same_agents(env, record["env"])
    if env_params is None:
        env_params = config_io.params_from_json(record["env"]["params"], env.default_params)
    learner = make_learner(env, env_params, config)
    policies = load_policies(folder / POLICIES_FILE, learner.bank)
    return LoadedRun(env, env_params, config, learner, policies)


def save_policies(path: Path, bank: PolicyBank, policies: Policies) -> None:
    """Write everything that belongs to policies, atomically."""
    content = {
        "format": FORMAT,
        "names": list(bank.mapping.names),
        "policies": serialization.to_state_dict(jax.device_get(policies)),
    }
    write_atomically(path, serialization.msgpack_serialize(content))


def load_policies(path: Path, bank: PolicyBank) -> Policies:
    """The inverse of `save_policies`.

    Args:
        path: the file.
        bank: the bank that the policies are for; names and shapes must be its own.

    Raises:
        ValueError: the file is missing, damaged, or holds other policies.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist: the run saved no parameters")
    try:
        content: Any = serialization.msgpack_restore(path.read_bytes())
        names, state = tuple(content["names"]), content["policies"]
    except Exception as error:  # a damaged file can fail anywhere inside the decoder
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is damaged or not a file of policies ({reason})") from error
    if names != bank.mapping.names:
        raise ValueError(
            f"{path} holds the policies {', '.join(names)}, but the configuration has "
            f"{', '.join(bank.mapping.names)}"
        )
    expected = jax.eval_shape(bank.init, jax.random.key(0))
    _check_shapes(path, state, serialization.to_state_dict(expected))
    return jax.tree.map(jax.numpy.asarray, serialization.from_state_dict(expected, state))


def run_record(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> dict[str, Any]:
    """The content of `config.json`: all that is needed to repeat and to load the run."""
    made = None if env.made_as is None else dict(zip(("name", "kwargs"), env.made_as, strict=True))
    return {
        "format": FORMAT,
        "env": {
            "name": env.name,
            "make": made,
            "params": config_io.params_to_json(env_params),
            "agents": list(env.agents),
        },
        "config": config_io.config_to_dict(config_io.with_explicit_network(config)),
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
    """The folder that a run will fill; nothing is created yet.

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


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is either absent or whole, whatever happens meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _recorded_env(record: Mapping[str, Any]) -> MultiAgentEnv:
    made = record["make"]
    if made is None or made["name"] not in jaxmarl_envs.names():
        raise ValueError(
            f"environment {record['name']!r} was not built by `make`, or is not registered here; "
            "pass it from Python: load_run(run_dir, env=MyEnv(...))"
        )
    return jaxmarl_envs.make(made["name"], **made["kwargs"])[0]


def _check_same_agents(env: MultiAgentEnv, record: Mapping[str, Any]) -> None:
    if list(env.agents) != record["agents"]:
        raise ValueError(
            f"the run was trained with the agents {', '.join(record['agents'])}, but environment "
            f"{env.name!r} has {', '.join(env.agents)}"
        )


def _check_shapes(path: Path, state: Any, expected: Any) -> None:
    """Compare nested tables of arrays leaf by leaf, so that the message can name one."""

    def leaves(tree: Any) -> dict[str, str]:
        flat = traverse_util.flatten_dict(tree, sep="/", keep_empty_nodes=True)
        return {key: _describe(leaf) for key, leaf in flat.items()}

    found, wanted = leaves(state), leaves(expected)
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise ValueError(
                f"{path} does not fit the configuration: {key} is {found.get(key, 'absent')} in "
                f"the file, but should be {wanted.get(key, 'absent')}"
            )


def _describe(leaf: Any) -> str:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    return "absent" if shape is None else f"{dtype}{list(shape)}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
