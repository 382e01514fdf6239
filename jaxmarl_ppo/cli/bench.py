"""`jaxmarl-ppo bench` and `scripts/benchmark.py`: their options."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import jax
import tyro

from jaxmarl_envs.own_names import is_own
from jaxmarl_ppo.bench.ahead import compile_ahead
from jaxmarl_ppo.bench.peers import NUM_ENVS, compare
from jaxmarl_ppo.bench.scaling import check_picture_path, plot_scaling, scaling
from jaxmarl_ppo.bench.training import measure
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.bench_tables import (
    format_ahead,
    format_comparison,
    format_result,
    format_scaling,
)
from jaxmarl_ppo.cli.session import Switch
from jaxmarl_ppo.cli.values import Dtype, NetworkKind, parse_env_kwargs
from jaxmarl_ppo.config.networks import kinds_with
from jaxmarl_ppo.machine import awake
from jaxmarl_ppo.machine.hardware import describe_hardware
from jaxmarl_ppo.networks.actor_critic import NETWORKS
from jaxmarl_ppo.networks.precision import MatmulPrecision

# What has an effect beside the options that measure something else than one workload.
_EFFECTIVE = {
    "compare": ("compare", "num_envs", "num_steps", "repeats", "json"),
    "scaling": ("scaling", "repeats", "json"),
    "target": (
        *("target", "env", "env_kwargs", "network", "hidden_sizes", "head_sizes"),
        *("lstm_size", "gru_size"),
        *("separate_critic", "dtype", "mapping", "num_envs", "num_steps", "num_epochs"),
        *("num_minibatches", "micro_batch_rows", "matmul_precision", "num_devices", "json"),
    ),
}


@dataclass(frozen=True)
class BenchOptions:
    """Measure how fast a workload trains here, and what fraction of the machine's limit that is.

    The limit is the rate at which this machine multiplies matrices of the network's shapes.

    Attributes:
        env: name of the environment, or `package.module:Class` or `path/to/file.py:Class`.
        env_kwargs: its arguments, as KEY=VALUE.
        network: kind of network.
        hidden_sizes: widths of the dense layers; None for the network's own.
        head_sizes: widths of further ones, behind the memory if there is one, of actor and critic
            each; None for the network's own.
        lstm_size: width of the LSTM; only with `--network lstm`; None for the network's own.
        gru_size: width of the GRU or minGRU; only with `--network gru` and `min_gru`; None for the
            network's own.
        separate_critic: a tower of its own for the critic; None for yes, or for no with memory.
        dtype: what layers are computed in; None for float32. bfloat16 is for accelerators.
        mapping: which policy plays which agent: `shared`, `per_agent` or `ensemble:K`.
        num_envs: parallel environments; None for 256, or for 8192 with `--compare`.
        num_steps: ticks per rollout.
        num_epochs: passes over a rollout.
        num_minibatches: optimiser steps per pass.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        matmul_precision: in what networks multiply matrices: `float32`, `tf32` (on GPUs), or
            `bfloat16` (operands rounded, sums in float32).
        num_devices: devices, on a CPU cores, that environments are spread over; None as in
            training.
        repeats: runs that medians are taken over.
        startup: also time a fresh process, without and with a compilation cache.
        json: print one JSON object instead of a table.
        compare: instead, step environments against the same games of these packages, in turn:
            `pgx`, `jaxmarl`, `gymnax`.
        scaling: instead, sweep sizes one by one and draw how the cost of a decision grows, as PNG;
            takes minutes.
        target: instead, compile for an accelerator that is not there, and count what it would
            launch and hold: `h200`, `h100`, `a100`, `b200`, or a TPU's topology such as `v5e:2x2`.
    """

    env: str = "crypto"
    env_kwargs: Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction] = ()
    network: NetworkKind = "mlp"
    hidden_sizes: tuple[int, ...] | None = None
    head_sizes: tuple[int, ...] | None = None
    lstm_size: int | None = None
    gru_size: int | None = None
    separate_critic: Switch = None
    dtype: Dtype | None = None
    mapping: str = "shared"
    num_envs: int | None = None
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    micro_batch_rows: int | None = None
    matmul_precision: MatmulPrecision = "float32"
    num_devices: int | None = None
    repeats: int = 5
    startup: bool = True
    json: bool = False
    compare: tuple[str, ...] | None = None
    scaling: Path | None = None
    target: str | None = None

    def check_effects(self) -> None:
        """Refuse what would change nothing.

        Raises:
            ValueError: two of `--compare`, `--scaling` and `--target`, or another option that has
                no effect with one of them.
        """
        modes = [f"--{mode}" for mode in _EFFECTIVE if getattr(self, mode) is not None]
        if len(modes) > 1:
            raise ValueError(f"{' and '.join(modes)} are different things; give one of them")
        for mode, effective in _EFFECTIVE.items():
            if getattr(self, mode) is None:
                continue
            ignored = [
                "--" + option.name.replace("_", "-")
                for option in fields(self)
                if option.name not in effective and getattr(self, option.name) != option.default
            ]
            if ignored:
                verb = "has" if len(ignored) == 1 else "have"
                valid = ", ".join("--" + name.replace("_", "-") for name in effective[1:])
                raise ValueError(
                    f"{', '.join(ignored)} {verb} no effect with --{mode}; options that do: {valid}"
                )

    def to_workload(self) -> Workload:
        """Make the workload that the options describe.

        Raises:
            ValueError: options that do not fit together.
        """
        for size in ("lstm_size", "gru_size"):
            value, kinds = getattr(self, size), kinds_with(size)
            if value is not None and self.network not in kinds:
                raise ValueError(
                    f"{size}={value} has no effect with network {self.network!r}; "
                    f"use --network {' or '.join(kinds)}, or drop it"
                )
        separate = self.separate_critic
        if separate is None:
            separate = NETWORKS[self.network].core_class is None
        network = {
            "hidden_sizes": self.hidden_sizes,
            "head_sizes": self.head_sizes,
            "lstm_size": self.lstm_size,
            "gru_size": self.gru_size,
            "separate_critic": separate,
            "dtype": self.dtype,
        }
        return Workload(
            env=self.env,
            env_kwargs=parse_env_kwargs([pair for pairs in self.env_kwargs for pair in pairs]),
            network=self.network,
            network_kwargs={name: value for name, value in network.items() if value is not None},
            mapping=self.mapping,
            num_envs=Workload.num_envs if self.num_envs is None else self.num_envs,
            num_steps=self.num_steps,
            num_epochs=self.num_epochs,
            num_minibatches=self.num_minibatches,
            micro_batch_rows=self.micro_batch_rows,
            matmul_precision=self.matmul_precision,
            num_devices=self.num_devices,
        )


def main(args: Sequence[str], prog: str = "jaxmarl-ppo bench") -> int:
    """Measure what the options say and print the result.

    Raises:
        ValueError: options that do not fit together.
    """
    options = session.parse(BenchOptions, args, prog)
    options.check_effects()
    if options.target is not None:
        # What is traced lies on the host, whatever else there is.
        jax.config.update("jax_platforms", "cpu")
        session.find_modules_here(*filter(is_own, [options.env]))
        result = compile_ahead(options.to_workload(), options.target, options.num_devices)
        print(json.dumps(result)) if options.json else session.show(format_ahead(result))
        return 0
    session.use_cpu_cores()
    session.find_modules_here(*filter(is_own, [options.env]))
    if options.compare is not None:
        num_envs = NUM_ENVS if options.num_envs is None else options.num_envs
        with _cores_awake():
            result = compare(options.compare, num_envs, options.num_steps, options.repeats)
        result |= {"hardware": describe_hardware()}
        table = format_comparison(result)
    elif options.scaling is not None:
        check_picture_path(options.scaling)
        with _cores_awake():
            result = scaling(repeats=options.repeats)
        result |= {"hardware": describe_hardware()}
        plot_scaling(result, options.scaling)
        table = format_scaling(result)
    else:
        result = measure(options.to_workload(), options.repeats, options.startup)
        table = format_result(result)
    if options.json:
        print(json.dumps(result))
    else:
        session.show(table)
    return 0


def _cores_awake() -> AbstractContextManager[None]:
    """Keep cores awake as in a run over all devices."""
    return awake.cores_awake(awake.helps(jax.local_device_count()))
