"""The `check-env` command: check that an environment keeps the contract."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jaxmarl_envs
from jaxmarl_envs.check import EnvReport
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.lockstep import LockstepReport
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.user_env_names import is_own
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.envs import describe_actions
from jaxmarl_ppo.config.presets import preset
from jaxmarl_ppo.config.text import read_value

CHECKED = """\
checked
  what it declares, and the shapes and types of what reset_env and step_env return
  every observation, reward and end of a life at these steps, under random legal actions
  the same results from the same key, traced again, and whatever waiting agents are given"""


@dataclass(frozen=True)
class CheckEnvOptions:
    """Check that an environment keeps the contract, by playing random legal actions.

    The first broken rule is reported in one sentence, with exit status 2.

    Attributes:
        env: name of the environment, or `package.module:Class` or `path/to/file.py:Class`.
        env_kwargs: KEY=VALUE, arguments of the environment, in addition to those of the preset.
        num_steps: steps per seed; None for the horizon and 8 more, at most 1,024, or 128 if there
            is no horizon.
        num_envs: number of seeds, played in parallel.
        seed: seed of all random numbers.
        against_original: also compare with the original, for an environment from another library:
            both are stepped for `num_envs` episodes of at most `num_steps` steps, and every number
            must be the same.
    """

    env: session.Env = None
    env_kwargs: session.EnvKwargs = field(default_factory=dict)
    num_steps: int | None = None
    num_envs: int = 4
    seed: int = 0
    against_original: bool = False


def main(args: Sequence[str], prog: str = "jaxmarl-ppo check-env") -> int:
    """Check an environment and print what was seen of it.

    Raises:
        ValueError: If it breaks the contract, or cannot be made.
    """
    options = session.parse(CheckEnvOptions, args, prog)
    if options.env is None:
        raise ValueError(f"{prog} takes an environment's name; see {prog} --help")
    kwargs = dict(options.env_kwargs)
    session.find_modules_here(*filter(is_own, [options.env]))
    env, params = jaxmarl_envs.make(options.env, **{**preset(options.env).env_kwargs, **kwargs})
    import jax

    from jaxmarl_ppo.config.checks import check_seed

    key = jax.random.key(check_seed("seed", options.seed))
    if options.against_original:
        from jaxmarl_envs.lockstep import original_of

        original_of(env, params)  # what has none is told at once
    report = jaxmarl_envs.check_env(
        env, params, num_steps=options.num_steps, num_envs=options.num_envs, key=key
    )
    session.show(f"environment {env.name!r} keeps the contract")
    session.show(format_report(env, params, report, options.num_envs))
    if options.against_original:
        compared = jaxmarl_envs.check_against_original(
            env, params, num_episodes=options.num_envs, num_steps=options.num_steps, key=key
        )
        session.show(format_comparison(compared))
    pairs = [f"{key}={_typed(value)}" for key, value in kwargs.items()]
    command = [options.env, *(["--env-kwargs", *pairs] if pairs else [])]
    session.show(f"next: jaxmarl-ppo train {shlex.join(command)}")
    return 0


def format_comparison(report: LockstepReport) -> str:
    """Write what an environment has been compared with its original in."""
    return (
        f"the same as its original, step by step\n"
        f"  {report.num_steps:,} steps, {report.num_decisions:,} decisions, "
        f"{report.num_numbers:,} numbers compared: observations, masks, rewards and ends\n"
        f"  {report.num_episodes:,} episodes ended; {report.num_terminated:,} lives terminated, "
        f"{report.num_truncated:,} truncated, {report.num_early:,} of them before their episode"
    )


def _typed(value: Any) -> str:
    """Write a value as it can be typed: `true`, `[1, 2]`; of a string, `3m` or `"3"`."""
    if value is None:
        return "None"
    return value if isinstance(value, str) and read_value(value) == value else json.dumps(value)


def format_report(env: MultiAgentEnv, params: Any, report: EnvReport, num_envs: int) -> str:
    """Write what was seen of an environment, and what was not."""
    lines = [
        f"  {agent}: {_sizes(env, agent, params)}; {report.num_decisions[agent]:,} decisions, "
        f"{report.num_lives[agent]:,} lives ended"
        for agent in env.agents
    ]
    lines += [
        f"  {report.num_steps:,} steps over {num_envs} seeds, {report.num_episodes:,} episodes "
        f"ended",
        CHECKED,
    ]
    unseen = [f"{agent} acting" for agent in env.agents if not report.num_decisions[agent]]
    unseen += [f"an end of {agent}'s life" for agent in env.agents if not report.num_lives[agent]]
    if unseen:
        lines.append(f"not seen: {', '.join(unseen)}; play more by --num-steps or --num-envs")
    return "\n".join(lines)


def _sizes(env: MultiAgentEnv, agent: str, params: Any) -> str:
    """Describe an agent's observations and actions."""
    shape = " x ".join(map(str, env.observation_space(agent, params).shape))
    space = env.action_space(agent, params)
    if isinstance(space, Discrete):
        return f"{shape} features, {space.n} actions"
    if isinstance(space, Box):
        return f"{shape} features, {space.size} real actions"
    return f"{shape} features, actions {describe_actions(space)}"
