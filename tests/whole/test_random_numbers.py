"""One rule for random numbers in what is compiled: keys by `threefry`, draws from unrolled keys."""

import ast
from pathlib import Path

import pytest

import jaxmarl_ppo

ROOT = Path(jaxmarl_ppo.__path__[0])
# The folders whose code runs in every training step.
COMPILED = ("ops", "networks", "policies", "rollout", "credit", "ppo", "learner")
FILES = sorted(path for folder in COMPILED for path in (ROOT / folder).rglob("*.py"))
# What of `jax.random` makes no number.
NO_DRAWS = {"key", "key_data", "wrap_key_data", "key_impl"}


def breaches(source):
    """Calls of `jax.random` that keep to the rule neither as a key nor as a draw."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).startswith("jax.random.")):
            continue
        name = ast.unparse(node.func).removeprefix("jax.random.")
        first = ast.unparse(node.args[0]) if node.args else ""
        if name not in NO_DRAWS and not first.startswith("unrolled("):
            found.append(f"{name} in line {node.lineno}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_keys_come_from_threefry_and_draws_from_unrolled_keys(path):
    assert not breaches(path.read_text())


def test_the_rule_finds_what_breaks_it():
    source = (
        "import jax\nkeys = jax.random.split(key)\nx = jax.random.uniform(key, (3,))\n"
        "y = jax.random.normal(unrolled(key), (3,))\nz = jax.random.key(0)\n"
    )
    assert breaches(source) == ["split in line 2", "uniform in line 3"]
