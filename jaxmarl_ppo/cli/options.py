"""The options of every command, with the defaults of the environment's preset."""

import dataclasses
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional
from tyro.constructors import ConstructorRegistry

import jaxmarl_envs
from jaxmarl_ppo.cli.values import Count, Dtype, MappingOption, schedule_rule
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.presets import preset
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import NETWORKS

NetworkKind = Literal["mlp", "lstm", "cnn"]
Activation = Literal["tanh", "relu", "silu", "gelu"]
Platform = Literal["cpu", "cuda", "rocm", "tpu"]


# Of `PolicySpec`, what can be said on the command line in so many words.
_INPUT_OPTIONS = (
    "prev_action",
    "prev_reward",
    "append_agent_id",
    "normalise_observations",
    "normalise_rewards",
    "central_critic",
)


@dataclass(frozen=True)
class PPOOptions(PPOConfig):  # noqa: D101
    __doc__ = PPOConfig.__doc__

    def __post_init__(self) -> None:
        """Checked when it becomes a `PPOConfig`, so that an error is one plain line."""


@dataclass(frozen=True)
class TrainOptions:
    """Train policies on an environment and keep a record in a folder.

    The defaults are those of the environment's preset, if it has one; name the environment to see
    them. `--network` chooses the network options that apply.

    Attributes:
        env: name of the environment; `jaxmarl-ppo envs` lists them.
        preset: a variant of the environment's preset to take the defaults from, such as `league`,
            or `rllib` for the defaults of RLlib's PPO.
        seed: of everything random.
        total_env_steps: ticks summed over environments, such as 5e6; rounded up to whole
            iterations.
        num_envs: parallel environments.
        num_steps: ticks per rollout.
        network: kind of network.
        hidden_sizes: widths of the dense layers.
        lstm_size: width of the LSTM; only with `--network lstm`.
        channels: of each convolution; only with `--network cnn`.
        activation: of all layers.
        separate_critic: actor and critic share no layer.
        dtype: what layers are computed in; parameters stay float32. bfloat16 is for accelerators.
        mapping: one policy for all, one per agent, so many per agent of which one is drawn for
            every episode (`ensemble:3`), or a table such as `x=red,o=blue`; patterns such as
            `car_*=car` stand for several agents. What the preset says about single policies goes
            with the preset's own mapping.
        prev_action: append the agent's previous action to its features.
        prev_reward: append what the agent earned since its previous action.
        append_agent_id: append the slot's one-hot.
        normalise_observations: by running mean and variance.
        normalise_rewards: by the running standard deviation of the discounted return, clipped to
            +-10.
        central_critic: the critic sees what all agents see; needs `--separate-critic`.
        ppo: hyper-parameters. A schedule is a number, `linear:1e-3:0` (from the first to the last
            environment step) or `'[[0, 1e-3], [1e6, 0]]'` (points joined by lines).
        stagger_starts: begin the first episodes at different phases.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        num_devices: devices, on a CPU cores, that environments are spread over; must divide
            `num_envs`. None for as many as do and leave each at least 8.
        log_interval: iterations per entry of the log; None for about a hundred entries.
        run_dir: a new folder for the record; None for `runs/<env>-<network>-seed<seed>-<time>`.
        env_kwargs: KEY=VALUE, what the environment is made with.
        progress: show progress.
        keep_cores_awake: keep the CPU's cores from falling asleep in the short waits of training,
            by processes of the lowest priority; None for where that helps: on virtual machines.
    """

    env: Annotated[Positional[str], tyro.conf.arg(metavar="ENV")]
    preset: str | None
    seed: int
    total_env_steps: Count
    num_envs: Count
    num_steps: Count
    network: NetworkKind
    hidden_sizes: tuple[int, ...]
    lstm_size: int | None
    channels: tuple[int, ...] | None
    activation: Activation
    separate_critic: bool
    dtype: Dtype
    mapping: MappingOption
    prev_action: bool
    prev_reward: bool
    append_agent_id: bool
    normalise_observations: bool
    normalise_rewards: bool
    central_critic: bool
    ppo: PPOOptions
    stagger_starts: bool
    micro_batch_rows: int | None
    num_devices: int | None
    log_interval: int | None
    run_dir: Path | None = None
    env_kwargs: tuple[str, ...] = ()
    progress: bool = True
    keep_cores_awake: bool | None = None

    def to_config(self) -> TrainConfig:
        """The configuration that these options describe.

        Raises:
            ValueError: a value out of range, or an option without effect.
        """
        spec = PolicySpec(
            network=self._network(),
            **{name: getattr(self, name) for name in _INPUT_OPTIONS},
        )
        ppo = PPOConfig(**{name: getattr(self.ppo, name) for name in _names(PPOConfig)})
        own = {name: getattr(self, name) for name in _names(TrainConfig) if hasattr(self, name)}
        base = preset(self.env, self.preset).config
        specs = {
            name: _follow(known, base, spec, ppo) if isinstance(known, PolicySpec) else known
            for name, known in base.policies.items()
            if self.mapping == base.mapping  # else they are about policies that there are not
        }
        return dataclasses.replace(
            base, **{**own, "default_policy": spec, "default_ppo": ppo, "policies": specs}
        )

    def _network(self) -> Any:
        sizes: dict[str, Any] = {}
        for option, kind in (("lstm_size", "lstm"), ("channels", "cnn")):
            value = getattr(self, option)
            if kind == self.network:
                sizes[option] = value
            elif value is not None:
                flag = option.replace("_", "-")
                raise ValueError(
                    f"--{flag} has no effect with --network {self.network}; "
                    f"use --network {kind} or drop --{flag}"
                )
        sizes["hidden_sizes"] = self.hidden_sizes
        for option, value in sizes.items():
            for size in value if isinstance(value, tuple) else (value,):
                if size is None or size < 1:
                    flag = option.replace("_", "-")
                    raise ValueError(f"--{flag} takes whole numbers of at least 1, got {size}")
        return NETWORKS[self.network](
            activation=self.activation,
            separate_critic=self.separate_critic,
            dtype=self.dtype,
            **sizes,
        )


