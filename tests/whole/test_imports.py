"""Imports point one way, and the environments know nothing of the trainer."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest
from import_graph import INDICES, import_graph, imported, modules

import jaxmarl_envs
import jaxmarl_ppo

# The folders of the trainer from the ground up, as in docs/architecture.md: each imports only from
# itself and from those before it.
FLOORS = (
    "machine",
    "types",
    "ops",
    "networks",
    "config",
    "policies",
    "rollout",
    "credit",
    "ppo",
    "learner",
    "devices",
    "runs",
    "evaluation",
    "deploy",
    "pages",
    "training",
    "sweeps",
    "on_ray",
    "bench",
    "cli",
)
# What these may know of the package of environments: types, random draws and how environments are
# named, but no environment.
KNOWS_NO_ENVIRONMENT = FLOORS[: FLOORS.index("devices")]
KNOWN_OF_ENVS = {
    "jaxmarl_envs.actions",
    "jaxmarl_envs.backend",
    "jaxmarl_envs.check.quick",
    "jaxmarl_envs.core",
    "jaxmarl_envs.user_env_names",
    "jaxmarl_envs.spaces",
    "jaxmarl_envs.stop_request",
    "jaxmarl_envs.threefry",
}
MODULES = {
    name: path
    for package in (jaxmarl_ppo, jaxmarl_envs)
    for name, path in modules(Path(package.__path__[0])).items()
}
GRAPH = import_graph(MODULES)
ENVS = MODULES["jaxmarl_envs"].parent


def floor(name):
    """How high up a module of the trainer lies."""
    return FLOORS.index(name.split(".")[1])


TRAINER = sorted(
    name for name in MODULES if name.startswith("jaxmarl_ppo.") and name not in INDICES
)


def test_modules_import_only_from_their_own_folder_and_those_below():
    wrong = {
        (name, other)
        for name in TRAINER
        for other in GRAPH[name]
        if other.startswith("jaxmarl_ppo.") and floor(other) > floor(name)
    }
    assert not wrong


def test_every_folder_has_its_floor():
    assert {name.split(".")[1] for name in TRAINER} == set(FLOORS)


def test_the_trainer_itself_knows_no_environment():
    wrong = {
        (name, other)
        for name in TRAINER
        for other in GRAPH[name]
        if name.split(".")[1] in KNOWS_NO_ENVIRONMENT
        and other.startswith("jaxmarl_envs")
        and other not in KNOWN_OF_ENVS
    }
    assert not wrong


def test_there_is_no_circle():
    graph = {name: others - INDICES for name, others in GRAPH.items() if name not in INDICES}
    graphlib.TopologicalSorter(graph).prepare()


def test_environments_never_import_the_trainer():
    for path in ENVS.rglob("*.py"):
        names = {name.split(".")[0] for name in imported(path, MODULES.keys())}
        assert "jaxmarl_ppo" not in names, path.name


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, jaxmarl_ppo\n"
        "print(sorted(m for m in sys.modules if m.startswith('jaxmarl_ppo.')))\n"
        "print([m for m in ('jax', 'flax', 'numpy', 'jaxmarl_envs') if m in sys.modules])\n"
        "jaxmarl_ppo.Snapshots\n"
        "print('jaxmarl_ppo.config' in sys.modules, 'jaxmarl_ppo.training' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True False"]


def test_importing_the_environments_loads_nothing_and_all_their_names_load_only_what_they_need():
    code = (
        "import sys, jaxmarl_envs\n"
        "print([m for m in ('jax', 'flax', 'numpy', 'jaxmarl_envs.core') if m in sys.modules])\n"
        "import jax, flax, numpy\n"
        "needed = {name.split('.')[0] for name in sys.modules}\n"
        "from jaxmarl_envs import *\n"
        "print({name.split('.')[0] for name in sys.modules} - needed - sys.stdlib_module_names)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "set()"]


@pytest.mark.parametrize("package", [jaxmarl_ppo, jaxmarl_envs])
def test_names_of_the_package_are_those_that_type_checkers_see(package):
    tree = ast.parse(Path(package.__file__).read_text())
    conditional = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in conditional if ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.name: node.module.removeprefix(f"{package.__name__}.")
        for node in block.body
        for alias in node.names
    }
    assert seen == package._MODULES
    assert {*seen, "__version__"} == set(package.__all__)
    for name, module in seen.items():
        home = f"{package.__name__}.{module}"
        assert getattr(getattr(package, name), "__module__", home).startswith(home), name


def test_this_test_reads_imports(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "def f():\n    from jaxmarl_ppo import training\n    import jaxmarl_envs.crypto\n"
        "if TYPE_CHECKING:\n    from jaxmarl_ppo.learner.learner import Learner\n"
        "import_module('jaxmarl_ppo.runs.log')\n'jaxmarl_envs.core:Observation'\n"
    )
    assert imported(path, MODULES.keys()) == {
        "typing",
        "jaxmarl_ppo.training",
        "jaxmarl_ppo.learner.learner",
        "jaxmarl_ppo.runs.log",
        "jaxmarl_envs.core",
        "jaxmarl_envs.crypto",
    }


def test_no_module_starts_jax():
    # Devices are chosen after the imports, which no array may precede.
    code = f"""
import importlib

for name in {sorted(set(MODULES) - {"jaxmarl_ppo.__main__"})}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert "is not installed" in str(error), error
from jax._src import xla_bridge

assert not xla_bridge.backends_are_initialized()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
