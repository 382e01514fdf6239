"""The `envs` command: a table of the environments that can be trained."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

import jaxmarl_envs
from jaxmarl_envs.spaces import Box, Discrete, Space, Tuple
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.presets import FOR_ALL, PRESETS, RLLIB, SLOW_ENV, preset, variants

# The options of each choice are listed for so many choices.
MAX_CHOICES_SHOWN = 6


@dataclass(frozen=True)
class EnvsOptions:
    """List the environments that can be trained on by name, or describe one of them.

    Attributes:
        env: name of a single environment to describe.
        json: print JSON instead of a table.
    """

    env: session.Env = None
    json: bool = False


def main(args: Sequence[str], prog: str = "jaxmarl-ppo envs") -> int:
    """Print the table of environments, or what there is to know of one.

    Raises:
        ValueError: For an unknown environment.
    """
    options = session.parse(EnvsOptions, args, prog)
    if options.env is not None and options.env not in jaxmarl_envs.names():
        jaxmarl_envs.make(options.env)  # its error names the closest one
    described = describe_envs() if options.env is None else [_describe_env(options.env)]
    if options.json:
        print(json.dumps([dataclasses.asdict(each) for each in described]))
        return 0
    session.show(env_table(described))
    if options.env is not None:
        known = [variant for env, variant in variants() if env == options.env]
        session.show(f"agents: {', '.join(described[0].agents)}")
        own = ["its own"] if options.env in PRESETS else []
        session.show(f"presets: {', '.join([*own, *known, *FOR_ALL])}")
        session.show(f"next: jaxmarl-ppo train {options.env}")
        return 0
    session.show(f"more presets: {more_presets()}")
    session.show(
        f"presets of every environment: --preset {SLOW_ENV}, which learns from few steps, for "
        f"environments in Python; --preset {RLLIB}, the defaults of RLlib's PPO"
    )
    session.show(
        "wrappers and adapters, by --env-kwargs: grouped (shared rewards); any game of gymnax, "
        "jaxmarl, jumanji and pgx, such as `pgx --env-kwargs env_id=connect_four`; and, in Python "
        "and slower, any game of gymnasium, openspiel, pettingzoo and vmas"
    )
    if jaxmarl_envs.installed_names():
        session.show(f"of installed packages: {', '.join(jaxmarl_envs.installed_names())}")
    session.show(
        "your own: package.module:Class or path/to/file.py:Class; new-env NAME writes a template"
    )
    return 0


def more_presets() -> str:
    """List the variants of presets, environment by environment."""
    of_env: dict[str, list[str]] = {}
    for env, variant in variants():
        of_env.setdefault(env, []).append(variant)
    return "; ".join(f"{env} --preset {', '.join(names)}" for env, names in of_env.items())


@dataclass(frozen=True)
class EnvDescription:
    """One row of the table."""

    name: str
    agents: tuple[str, ...]
    observations: str
    actions: str
    horizon: str
    preset: str


def env_table(described: Sequence[EnvDescription]) -> Table:
    """Make a table of environments: agents, sizes of observations and actions, and presets."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("environment", style="cyan", no_wrap=True)
    for title in ("agents", "observation", "actions", "horizon", "preset"):
        table.add_column(title)
    for env in described:
        agents = f"{len(env.agents)}: {_some(env.agents)}"
        table.add_row(env.name, agents, env.observations, env.actions, env.horizon, env.preset)
    return table


def describe_envs() -> list[EnvDescription]:
    """Describe every registered environment whose name no installed package claims as well."""
    claimed = jaxmarl_envs.installed_names()
    return [_describe_env(name) for name in jaxmarl_envs.names() if name not in claimed]


def _describe_env(name: str) -> EnvDescription:
    env, params = jaxmarl_envs.make(name, **preset(name).env_kwargs)
    spaces = env.action_spaces(params)
    shapes = [env.observation_space(agent, params).shape for agent in env.agents]
    actions = [describe_actions(space) for space in spaces.values()]
    horizon = env.horizon(params)
    network = PRESETS[name].config.default_policy.network if name in PRESETS else None
    return EnvDescription(
        name=name,
        agents=env.agents,
        observations=_distinct([_shape(shape) for shape in shapes]),
        actions=_distinct(actions),
        horizon="-" if horizon is None else str(int(horizon)),
        preset="-" if network is None else network_kind(network),
    )


def describe_actions(space: Space) -> str:
    """Describe an action space: `4`, `3 x 3 x 4`, `box 2`, or `3 + box 2` for a tuple."""
    if isinstance(space, Tuple):
        parts = [(part, describe_actions(part)) for part in space.spaces]
        return " + ".join(f"({x})" if isinstance(part, Tuple) else x for part, x in parts)
    if isinstance(space, Discrete):
        return str(space.n)
    if isinstance(space, Box):
        return f"box {_shape(space.shape)}".rstrip()
    fewest, most = min(space.nvec), max(space.nvec)
    if len(space.nvec) <= MAX_CHOICES_SHOWN:
        return _shape(tuple(space.nvec))
    options = str(most) if fewest == most else f"{fewest} to {most}"
    return f"{len(space.nvec)} choices of {options}"


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _distinct(values: Sequence[str]) -> str:
    """Name one value where all agents have the same, else each agent's."""
    return values[0] if len(set(values)) == 1 else ", ".join(values)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]}, … {names[-1]}"
