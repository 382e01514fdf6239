"""`jaxmarl-ppo config`: the configuration of an environment's preset, as a file to edit."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import jaxmarl_envs
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.config.env_as_json import params_to_json
from jaxmarl_ppo.config.printing import Format, print_settings
from jaxmarl_ppo.config.run_file import settings


@dataclass(frozen=True)
class ConfigOptions:
    """Print an environment's preset as a configuration file, with comments on every key.

    `jaxmarl-ppo train --config FILE` reads it.

    Attributes:
        env: name of the environment; `jaxmarl-ppo envs` lists them.
        preset: variant of the environment's preset, such as `league`, or `rllib`.
        format: format of the file.
        env_kwargs: KEY=VALUE, arguments of the environment, in addition to those of the preset.
    """

    env: session.Env = None
    preset: str | None = None
    format: Format = "toml"
    env_kwargs: session.EnvKwargs = field(default_factory=dict)


def main(args: Sequence[str], prog: str = "jaxmarl-ppo config") -> int:
    """Print a preset as a file.

    Raises:
        ValueError: For an unknown environment or preset, or options that the environment cannot be
            made with.
    """
    options = session.parse(ConfigOptions, args, prog)
    if options.env is None:
        raise ValueError(f"{prog} takes an environment's name; jaxmarl-ppo envs lists them")
    given = dict(options.env_kwargs)
    if options.env not in jaxmarl_envs.all_names():
        jaxmarl_envs.make(options.env)  # its error names the closest one
    start = settings(options.env, options.preset, None)
    start = dataclasses.replace(start, env_kwargs={**start.env_kwargs, **given})
    _, env_params = jaxmarl_envs.make(options.env, **start.env_kwargs)
    print(print_settings(start, params_to_json(env_params), options.format), end="")
    return 0
