"""Imports point one way, and the environments know nothing of the trainer."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

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
    "jaxmarl_envs.backend",
    "jaxmarl_envs.core",
    "jaxmarl_envs.own_names",
    "jaxmarl_envs.spaces",
    "jaxmarl_envs.stop_request",
    "jaxmarl_envs.threefry",
}
# Names that are looked up only when somebody asks for them: an index, not a dependency.
INDICES = {"jaxmarl_ppo", "jaxmarl_ppo.__main__", "jaxmarl_envs.registry"}

PPO, ENVS = (Path(package.__path__[0]) for package in (jaxmarl_ppo, jaxmarl_envs))


def modules(root):
    """Paths of all modules of a package, by full name; a folder goes by the name of the folder."""
    found = {}
    for path in root.rglob("*.py"):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = {**modules(PPO), **modules(ENVS)}


def imported(path):
    """Full names of what a file imports: anywhere in it, for type checkers, and by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            # `from package import module` imports the module.
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = full & MODULES.keys()
            found |= inner | ({node.module} if len(inner) < len(full) else set())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # What `import_module` and entry points are given.
            name = node.value.partition(":")[0]
            found |= {name} & MODULES.keys()
    return found


def ours(name):
    """Modules of both packages that a module imports."""
    return {other for other in imported(MODULES[name]) if other in MODULES and other != name}


def floor(name):
    """How high up a module of the trainer lies."""
    return FLOORS.index(name.split(".")[1])


TRAINER = sorted(
    name for name in MODULES if name.startswith("jaxmarl_ppo.") and name not in INDICES
)


@pytest.mark.parametrize("name", TRAINER)
def test_modules_import_only_from_their_own_folder_and_those_below(name):
    others = {other for other in ours(name) if other.startswith("jaxmarl_ppo.")}
    wrong = {other for other in others if floor(other) > floor(name)}
    assert not wrong, f"{name} imports {wrong}"


def test_every_folder_has_its_floor():
    assert {name.split(".")[1] for name in TRAINER} == set(FLOORS)


@pytest.mark.parametrize("name", [n for n in TRAINER if n.split(".")[1] in KNOWS_NO_ENVIRONMENT])
def test_the_trainer_itself_knows_no_environment(name):
    assert {n for n in ours(name) if n.startswith("jaxmarl_envs")} <= KNOWN_OF_ENVS


def test_there_is_no_circle():
    graph = {name: ours(name) - INDICES for name in MODULES if name not in INDICES}
    graphlib.TopologicalSorter(graph).prepare()


def test_environments_never_import_the_trainer():
    for path in ENVS.rglob("*.py"):
        names = {name.split(".")[0] for name in imported(path)}
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


def test_names_of_the_package_are_those_that_type_checkers_see():
    tree = ast.parse((PPO / "__init__.py").read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and n.test.id == "TYPE_CHECKING")
    seen = {
        alias.name: node.module.removeprefix("jaxmarl_ppo.")
        for node in block.body
        for alias in node.names
    }
    assert seen == jaxmarl_ppo._MODULES
    assert {*seen, "__version__"} == set(jaxmarl_ppo.__all__)
    for name, module in seen.items():
        home = f"jaxmarl_ppo.{module}"
        assert getattr(getattr(jaxmarl_ppo, name), "__module__", home).startswith(home), name


def test_this_test_reads_imports(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "def f():\n    from jaxmarl_ppo import training\n    import jaxmarl_envs.crypto\n"
        "if TYPE_CHECKING:\n    from jaxmarl_ppo.learner.learner import Learner\n"
        "import_module('jaxmarl_ppo.runs.log')\n'jaxmarl_envs.core:Observation'\n"
    )
    assert imported(path) == {
        "typing",
        "jaxmarl_ppo.training",
        "jaxmarl_ppo.learner.learner",
        "jaxmarl_ppo.runs.log",
        "jaxmarl_envs.core",
        "jaxmarl_envs.crypto",
    }