@dataclass(frozen=True)
class EvaluateOptions:
    """Evaluate what a run has learnt, on fresh episodes.

    Attributes:
        run_dir: the run's folder.
        episodes: how many; None for as many as the environment needs.
        seed: of the episodes.
        greedy: take each policy's most probable action instead of drawing one.
        cross_play: also play all policies, snapshots, random play and the environment's scripted
            policies against each other; draws the matrix into the run's folder.
        row_agents: with `--cross-play`, the agents of one side; None for the first agent.
        json: print one JSON object instead of a table.
    """

    run_dir: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    episodes: int | None = None
    seed: int = 0
    greedy: bool = False
    cross_play: bool = False
    row_agents: tuple[str, ...] | None = None
    json: bool = False


@dataclass(frozen=True)
class ExportOptions:
    """Write a policy into one file that acts with JAX alone; it is checked against the original.

    Attributes:
        run_dir: the run's folder.
        policy: name of the policy, such as `bob` or `past@3`; None where there is only one, or only
            one that plays `agent`.
        agent: the agent that it is to play; None for all that it can play.
        out: a new file; None for `<policy>.jaxexport`.
        platforms: that it is to run on.
    """

    run_dir: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    policy: str | None = None
    agent: str | None = None
    out: Path | None = None
    platforms: tuple[Platform, ...] = ("cpu", "cuda", "tpu")


@dataclass(frozen=True)
class EnvsOptions:
    """List the environments that can be trained on by name."""


