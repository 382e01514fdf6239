"""The examples of docs/environments.md: trained from the command line, and random play of each."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmarl_envs import make
from jaxmarl_envs.lockstep import original_of
from jaxmarl_ppo.config.text import read_value
from jaxmarl_ppo.runs.files import METRICS_FILE
from jaxmarl_ppo.runs.log import read_entries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*does not do the same for the same seed"),
    pytest.mark.filterwarnings("ignore:.*is stepped in Python"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ["gymnasium", "gymnax", "jaxmarl", "jumanji", "openspiel", "pettingzoo", "pgx"]
# What a library's own module is called, and what makes episodes short enough to play many of them.
MODULES = {"openspiel": "pyspiel"}
SHORT = {"jumanji": {"time_limit": 20}, "gymnasium": {"max_steps": 30}}
EXAMPLES = sorted(
    {
        match.group(0)
        for page in ("environments.md", "other-libraries.md")
        if (ROOT / "docs" / page).exists()
        for match in re.finditer(
            rf"^jaxmarl-ppo train ({'|'.join(LIBRARIES)}) --env-kwargs .*$",
            (ROOT / "docs" / page).read_text(),
            re.MULTILINE,
        )
    }
)
NUM_EPISODES = 128


def options_of(example):
    """The library of an example, its options, and those options by name."""
    _, _, library, _, *options = shlex.split(example)
    pairs = [option.partition("=") for option in options]
    return library, options, {name: read_value(text) for name, _, text in pairs}


def skip_without(library, options):
    env_id = options["env_id"]
    module = env_id.partition(":")[0] if ":" in env_id else MODULES.get(library, library)
    pytest.importorskip(module)


def test_there_is_an_example_for_every_library():
    assert {options_of(example)[0] for example in EXAMPLES} == set(LIBRARIES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_trains_from_the_command_line(example, tmp_path):
    """In a process that compiles without most optimisations, which take minutes in some of them."""
    library, options, named = options_of(example)
    skip_without(library, named)
    args = ["train", library, "--env-kwargs", *options, "--run-dir", str(tmp_path / "run")]
    sizes = "--num-envs 2 --num-steps 4 --total-env-steps 16 --quiet --no-check-env"
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    result = subprocess.run(
        [sys.executable, "-m", "jaxmarl_ppo", *args, *sizes.split()],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert read_entries(tmp_path / "run" / METRICS_FILE)[-1]["env_steps"] == 16


def returns_of_adapter(env, params, horizon):
    """Returns `[episodes, A]` of the first episodes of a batch, as the trainer steps it."""
    layout, rng = env.action_layout(params), np.random.default_rng(1)
    keys = jax.random.split(jax.random.key(1), (horizon + 1, NUM_EPISODES))
    obs, state = jax.jit(jax.vmap(env.reset_env, (0, None)))(keys[0], params)
    step = jax.jit(env.step_batch)
    returns, is_first = np.zeros((NUM_EPISODES, env.num_agents)), np.ones(NUM_EPISODES, bool)
    for own_keys in keys[1:]:
        mask = np.asarray(obs.action_mask)
        action = layout.pick(rng.random(mask.shape), mask)
        obs, state, reward, *_, info = step(own_keys, state, action, params)
        returns += np.where(is_first[:, None], reward, 0)
        is_first &= ~np.asarray(info["episode_over"])
        if not is_first.any():
            return returns
    raise AssertionError(f"{is_first.sum()} episodes are longer than {horizon} steps")


def returns_of_original(env, params):
    """Returns `[episodes, A]` of the library's own environment, played by itself."""
    original, rng = original_of(env, params), np.random.default_rng(2)
    layout, returns = env.action_layout(params), []
    for episode in range(NUM_EPISODES):
        key = jax.random.key(1_000 + episode)
        reported = original.reset(key, 1_000 + episode)
        while not reported.is_over:
            key, own_key = jax.random.split(key)
            acts = env.agents if reported.acting is None else reported.acting
            chosen = {
                agent: draw(layout, env, agent, reported.action_masks.get(agent), rng)
                for agent in acts
            }
            reported = original.step(own_key, chosen)
        returns.append([reported.returns[agent] for agent in env.agents])
    return np.array(returns)


def draw(layout, env, agent, legal, rng):
    own = layout.factors[env.agent_index(agent)]
    legal = np.ones(sum(own.counts), bool) if legal is None else legal
    parts = np.split(legal, np.cumsum(own.counts)[:-1])
    choices = [rng.choice(np.flatnonzero(part)) for part in parts if part.size]
    return np.array(choices, int), rng.uniform(own.low, own.high).astype(np.float32)


@pytest.mark.parametrize("example", EXAMPLES)
def test_random_play_earns_what_it_earns_in_the_original(example):
    """Means over 128 episodes of either differ by less than four standard errors."""
    library, _, named = options_of(example)
    skip_without(library, named)
    short = SHORT.get(library, {})
    if "lbforaging" in named["env_id"]:
        short = {}
    if "horizon" in named and short:
        short = {**short, "horizon": short["max_steps"]}
    options = {"num_workers": 0} if library in ("gymnasium", "pettingzoo", "openspiel") else {}
    env, params = make(library, **{**named, **short, **options})
    horizon = env.horizon(params) or 100
    here, there = returns_of_adapter(env, params, horizon), returns_of_original(env, params)
    error = np.sqrt((here.var(0) + there.var(0)) / NUM_EPISODES)
    difference = abs(here.mean(0) - there.mean(0))
    assert (difference <= 4 * error).all(), (here.mean(0), there.mean(0), error)
    if "rware" not in named["env_id"] and library != "jumanji":  # random robots deliver nothing
        assert (error > 0).any()
