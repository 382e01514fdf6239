"""`jaxmarl-ppo train`, with the defaults of the environment's preset."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_env_names import full_name, is_own
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import options_of
from jaxmarl_ppo.cli.processes import JobOptions, launch, launch_on_ray, prepare
from jaxmarl_ppo.cli.run_options import SHOWN, find_option, run_options, shown_options, to_table
from jaxmarl_ppo.config.env_as_json import params_from_json
from jaxmarl_ppo.config.parsing import is_run_file
from jaxmarl_ppo.config.run_file import Settings, settings
from jaxmarl_ppo.runs.named_env import as_options, check_effect, make_env

if TYPE_CHECKING:
    from jaxmarl_ppo.training.trainer import Trainer

PROG = "jaxmarl-ppo train"
# Of its own options, what help shows first.
_SHOWN = ("config", "preset", "run_dir", "log", "progress", "quiet", "dry_run")


@dataclass(frozen=True)
class TrainOptions(session.TrainingOptions):
    """Train policies on an environment, and record the run in a folder.

    Defaults are those of the environment's preset, if it has one, and of the file that `--config`
    names; give both with `--help` to see them. Besides the options below, every value of the
    configuration is an option under its full path, such as `--evaluation.episodes 64`.

    A value is a number (`1M` and `5e6` too), a word, `true` or `false`, `none`, or a list or table
    in TOML or JSON. A schedule is a number, `linear:1e-3:0` (from the first to the last environment
    step) or `'[[0, 1e-3], [1e6, 0]]'` (points joined by lines).

    Attributes:
        env: name of the environment, `jaxmarl-ppo envs` lists them; or code of your own:
            `package.module:Class` or `path/to/file.py:Class`, a class or a function that makes it.
            Or a file as for `--config`.
        config: configuration file (.toml, .yaml, .json), such as `jaxmarl-ppo config ENV` prints;
            options override it. Or the config.json of a run, which is then repeated.
        preset: variant of the environment's preset, such as `league`; or `slow_env`, which learns
            from few steps, for environments in Python; or `rllib`, the defaults of RLlib's PPO.
        run_dir: new folder for the run; None for `runs/<env>-<network>-seed<seed>-<time>`.
        dry_run: check everything, train nothing, and print what would be trained.
        job: several processes that train the run together.
    """

    env: session.Env = None
    config: Path | None = None
    preset: str | None = None
    run_dir: Path | None = None
    dry_run: bool = False
    job: JobOptions = field(default_factory=JobOptions)


@dataclass(frozen=True)
class TrainCommand:
    """A command line of `train`, read together with the file and the preset that it names.

    Attributes:
        options: of the command itself.
        run: what is trained.
        file: that describes the run; None for none.
        given: what the command line itself says of the run, as a table of a file.
    """

    options: TrainOptions
    run: Settings
    file: Path | None
    given: Mapping[str, Any]

    def make_env(self) -> tuple[MultiAgentEnv, Any]:
        """Make the environment, importing only code that the command line names.

        Raises:
            ValueError: If it cannot be made, or a file names further code.
        """
        allowed = self.options.allow_import
        source, option = str(self.file or "the preset"), "--allow-import"
        permitted = [*self.typed_names(), *allowed]
        env, params = make_env(str(self.run.env), self.run.env_kwargs, permitted, source, option)
        check_effect(env, allowed)
        return env, self.to_env_params(params)

    def typed_names(self) -> list[str]:
        """List the values of the command line that may name code."""
        # One that a file names is permitted by `--allow-import`, or not at all.
        env = self.options.env
        named = [env] if env is not None and is_own(env) and not is_run_file(env) else []
        return [*named, *_strings_in(self.given.get("env", {}).get("kwargs", {}))]

    def to_env_params(self, default: Any) -> Any:
        """Make the environment's parameters: `default`, changed by a file's values.

        Raises:
            ValueError: If the file sets something that the environment does not have.
        """
        if self.run.env_params is None:
            return default
        return params_from_json(self.run.env_params, default, partial=not self.run.whole_params)


def main(args: Sequence[str], prog: str = PROG) -> int:
    """Train, and print the path of the record.

    Raises:
        ValueError: If options are inconsistent, or the environment is faulty.
    """
    command = parse_train(args, prog)
    options, config = command.options, command.run.config
    if options.job.ray is not None:
        return _train_on_ray(command, args)
    if options.job.processes is not None:
        return launch(options.job, "train", args)
    prepare(options.job, config.num_devices)
    typed = [name for name in command.typed_names() if is_own(name)]
    session.find_modules_here(*typed, *options.allow_import)
    env, env_params = command.make_env()
    session.enable_compilation_cache()
    from jaxmarl_ppo.cli.run_end import print_end, show_plays
    from jaxmarl_ppo.devices.joining import current
    from jaxmarl_ppo.runs.loggers import make_loggers
    from jaxmarl_ppo.training.trainer import Trainer

    trainer = Trainer(
        env,
        env_params,
        config,
        options.run_dir,
        callbacks=make_loggers(options.log),
        progress=options.progress and not options.quiet,
        keep_cores_awake=options.keep_cores_awake,
        check_env=options.check_env,
    )
    if env.steps_on_host and _has_default_sizes(command) and not options.quiet:
        session.show(f"{env.name} is stepped in Python: --preset slow_env needs far fewer steps")
    if options.dry_run:
        return _print_plan(trainer)
    result = trainer.train()
    prints = current().is_first
    status = print_end(result, config, env, prints=prints and not options.quiet)
    if prints:
        show_plays(trainer, result, options.plays, prints=not options.quiet)
    return status


def _has_default_sizes(command: TrainCommand) -> bool:
    """Return whether the user has chosen nothing about the size of a rollout."""
    sizes = {"num_envs", "num_steps"} & set(command.given)
    return command.options.preset is None and command.file is None and not sizes


def _print_plan(trainer: "Trainer") -> int:
    """Print what a run would train."""
    config, policies = trainer.config, trainer.learner.players.policies
    session.show(f"would train {trainer.title}")
    session.show(
        f"{config.num_iterations:,} {'iteration' if config.num_iterations == 1 else 'iterations'} "
        f"of {config.env_steps(1):,} environment steps; "
        f"policies {', '.join(policies)}"
    )
    return 0


def _train_on_ray(command: TrainCommand, args: Sequence[str]) -> int:
    """Have the hosts of a Ray cluster train.

    Raises:
        ValueError: If options are inconsistent, the folder is in use, or anything else went wrong.
    """
    from jaxmarl_ppo.runs.run_folder import check_unused

    options = command.options
    if options.run_dir is not None:
        check_unused(options.run_dir)
    again = [] if options.run_dir is None else [str(options.run_dir)]
    named = [*filter(is_own, command.typed_names()), *options.allow_import]
    again += shlex.split(as_options(list(dict.fromkeys(named))))
    for name in ("progress", "check_env"):
        again += [] if getattr(options, name) else [session.flag(f"no_{name}")]
    again += ["--keep-cores-awake"] if options.keep_cores_awake else []
    again += ["--quiet"] if options.quiet else []
    if options.plays is not None:
        again += ["--plays" if options.plays else "--no-plays"]
    again += [word for name in options.log for word in ("--log", name)]
    return launch_on_ray(options.job, "train", args, options.run_dir, again)


def parse_train(args: Sequence[str], prog: str = PROG) -> TrainCommand:
    """Read a command line, and the preset and the file that it names.

    Raises:
        ValueError: For an option that cannot be read, no environment, or an unknown one.
    """
    of_run = run_options()
    options, by_path = session.parse_with(
        TrainOptions, args, prog, of_run, find_option(of_run), lambda given: "config" not in given
    )
    given = to_table(by_path)
    name, file = _env_and_file(options)
    run = settings(name, options.preset, file, given)
    helps = session.asks_for_help(args)
    if run.env is not None:
        _check_env(run.env, file if name is None else None, options.allow_import)
    elif not helps:
        raise ValueError(f"{prog} takes an environment's name; jaxmarl-ppo envs lists them")
    if helps:
        own = options_of(TrainOptions)
        first = [option for option in own if option.key in _SHOWN]
        every = [*own, *run_options(run)]
        session.print_help(TrainOptions, prog, args, [*shown_options(SHOWN, run), *first], every)
    return TrainCommand(options, run, file, given)


def _check_env(env: str, file: Path | None, allowed: Sequence[str]) -> None:
    """Raise an error unless the environment is registered or its code is named by the user."""
    is_named = file is None or full_name(env) in map(full_name, allowed)
    if env in jaxmarl_envs.all_names() or (is_own(env) and is_named):
        return
    if file is not None and is_own(env):
        raise ValueError(
            f"{file} names the environment {env!r}, and no code is run because a file names it; "
            f"if you trust it, name it too: train {shlex.quote(env)} --config {file}"
        )
    if file is not None:
        raise ValueError(
            f"{file} names the environment {env!r}, which is not registered; valid: "
            f"{', '.join(jaxmarl_envs.all_names())}"
        )
    jaxmarl_envs.make(env)  # its error names the closest one


def _env_and_file(options: TrainOptions) -> tuple[str | None, Path | None]:
    """Return the environment named on the command line, and the file."""
    if not is_run_file(options.env):
        return options.env, options.config
    if options.config is not None:
        raise ValueError(
            f"{options.env} and --config {options.config} are two files; drop one of them"
        )
    return None, Path(str(options.env))


def _strings_in(value: Any) -> list[str]:
    """List the strings in nested tables and lists."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return [value] if isinstance(value, str) else []
    return [text for part in value for text in _strings_in(part)]
