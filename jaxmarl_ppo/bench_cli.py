"""`jaxmarl-ppo bench` and `scripts/benchmark.py`: options, and the results as a table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from jaxmarl_ppo.bench import Workload, measure
from jaxmarl_ppo.cli_values import Count, parse_env_kwargs


@dataclass(frozen=True)
class BenchOptions:
    """Measure how fast a workload trains here, and what fraction of the machine's limit that is.

    The limit is the rate at which this machine multiplies matrices of the network's shapes.

    Attributes:
        env: name of the environment.
        env_kwargs: its arguments, as KEY=VALUE.
        network: kind of network.
        hidden_sizes: widths of the dense layers; None for the network's own.
        lstm_size: width of the LSTM; only with `--network lstm`; None for the network's own.
        separate_critic: a tower of its own for the critic; None for yes, or for no with an LSTM.
        policies: who plays whom: `shared`, `per_agent` or `ensemble:K`.
        num_envs: parallel environments.
        num_steps: ticks per rollout.
        num_epochs: passes over a rollout.
        num_minibatches: optimiser steps per pass.
        micro_batch_rows: rows whose gradient is computed at once; None chooses by backend.
        num_devices: devices, on a CPU cores, that environments are spread over; None as in
            training.
        repeats: runs that medians are taken over.
        startup: also time a fresh process, without and with a compilation cache.
        json: print one JSON object instead of a table.
    """

    env: str = "crypto"
    env_kwargs: tuple[str, ...] = ()
    network: Literal["mlp", "lstm", "cnn"] = "mlp"
    hidden_sizes: tuple[int, ...] | None = None
    lstm_size: int | None = None
    separate_critic: bool | None = None
    policies: str = "shared"
    num_envs: Count = 256
    num_steps: Count = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    micro_batch_rows: int | None = None
    num_devices: int | None = None
    repeats: int = 5
    startup: bool = True
    json: bool = False

    def to_workload(self) -> Workload:
        """What the options say.

        Raises:
            ValueError: options that do not fit together.
        """
        if self.lstm_size is not None and self.network != "lstm":
            raise ValueError(
                f"lstm_size={self.lstm_size} has no effect with network {self.network!r}; "
                "use --network lstm or drop it"
            )
        separate = self.network != "lstm" if self.separate_critic is None else self.separate_critic
        network = {
            "hidden_sizes": self.hidden_sizes,
            "lstm_size": self.lstm_size,
            "separate_critic": separate,
        }
        return Workload(
            env=self.env,
            env_kwargs=parse_env_kwargs(self.env_kwargs),
            network=self.network,
            network_kwargs={name: value for name, value in network.items() if value is not None},
            policies=self.policies,
            num_envs=self.num_envs,
            num_steps=self.num_steps,
            num_epochs=self.num_epochs,
            num_minibatches=self.num_minibatches,
            micro_batch_rows=self.micro_batch_rows,
            num_devices=self.num_devices,
        )


def main(args: Sequence[str], prog: str = "jaxmarl-ppo bench") -> int:
    """Measure and print.

    Raises:
        ValueError: options that do not fit together.
    """
    options = tyro.cli(BenchOptions, args=args, prog=prog)
    result = measure(options.to_workload(), options.repeats, options.startup)
    if options.json:
        print(json.dumps(result))
    else:
        Console().print(format_result(result))
    return 0


def format_result(result: dict[str, Any]) -> Table:
    """What `measure` found, for people."""
    workload, hardware = result["workload"], result["hardware"]
    title = (
        f"{workload['env']}, {workload['network']}, {workload['policies']}, "
        f"{workload['num_envs']} environments x {workload['num_steps']} ticks\n"
        f"{hardware['device']} ({hardware['processor']}), {hardware['cpus']} CPUs, "
        f"JAX {hardware['jax']}"
    )
    table = Table(title=title, show_header=False)
    rates = result["env_steps_per_s_range"]
    shares = result["time_shares"]
    rows = [
        (
            "training",
            f"{rates['median']:,.0f} environment steps/s ({rates['min']:,.0f} to "
            f"{rates['max']:,.0f}), {result['decisions_per_s']:,.0f} decisions/s",
        ),
        ("rollout alone", f"{result['rollout_steps_per_s']:,.0f} environment steps/s"),
        ("environment alone", f"{result['env_only_steps_per_s']:,.0f} steps/s"),
        (
            "time",
            f"rollout {shares['rollout']:.0%}, advantages and packing "
            f"{shares['advantages_and_packing']:.0%}, update {shares['update']:.0%}",
        ),
        (
            "of the limit",
            f"{result['fraction_of_limit']:.0%} (matrix products at "
            f"{result['matmul_gflops']:,.0f} GFLOP/s)",
        ),
    ]
    if "compile_s" in result:
        rows += [
            (
                "to the first update",
                f"{result['first_update_s']:.1f} s, with a compilation cache "
                f"{result['first_update_warm_s']:.1f} s",
            ),
            (
                "of it",
                f"import {result['import_s']:.1f} s over jax, trace {result['trace_s']:.1f} s, "
                f"compile {result['compile_s'] - result['trace_s']:.1f} s, with a cache "
                f"{result['compile_warm_s'] - result['trace_s']:.1f} s",
            ),
            ("peak memory", f"{result['peak_memory_mb']:,.0f} MB"),
        ]
    for row in rows:
        table.add_row(*row)
    return table
