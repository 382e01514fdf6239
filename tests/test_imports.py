"""Imports point one way, and the environments know nothing of the trainer."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import jaxmarl_envs
import jaxmarl_ppo

# From the ground up; modules of one layer do not import each other.
LAYERS = (
    ("types", "mapping", "grouping", "matmul", "awake", "tiles"),
    ("collectives",),
    (
        "networks",
        "distributions",
        "recurrence",
        "normalise",
        "league",
        "scripted",
        "population_file",
    ),
    ("lanes", "faults"),
    ("config", "policy_bank", "agent_inputs"),
    ("network_check", "players"),
    ("noise", "lives"),
    ("roster", "rollout", "advantages", "minibatches", "stagger"),
    ("pending", "ppo"),
    ("bank_learner",),
    ("metrics",),
    ("learner", "summary", "parallel"),
    ("build",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# All that the library may know of the package of environments, their types and their random draws;
# the modules above it run whole scenarios.
KNOWN_OF_ENVS = {"jaxmarl_envs.core", "jaxmarl_envs.spaces", "jaxmarl_envs.threefry"}

PPO, ENVS = (Path(package.__path__[0]) for package in (jaxmarl_ppo, jaxmarl_envs))


def imported(path, package):
    """Full names of all modules that a file imports, anywhere in it but for type checkers."""
    found, tree = set(), ast.parse(path.read_text())
    for_types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and _is_type_checking(n.test)]
    skipped = {id(inner) for node in for_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            base = node.module or ""
            # `from package import module` imports the module.
            names = {f"{base}.{alias.name}" for alias in node.names} if base == package else set()
            found |= names or {base}
    return found


def _is_type_checking(test):
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def ours(path, package=PPO):
    prefix = f"{package.name}."
    modules = {name for name in imported(path, package.name) if name.startswith(prefix)}
    return {name.removeprefix(prefix).split(".")[0] for name in modules} & {
        p.stem for p in package.glob("*.py")
    }


@pytest.mark.parametrize("name", RANK)
def test_library_modules_import_only_what_is_below_them(name):
    wrong = {
        other for other in ours(PPO / f"{name}.py") if RANK.get(other, len(LAYERS)) >= RANK[name]
    }
    assert not wrong, f"{name} imports {wrong}"


@pytest.mark.parametrize("name", RANK)
def test_library_modules_know_no_environment(name):
    modules = {
        m for m in imported(PPO / f"{name}.py", "jaxmarl_ppo") if m.startswith("jaxmarl_envs")
    }
    assert modules <= KNOWN_OF_ENVS


@pytest.mark.parametrize("package", [PPO, ENVS], ids=["jaxmarl_ppo", "jaxmarl_envs"])
def test_there_is_no_cycle(package):
    graph = {p.stem: ours(p, package) for p in package.glob("*.py") if p.stem != "__init__"}
    graphlib.TopologicalSorter(graph).prepare()


def test_environments_never_import_the_trainer_or_gymnax_on_the_way():
    for path in ENVS.rglob("*.py"):
        names = {name.split(".")[0] for name in imported(path, "jaxmarl_envs")}
        assert "jaxmarl_ppo" not in names, path.name


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, jaxmarl_ppo\n"
        "print(sorted(m for m in sys.modules if m.startswith('jaxmarl_ppo.')))\n"
        "print([m for m in ('jax', 'flax', 'numpy', 'jaxmarl_envs') if m in sys.modules])\n"
        "jaxmarl_ppo.Snapshots\n"
        "print('jaxmarl_ppo.learner.league_results' in sys.modules)\n"
        "print('jaxmarl_ppo.training.trainer' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True", "False"]


def test_names_of_the_package_are_those_that_type_checkers_see():
    tree = ast.parse((PPO / "__init__.py").read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If) and _is_type_checking(n.test))
    seen = {
        alias.name: node.module.removeprefix("jaxmarl_ppo.")
        for node in block.body
        for alias in node.names
    }
    assert seen == jaxmarl_ppo._MODULES
    assert {*seen, "__version__"} == set(jaxmarl_ppo.__all__)
    for name, module in seen.items():
        home = f"jaxmarl_ppo.{module}"
        assert getattr(getattr(jaxmarl_ppo, name), "__module__", home) == home, name


def test_this_test_reads_imports(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "def f():\n    from jaxmarl_ppo import trainer\n    import jaxmarl_envs.crypto\n"
    )
    assert imported(path, "jaxmarl_ppo") == {"jaxmarl_ppo.training.trainer", "jaxmarl_envs.crypto"}
    assert ours(path) == {"trainer"}
