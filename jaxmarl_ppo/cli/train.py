"""`jaxmarl-ppo train`, with the defaults of the environment's preset."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.own_names import full_name, is_own
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.processes import JobOptions, launch, launch_on_ray, prepare
from jaxmarl_ppo.cli.session import Switch, reader
from jaxmarl_ppo.cli.values import (
    Dtype,
    MappingOption,
    NetworkKind,
    OptionalSchedule,
    ScheduleOption,
    parse_env_kwargs,
)
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.env_as_json import params_from_json
from jaxmarl_ppo.config.networks import kinds_with
from jaxmarl_ppo.config.parsing import is_run_file
from jaxmarl_ppo.config.ppo import OPTIMISERS, PPOConfig
from jaxmarl_ppo.config.presets import follow
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.run_file import Settings, settings
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import NETWORKS
from jaxmarl_ppo.networks.precision import MatmulPrecision
from jaxmarl_ppo.runs.named_env import as_options, check_effect, make_env

PROG = "jaxmarl-ppo train"
Activation = Literal["tanh", "relu", "silu", "gelu"]


# Of `PolicySpec`, what can be said on the command line in so many words.
_INPUT_OPTIONS = (
    "prev_action",
    "prev_reward",
    "append_agent_id",
    "normalise_observations",
    "normalise_rewards",
    "central_critic",
    "imitate",
    "imitate_coef",
)


@dataclass(frozen=True)
class PPOOptions(PPOConfig):  # noqa: D101
    __doc__ = PPOConfig.__doc__

    learning_rate: ScheduleOption = PPOConfig.learning_rate
    entropy_coef: ScheduleOption = PPOConfig.entropy_coef
    gamma: ScheduleOption = PPOConfig.gamma
    gae_lambda: ScheduleOption = PPOConfig.gae_lambda
    clip_eps: ScheduleOption = PPOConfig.clip_eps
    value_coef: ScheduleOption = PPOConfig.value_coef
    magnet_coef: OptionalSchedule = PPOConfig.magnet_coef
    optimiser: Literal[OPTIMISERS] = "adam"  # type: ignore[valid-type]

    def __post_init__(self) -> None:
        """Leave the check to `PPOConfig`, so that an error is one plain line."""


@dataclass(frozen=True)
class CheckpointOptions(CheckpointConfig):  # noqa: D101
    __doc__ = CheckpointConfig.__doc__

    def __post_init__(self) -> None:
        """Leave the check to `CheckpointConfig`, so that an error is one plain line."""


@dataclass(frozen=True)
class EvaluationOptions(EvaluationConfig):  # noqa: D101
    __doc__ = EvaluationConfig.__doc__

    def __post_init__(self) -> None:
        """Leave the check to `EvaluationConfig`, so that an error is one plain line."""


@dataclass(frozen=True)
class ObjectiveOptions(ObjectiveConfig):  # noqa: D101
    __doc__ = ObjectiveConfig.__doc__

    def __post_init__(self) -> None:
        """Leave the check to `ObjectiveConfig`, so that an error is one plain line."""


@dataclass(frozen=True)
class TrainOptions:
    """Train policies on an environment and keep a record in a folder.

    The defaults are those of the environment's preset, if it has one, and of the file that
    `--config` names; name both to see them. `--network` chooses the network options that apply.

    Attributes:
        env: name of the environment, `jaxmarl-ppo envs` lists them; or one of your own:
            `package.module:Class` or `path/to/file.py:Class`, a class or a function that makes it.
            Or a file as for `--config`.
        config: a file (.toml, .yaml, .json) whose values hold unless an option says otherwise, as
            `jaxmarl-ppo config ENV` prints one; or the config.json of a run, which is repeated.
        preset: a variant of the environment's preset to take the defaults from, such as `league`,
            or `rllib` for the defaults of RLlib's PPO.
        seed: of everything random.
        num_seeds: train so many runs side by side, of this seed and those that follow it: one
            folder with a run for each, and curves with mean, interquartile mean and interval.
        total_env_steps: ticks summed over environments, such as 5e6; rounded up to whole
            iterations.
        num_envs: parallel environments.
        num_steps: ticks per rollout.
        network: kind of network.
        hidden_sizes: widths of the dense layers.
        head_sizes: widths of further ones, behind the memory if there is one, of actor and critic
            each their own.
        lstm_size: width of the LSTM; only with `--network lstm`.
        gru_size: width of the GRU or minGRU; only with `--network gru` and `min_gru`.
        channels: of each convolution; only with `--network cnn`.
        activation: of all layers.
        separate_critic: actor and critic share no layer.
        unimix: share of uniform play in what policies of discrete actions do, such as .01.
        dtype: what layers are computed in; parameters stay float32. bfloat16 is for accelerators.
        mapping: one policy for all, one per agent, so many per agent of which one is drawn for
            every episode (`ensemble:3`), or a table such as `x=red,o=blue`; patterns such as
            `car_*=car` stand for several agents. What the preset or the file says about single
            policies goes with the mapping there.
        prev_action: append the agent's previous action to its features.
        prev_reward: append what the agent earned since its previous action.
        append_agent_id: append the slot's one-hot.
        normalise_observations: by running mean and variance.
        normalise_rewards: by the running standard deviation of the discounted return, clipped to
            +-10.
        central_critic: the critic sees what all agents see; needs `--separate-critic`.
        imitate: a baseline of the environment, such as a dispatcher, to learn from besides rewards.
        imitate_coef: weight of that in the loss; a schedule such as `linear:1:0`.
        ppo: hyper-parameters. A schedule is a number, `linear:1e-3:0` (from the first to the last
            environment step) or `'[[0, 1e-3], [1e6, 0]]'` (points joined by lines).
        stagger_starts: begin the first episodes at different phases; None for where the
            environment has a horizon, which this needs.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        matmul_precision: in what networks multiply matrices: `float32`, `tf32` (on GPUs), or
            `bfloat16` (operands rounded, sums in float32).
        num_devices: devices, on a CPU cores, that environments are spread over; must divide
            `num_envs`. None for as many as do and leave each at least 8.
        skip_nonfinite_updates: leave out an optimiser step of a policy whose loss or gradient is
            not finite, and count it in the log, instead of ending the run.
        log_interval: iterations per entry of the log; None for about a hundred entries, and one at
            least every five seconds.
        max_minutes: minutes of training, after which the run stops and can be resumed; None for no
            limit.
        until: end the run once this holds for an entry of the log, such as
            `"shared.return_mean > 20"`; may be given more than once.
        checkpoints: when the state of training is saved, from which `jaxmarl-ppo resume` goes on.
        evaluation: when what was learnt is evaluated meanwhile, and how.
        objective: what the best checkpoint is chosen by, and when that is enough.
        load: a run, or one of its checkpoints, whose policies those of the same names start from.
        run_dir: a new folder for the record; None for `runs/<env>-<network>-seed<seed>-<time>`.
        env_kwargs: KEY=VALUE, what the environment is made with, beside what the preset or the file
            says of other keys.
        allow_import: code that the file names and that may be imported; may be given more than
            once. What the command line itself names may be in any case.
        log: `wandb` or `mlflow`, besides TensorBoard; may be given more than once. Their own
            variables say where to, such as `WANDB_PROJECT` and `MLFLOW_TRACKING_URI`.
        progress: show progress.
        keep_cores_awake: keep the CPU's cores from falling asleep in the short waits of training,
            by processes of the lowest priority; on virtual machines a quarter more speed.
        check_env: look for what is wrong with the environment before anything is compiled.
        job: several processes that train the run together.
        plays: whether a run that came to its end is evaluated, and episodes of it are shown, in
            `report.html`; None for where the environment is compiled.
    """

    env: Annotated[
        Positional[str | None], tyro.conf.arg(metavar="ENV", help_behavior_hint="(required)")
    ]
    preset: str | None
    seed: int
    num_seeds: int
    total_env_steps: int
    num_envs: int
    num_steps: int
    network: NetworkKind
    hidden_sizes: tuple[int, ...]
    head_sizes: tuple[int, ...]
    lstm_size: int | None
    gru_size: int | None
    channels: tuple[int, ...] | None
    activation: Activation
    separate_critic: bool
    unimix: float
    dtype: Dtype
    mapping: MappingOption
    prev_action: bool
    prev_reward: bool
    append_agent_id: bool
    normalise_observations: bool
    normalise_rewards: bool
    central_critic: bool
    imitate: str | None
    imitate_coef: OptionalSchedule
    ppo: PPOOptions
    stagger_starts: Switch
    micro_batch_rows: int | None
    matmul_precision: MatmulPrecision
    num_devices: int | None
    skip_nonfinite_updates: bool
    log_interval: int | None
    max_minutes: float | None
    until: Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
    checkpoints: CheckpointOptions
    evaluation: EvaluationOptions
    objective: ObjectiveOptions
    # One value, so that tyro does not walk its fields.
    start: Annotated[Settings, reader(str, "SETTINGS"), tyro.conf.Fixed, tyro.conf.Suppress]
    config: Path | None = None
    load: Path | None = None
    run_dir: Path | None = None
    env_kwargs: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    allow_import: session.AllowImport = ()
    log: Annotated[tuple[tuple[str], ...], tyro.conf.UseAppendAction] = ()
    progress: bool = True
    keep_cores_awake: bool = False
    check_env: bool = True
    plays: Switch = None
    job: Annotated[JobOptions, tyro.conf.OmitArgPrefixes] = field(default_factory=JobOptions)

    def to_config(self) -> TrainConfig:
        """Make the configuration that these options describe.

        Raises:
            ValueError: a value out of range, or an option without effect.
        """
        base = self.start.config
        spec = dataclasses.replace(
            base.default_policy,
            network=self._network(),
            load=base.default_policy.load if self.load is None else str(self.load),
            **{name: getattr(self, name) for name in _INPUT_OPTIONS},
        )
        ppo = _config(PPOConfig, self.ppo)
        own = {name: getattr(self, name) for name in _names(TrainConfig) if hasattr(self, name)}
        own |= {name: _config(cls, getattr(self, name)) for name, (cls, _) in _NESTED.items()}
        config = dataclasses.replace(
            base, **{**own, "default_policy": spec, "default_ppo": ppo, "policies": {}}
        )
        if self.mapping != base.mapping:  # its policies are others
            return config
        specs = {name: follow(known, base, config) for name, known in base.policies.items()}
        return dataclasses.replace(config, policies=specs)

    def to_env_kwargs(self) -> dict[str, Any]:
        """Tell what the environment is to be made with.

        Raises:
            ValueError: what is no KEY=VALUE, or a key given twice.
        """
        return {**self.start.env_kwargs, **self._given_env_kwargs()}

    def _given_env_kwargs(self) -> dict[str, Any]:
        return parse_env_kwargs([pair for pairs in self.env_kwargs for pair in pairs])

    def make_env(self) -> tuple[MultiAgentEnv, Any]:
        """Make the environment, importing only code that the command line names.

        Raises:
            ValueError: it cannot be made, or a file names further code.
        """
        allowed = session.names_of(self.allow_import)
        source, option = str(self.config or "the preset"), "--allow-import"
        permitted = [*self.typed_names(), *allowed]
        env, env_params = make_env(str(self.env), self.to_env_kwargs(), permitted, source, option)
        check_effect(env, allowed)
        return env, self.to_env_params(env_params)

    def typed_names(self) -> list[str]:
        """List what the command line itself says that may name code."""
        # One that a file names is permitted by `--allow-import`, or not at all.
        named = [self.env] if self.env is not None and is_own(self.env) else []
        return [*named, *_strings_in(self._given_env_kwargs())]

    def to_env_params(self, default: Any) -> Any:
        """Make the environment's parameters, which are `default` but for what a file says.

        Raises:
            ValueError: the file says what the environment does not have.
        """
        if self.start.env_params is None:
            return default
        return params_from_json(self.start.env_params, default, partial=not self.start.whole_params)

    def _network(self) -> Any:
        sizes: dict[str, Any] = {}
        for option in ("lstm_size", "gru_size", "channels"):
            value, kinds = getattr(self, option), kinds_with(option)
            if self.network in kinds:
                sizes[option] = value
            elif value is not None:
                flag = option.replace("_", "-")
                raise ValueError(
                    f"--{flag} has no effect with --network {self.network}; "
                    f"use --network {' or '.join(kinds)}, or drop --{flag}"
                )
        sizes["hidden_sizes"] = self.hidden_sizes
        sizes["head_sizes"] = self.head_sizes
        return NETWORKS[self.network](
            activation=self.activation,
            separate_critic=self.separate_critic,
            unimix=self.unimix,
            dtype=self.dtype,
            **sizes,
        )


# By their fields in `TrainConfig`: what is configured together, and its options.
_NESTED: dict[str, tuple[type, type]] = {
    "checkpoints": (CheckpointConfig, CheckpointOptions),
    "evaluation": (EvaluationConfig, EvaluationOptions),
    "objective": (ObjectiveConfig, ObjectiveOptions),
}


def main(args: Sequence[str], prog: str = PROG) -> int:
    """Train, and say where the record is.

    Raises:
        ValueError: options that do not fit together, or a fault of the environment.
    """
    options = parse_train(args, prog)
    config = options.to_config()
    options.to_env_kwargs()
    if options.job.ray is not None:
        return _train_on_ray(options, args)
    if options.job.processes is not None:
        return launch(options.job, "train", args)
    prepare(options.job, config.num_devices)
    typed = [name for name in options.typed_names() if is_own(name)]
    session.find_modules_here(*typed, *session.names_of(options.allow_import))
    env, env_params = options.make_env()
    session.enable_compilation_cache()
    from jaxmarl_ppo.cli.run_end import show_plays, tell_end
    from jaxmarl_ppo.devices.joining import current
    from jaxmarl_ppo.runs.loggers import make_loggers
    from jaxmarl_ppo.training.trainer import Trainer

    trainer = Trainer(
        env,
        env_params,
        config,
        options.run_dir,
        callbacks=make_loggers([name for (name,) in options.log]),
        progress=options.progress,
        keep_cores_awake=options.keep_cores_awake,
        check_env=options.check_env,
    )
    result = trainer.train()
    is_first = current().is_first
    status = tell_end(result, config, env, tells=is_first)
    if is_first:
        show_plays(trainer, result, options.plays)
    return status


def _train_on_ray(options: TrainOptions, args: Sequence[str]) -> int:
    """Have the hosts of a Ray cluster train.

    Raises:
        ValueError: options that do not go together, a folder in use, or what went wrong.
    """
    from jaxmarl_ppo.runs.run_folder import check_unused

    if options.run_dir is not None:
        check_unused(options.run_dir)
    again = [] if options.run_dir is None else [str(options.run_dir)]
    named = [*filter(is_own, options.typed_names()), *session.names_of(options.allow_import)]
    again += shlex.split(as_options(list(dict.fromkeys(named))))
    for name in ("progress", "check_env"):
        again += [] if getattr(options, name) else [session.flag(f"no_{name}")]
    again += ["--keep-cores-awake"] if options.keep_cores_awake else []
    if options.plays is not None:
        again += ["--plays" if options.plays else "--no-plays"]
    again += [word for (name,) in options.log for word in ("--log", name)]
    return launch_on_ray(options.job, "train", args, options.run_dir, again)


def parse_train(args: Sequence[str], prog: str = PROG) -> TrainOptions:
    """Read the options, with the defaults of the environment, preset, file and network they name.

    Raises:
        ValueError: an option that cannot be read, no environment, or an unknown one.
    """
    helps = bool(session.HELP & set(args))
    default = _default_options(settings(None, None, None), None)
    options = session.parse(TrainOptions, args, prog, default, helps=False)
    name, file = _env_and_file(options)
    start = settings(name, options.preset, file) if name or file else options.start
    if start.env is None:
        if not helps:
            raise ValueError(f"{prog} takes an environment's name; jaxmarl-ppo envs lists them")
    else:
        allowed = session.names_of(options.allow_import)
        _check_env(start.env, file if name is None else None, allowed)
        default = _default_options(start, None)
        options = session.parse(TrainOptions, args, prog, default, helps=False)
        if options.network != default.network:
            default = _default_options(start, options.network)
            options = session.parse(TrainOptions, args, prog, default, helps=False)
    if helps:
        session.parse(TrainOptions, args, prog, default)
    return dataclasses.replace(options, env=start.env, config=file)


def _check_env(env: str, file: Path | None, allowed: Sequence[str]) -> None:
    """Raise an error unless the environment is known, and named by the user if it is theirs."""
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
    jaxmarl_envs.make(env)  # tells the closest name


def _env_and_file(options: TrainOptions) -> tuple[str | None, Path | None]:
    """Tell the environment that the command line names, and the file."""
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


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _config(cls: type, values: Any) -> Any:
    """Make a dataclass of the values that another one of the same fields has."""
    return cls(**{name: getattr(values, name) for name in _names(cls)})


def _default_options(start: Settings, kind: str | None) -> TrainOptions:
    config, spec = start.config, start.config.default_policy
    network: Any = spec.network
    ppo = {name: getattr(config.default_ppo, name) for name in _names(PPOConfig)}
    if kind is not None and kind != network_kind(network):
        # The preset's sizes were chosen for another network.
        network = NETWORKS[kind]()
        ppo["bptt_length"] = None
    own = {name: getattr(config, name) for name in _names(TrainConfig)}
    own |= {name: _config(options, own[name]) for name, (_, options) in _NESTED.items()}
    # In files alone.
    for name in ("default_policy", "default_ppo", "policies", "env_schedules", "pbt"):
        del own[name]
    inputs = {name: getattr(spec, name) for name in _INPUT_OPTIONS}
    return TrainOptions(
        env=start.env,
        preset=start.preset,
        start=start,
        network=network_kind(network),  # type: ignore[arg-type]
        hidden_sizes=tuple(network.hidden_sizes),
        head_sizes=tuple(network.head_sizes),
        lstm_size=getattr(network, "lstm_size", None),
        gru_size=getattr(network, "gru_size", None),
        channels=getattr(network, "channels", None),
        activation=network.activation,
        separate_critic=network.separate_critic,
        unimix=network.unimix,
        dtype=network.dtype,
        ppo=PPOOptions(**ppo),
        **own,
        **inputs,
    )
