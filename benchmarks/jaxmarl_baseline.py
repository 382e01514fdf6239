"""JaxMARL's own IPPO, trained by its own code out of a checkout, in our evaluation.

The code runs as it stands in the checkout, `baselines/IPPO/ippo_*.py`, with the values of its own
configuration file; changed are only the environment, the budget, the seed and, in proportion to the
budget, until when shaped rewards are paid. Weights & Biases is switched off. One call is mended:
at c793d09, `batchify` of ippo_ff_mpe.py fails where agents see differently much (`mpe_tag`), as it
calls its own `pad` without the length.
"""

import dataclasses
import importlib
import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.training.train_state import TrainState

import jaxmarl_envs
from jaxmarl_envs import Discrete
from jaxmarl_ppo import PolicySpec, TrainConfig, make_learner
from jaxmarl_ppo.config.jaxmarl_presets import KINDS, KnownGame
from jaxmarl_ppo.config.parsing import parse_file
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import PolicyStack, Population, PyTree

# Games on which the baseline fails, and why.
FAILS = {
    "mpe_speaker_listener": (
        "JaxMARL's IPPO shares one network whose sizes are those of the first agent, and speaker "
        "and listener differ in both what they see and what they can do"
    )
}


class TheirNetwork(nn.Module):
    """A network of a baseline, called as ours are.

    Attributes:
        inner: the baseline's module.
        width: of its inputs; what an agent sees is padded with zeros to that, as there.
        hidden_dim: width of its memory; 0 for none.
        takes_mask: whether it takes which actions are legal; all are here, since the evaluation
            masks them itself, as the baseline does, after the network.
        num_outputs: how many actions there are; filled in by the policy group.
    """

    inner: nn.Module
    width: int
    hidden_dim: int = 0
    takes_mask: bool = False
    num_outputs: int = 0

    def initial_hidden(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Return zeros `[*batch_shape, hidden_dim]`; `()` without memory."""
        return jnp.zeros((*batch_shape, self.hidden_dim)) if self.hidden_dim else ()

    @nn.compact
    def __call__(self, hidden: PyTree, inputs: jax.Array) -> tuple[PyTree, jax.Array, jax.Array]:
        """Make one decision for a batch of rows, `inputs [..., D]`."""
        batch = inputs.shape[:-1]
        rows = inputs.reshape(1, -1, inputs.shape[-1])
        rows = jnp.pad(rows, [(0, 0), (0, 0), (0, self.width - inputs.shape[-1])])
        # A life begins with empty memory, which is what its `done` of the step before is for.
        done = jnp.zeros(rows.shape[:2], bool)
        legal = jnp.ones((*rows.shape[:2], self.num_outputs))
        if self.hidden_dim:
            memory, pi, value = self.inner(hidden.reshape(-1, self.hidden_dim), (rows, done, legal))
            hidden = memory.reshape(hidden.shape)
        else:
            pi, value = self.inner((rows, done, legal) if self.takes_mask else rows)
        return hidden, pi.logits.reshape(*batch, self.num_outputs), value.reshape(batch)


@dataclasses.dataclass(frozen=True)
class Trained:
    """Result of training a baseline.

    Attributes:
        network: of its policy.
        params: of that network.
        env_steps: environment steps done.
        seconds: "compiling" and "training".
        cpu_seconds: of the processor, while training.
    """

    network: TheirNetwork
    params: PyTree
    env_steps: int
    seconds: Mapping[str, float]
    cpu_seconds: float


def train(checkout: Path, game: KnownGame, seed: int) -> Trained:
    """Train the baseline of a game's kind on it.

    Raises:
        ImportError: what the baselines need is not installed.
        ValueError: there are no baselines in the checkout, or its configuration is another one than
            our presets translate.
    """
    kind = KINDS[game.kind]
    module, config = load_baseline(checkout, kind.file)
    check_translated(config, kind.theirs, kind.file)
    config = configure(config, game)
    importlib.import_module("wandb").init(mode="disabled")
    began = time.perf_counter()
    key = jax.random.PRNGKey(seed)
    compiled = jax.jit(module.make_train(config)).lower(key).compile()
    compiled_at, cpu_began = time.perf_counter(), time.process_time()
    out = jax.block_until_ready(compiled(key))
    ended, cpu_ended = time.perf_counter(), time.process_time()
    states = jax.tree.leaves(out["runner_state"], is_leaf=lambda x: isinstance(x, TrainState))
    (state,) = (state for state in states if isinstance(state, TrainState))
    return Trained(
        network=make_network(module, config, game),
        params=state.params["params"],
        env_steps=config["NUM_UPDATES"] * config["NUM_STEPS"] * config["NUM_ENVS"],
        seconds={"compiling": compiled_at - began, "training": ended - compiled_at},
        cpu_seconds=cpu_ended - cpu_began,
    )


def pad_and_stack(x: Mapping[str, jax.Array], agents: Sequence[str], num_actors: int) -> jax.Array:
    """Do what `batchify` of ippo_ff_mpe.py is for: rows of all agents, padded to the widest.

    Args:
        x: by agent, `[E, D]` with a `D` of its own, or `[E]`.
        agents: in the order of the rows.
        num_actors: how many rows there are.
    """
    width = max(x[agent].shape[-1] for agent in agents)
    rows = []
    for agent in agents:
        missing = width - x[agent].shape[-1]
        rows.append(jnp.pad(x[agent], [(0, 0)] * (x[agent].ndim - 1) + [(0, missing)]))
    return jnp.stack(rows).reshape(num_actors, -1)


def load_baseline(checkout: Path, name: str) -> tuple[ModuleType, dict[str, Any]]:
    """Import `baselines/IPPO/<name>.py` of a checkout of JaxMARL, and read its configuration.

    Raises:
        ImportError: what it needs is not installed.
        ValueError: it is not there, or its checkout is what `import jaxmarl` finds.
    """
    folder = checkout / "baselines" / "IPPO"
    path, config_path = folder / f"{name}.py", folder / "config" / f"{name}.yaml"
    if not (path.is_file() and config_path.is_file()):
        raise ValueError(f"{checkout} has no baselines/IPPO/{name}.py with its configuration")
    os.environ.setdefault("MPLBACKEND", "agg")
    jaxmarl_envs.make("jaxmarl", env_id="MPE_simple_spread_v3")  # imports JaxMARL quietly
    imported = Path(str(importlib.import_module("jaxmarl").__file__)).resolve()
    if checkout.resolve() in imported.parents:
        # At c793d09 Hanabi and Overcooked have other rules there than in the release of its number.
        raise ValueError(
            f"jaxmarl is imported from the checkout, {imported.parent}, whose games are not those "
            "of the released package; take the checkout off PYTHONPATH"
        )
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name == "ippo_ff_mpe":
        vars(module)["batchify"] = pad_and_stack
    return module, parse_file(config_path)


def check_translated(config: Mapping[str, Any], known: Mapping[str, Any], name: str) -> None:
    """Refuse a configuration that differs from what our presets translate.

    Raises:
        ValueError: a key is missing or has another value.
    """
    for key, value in known.items():
        if config.get(key) != value:
            raise ValueError(
                f"{key} is {config.get(key)!r} in {name}.yaml of the checkout, but the presets "
                f"translate {value!r}; change jaxmarl_ppo/config/jaxmarl_presets.py"
            )


def configure(config: Mapping[str, Any], game: KnownGame) -> dict[str, Any]:
    """Return a baseline's configuration with a game, and the budget of it."""
    options = {name: value for name, value in game.env_kwargs.items() if name != "env_id"}
    changed = {"TOTAL_TIMESTEPS": game.total_env_steps, "ENV_NAME": game.env_kwargs["env_id"]}
    if game.kind == "smax":
        changed["MAP_NAME"] = options.pop("scenario")
    if game.kind == "overcooked":
        kitchens = importlib.import_module("jaxmarl.environments.overcooked")
        options["layout"] = kitchens.overcooked_layouts[options["layout"]]
        share = config["REW_SHAPING_HORIZON"] / config["TOTAL_TIMESTEPS"]
        changed["REW_SHAPING_HORIZON"] = share * game.total_env_steps
    return {**config, **changed, "ENV_KWARGS": options}


def make_network(module: ModuleType, config: Mapping[str, Any], game: KnownGame) -> TheirNetwork:
    """Make the network of a baseline, to be called as ours are."""
    env, env_params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
    first = env.agents[0]
    actions = env.action_space(first, env_params)
    assert isinstance(actions, Discrete)
    num_actions = actions.n
    width = max(env.observation_space(agent, env_params).size for agent in env.agents)
    if game.kind == "smax":
        sizes = {key: config[key] for key in ("FC_DIM_SIZE", "GRU_HIDDEN_DIM")}
        inner = module.ActorCriticRNN(num_actions, config=sizes)
        return TheirNetwork(inner, width, hidden_dim=config["GRU_HIDDEN_DIM"])
    if game.kind == "hanabi":
        return TheirNetwork(module.ActorCritic(num_actions, config={}), width, takes_mask=True)
    return TheirNetwork(module.ActorCritic(num_actions, config["ACTIVATION"]), width)


def as_players(trained: Trained, game: KnownGame) -> tuple[Learner, Population]:
    """Return a learner and a population in which a baseline's policy plays all agents."""
    env, env_params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
    spec = PolicySpec(network=trained.network)
    learner = make_learner(
        env, env_params, TrainConfig(num_envs=4, num_steps=4, default_policy=spec)
    )
    population = jax.jit(learner.init)(jax.random.key(0)).population
    policy = take_policy(learner, population, "shared")
    policy = policy.replace(params={"inner": trained.params})
    return learner, put_policy(learner, population, "shared", policy)


def take_policy(learner: Learner, population: Population, name: str) -> PolicyStack:
    """Take a policy out of a population, without the axis of its policy group."""
    place, row = _place(learner, name)
    return jax.tree.map(lambda x: x[row], population.policy_groups[place])


def put_policy(
    learner: Learner, population: Population, name: str, policy: PolicyStack
) -> Population:
    """Put a policy into a population, in the place of one of the same name.

    Raises:
        ValueError: it has other shapes than that.
    """
    place, row = _place(learner, name)
    group = population.policy_groups[place]
    shapes, expected = jax.tree.map(jnp.shape, policy), jax.tree.map(lambda x: x.shape[1:], group)
    if shapes != expected:
        raise ValueError(f"policy {name!r} has the shapes {shapes}; expected are {expected}")
    groups = list(population.policy_groups)
    groups[place] = jax.tree.map(lambda every, one: every.at[row].set(one), group, policy)
    return population.replace(policy_groups=tuple(groups))


def _place(learner: Learner, name: str) -> tuple[int, int]:
    """Find the policy group of a policy and its row there."""
    player = learner.players.names.index(name)
    firsts = [group.first_player for group in learner.players.policy_groups]
    place = max(index for index, first in enumerate(firsts) if first <= player)
    return place, player - firsts[place]
