"""Try the environments in a Python in which nothing else is installed: `python alone.py`."""

import importlib
from importlib.metadata import distributions, requires
from importlib.util import find_spec

import jax

import jaxmarl_envs

MOST_PACKAGES = 30
# How the absence of each library is met: an adapter's module, or a name with options.
ADAPTERS = {
    "gymnasium": lambda: jaxmarl_envs.make("gymnasium", env_id="CartPole-v1"),
    "gymnax": lambda: jaxmarl_envs.make("gymnax", env_id="CartPole-v1"),
    "jaxmarl": lambda: jaxmarl_envs.make("jaxmarl", env_id="MPE_simple_spread_v3"),
    "jumanji": lambda: jaxmarl_envs.make("jumanji", env_id="Connector-v3"),
    "pettingzoo": lambda: jaxmarl_envs.make("pettingzoo", env_id="mpe2.simple_spread_v3"),
    "pgx": lambda: jaxmarl_envs.make("pgx", env_id="connect_four"),
    "vmas": lambda: jaxmarl_envs.make("vmas", env_id="balance"),
    "ray": lambda: importlib.import_module("jaxmarl_envs.adapters.outgoing.rllib"),
}
OUTGOING = ("gymnasium", "pettingzoo")


def try_them():
    """Check packages, every environment by its contract, and what adapters say."""
    packages = {found.name for found in distributions()} - {"pip", "setuptools"}
    assert len(packages) <= MOST_PACKAGES, sorted(packages)
    assert find_spec("jaxmarl_ppo") is None
    assert not [text for text in requires("jaxmarl-envs") or () if "@" in text]
    jax.config.update("jax_disable_most_optimizations", True)
    for name in jaxmarl_envs.names():
        env, params = jaxmarl_envs.make(name)
        jaxmarl_envs.check_env(env, params, num_steps=16, num_envs=2)
    for extra, use in ADAPTERS.items():
        expect_advice(extra, use)
    for name in OUTGOING:
        module = f"jaxmarl_envs.adapters.outgoing.{name}"
        expect_advice(name, lambda module=module: importlib.import_module(module))
    print(f"{len(packages)} packages, {len(jaxmarl_envs.names())} environments")


def expect_advice(extra, use):
    """Use what is not installed, and be told of the extra that installs it."""
    said = "nothing: it is installed"
    try:
        use()
    except ImportError as error:
        said = str(error)
    assert f"pip install './envs[{extra}]'" in said, said


if __name__ == "__main__":
    try_them()