def parse_train(args: Sequence[str]) -> TrainOptions:
    """Parse the arguments of `train`, with the defaults of the environment that they name.

    Raises:
        ValueError: an unknown environment.
    """
    names = jaxmarl_envs.all_names()
    env = next((arg for arg in args if arg in names), None)
    options = _parse_train(args, env)
    if options.env not in names:
        jaxmarl_envs.make(options.env)  # tells the closest name
    # An option's value may have looked like the name of an environment.
    return options if options.env == env else _parse_train(args, options.env)


def parse_evaluate(args: Sequence[str]) -> EvaluateOptions:
    """Parse the arguments of `evaluate`."""
    return tyro.cli(EvaluateOptions, args=args, prog="jaxmarl-ppo evaluate")


def parse_export(args: Sequence[str]) -> ExportOptions:
    """Parse the arguments of `export`."""
    return tyro.cli(ExportOptions, args=args, prog="jaxmarl-ppo export")


def parse_envs(args: Sequence[str]) -> EnvsOptions:
    """Parse the arguments of `envs`."""
    return tyro.cli(EnvsOptions, args=args, prog="jaxmarl-ppo envs")


def _follow(known: PolicySpec, base: TrainConfig, spec: PolicySpec, ppo: PPOConfig) -> PolicySpec:
    """A preset's single policy, changed in what the options change about all of them."""

    def changes(new: Any, old: Any) -> dict[str, Any]:
        names = [name for name in _names(type(new)) if getattr(new, name) != getattr(old, name)]
        return {name: getattr(new, name) for name in names}

    own_ppo = known.ppo and dataclasses.replace(known.ppo, **changes(ppo, base.default_ppo))
    changed = {**changes(spec, base.default_policy), "ppo": own_ppo}
    return dataclasses.replace(known, **changed)


def _names(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def _parse_train(args: Sequence[str], env: str | None) -> TrainOptions:
    registry = ConstructorRegistry()
    registry.primitive_rule(schedule_rule)
    return tyro.cli(
        TrainOptions,
        args=args,
        prog="jaxmarl-ppo train",
        default=_default_options(
            env, _argument(args, "preset"), _argument(args, "network", NETWORKS)
        ),
        registry=registry,
    )


def _argument(args: Sequence[str], name: str, known: Container[str] | None = None) -> str | None:
    """The value given for an option that other defaults depend on."""
    for i, arg in enumerate(args):
        value = arg.partition("=")[2] if arg.startswith(f"--{name}=") else None
        if arg == f"--{name}" and i + 1 < len(args):
            value = args[i + 1]
        if value is not None and (known is None or value in known):
            return value
    return None


def _default_options(env: str | None, variant: str | None, kind: str | None) -> TrainOptions:
    chosen = preset(env or "", variant if env else None)
    config, spec = chosen.config, chosen.config.default_policy
    network = NETWORKS[spec.network]() if isinstance(spec.network, str) else spec.network
    ppo = {name: getattr(config.default_ppo, name) for name in _names(PPOConfig)}
    if kind is not None and kind != network_kind(network):
        # The preset's sizes were chosen for another network.
        network = NETWORKS[kind]()
        ppo["bptt_length"] = None
    own = {name: getattr(config, name) for name in _names(TrainConfig)}
    for name in ("default_policy", "default_ppo", "policies"):
        del own[name]
    inputs = {name: getattr(spec, name) for name in _INPUT_OPTIONS}
    return TrainOptions(
        env=tyro.MISSING,
        preset=variant,
        network=network_kind(network),  # type: ignore[arg-type]
        hidden_sizes=tuple(network.hidden_sizes),  # type: ignore[attr-defined]
        lstm_size=getattr(network, "lstm_size", None),
        channels=getattr(network, "channels", None),
        activation=network.activation,  # type: ignore[attr-defined]
        separate_critic=network.separate_critic,  # type: ignore[attr-defined]
        dtype=network.dtype,  # type: ignore[attr-defined]
        ppo=PPOOptions(**ppo),
        env_kwargs=tuple(f"{key}={value!r}" for key, value in chosen.env_kwargs.items()),
        **own,
        **inputs,
    )
