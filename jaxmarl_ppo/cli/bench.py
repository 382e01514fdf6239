"""`jaxmarl-ppo bench` and `scripts/benchmark.py`: their options."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxmarl_envs.user_env_names import is_own
from jaxmarl_ppo.bench.ahead import compile_ahead
from jaxmarl_ppo.bench.peers import NUM_ENVS, compare
from jaxmarl_ppo.bench.scaling import check_picture_path, plot_scaling, scaling
from jaxmarl_ppo.bench.training import measure
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import options_of
from jaxmarl_ppo.cli.bench_tables import (
    format_ahead,
    format_comparison,
    format_result,
    format_scaling,
)
from jaxmarl_ppo.cli.run_options import find_option, shown_options, to_table
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.networks import NETWORK_FIELDS
from jaxmarl_ppo.config.run_file import override
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.machine import awake
from jaxmarl_ppo.machine.hardware import describe_hardware
from jaxmarl_ppo.networks.actor_critic import NETWORKS

_SHOWN = {
    "workload": (
        *("env_kwargs", "network", *NETWORK_FIELDS, "mapping", "num_envs", "num_steps"),
        *("num_epochs", "num_minibatches", "micro_batch_rows", "matmul_precision"),
        *("fused_gradients", "fused_acting", "rollout_unroll", "num_devices"),
    )
}
# What has an effect beside the options that measure something else than one workload.
_EFFECTIVE = {
    "compare": ("--num-envs", "--num-steps", "--repeats", "--json"),
    "scaling": ("--repeats", "--json"),
    "target": ("--env", *(option.flag for option in shown_options(_SHOWN)), "--json"),
}


@dataclass(frozen=True)
class BenchOptions:
    """Measure how fast a workload trains here, and what fraction of the machine's limit that is.

    The limit is the rate at which this machine multiplies matrices of the network's shapes. A
    network without recurrent layers has a separate critic, unless you give
    `--no-separate-critic`.

    Attributes:
        env: name of the environment, or `package.module:Class` or `path/to/file.py:Class`.
        repeats: number of runs that medians are taken over.
        startup: also time a fresh process, without and with a compilation cache.
        json: print one JSON object instead of a table.
        compare: compare stepping with the same games of other packages, in turn, instead of
            training: `pgx`, `jaxmarl`, `gymnax`.
        scaling: draw how the cost of an agent step grows, as PNG, with sizes that vary one by one,
            instead of measuring one workload; takes minutes.
        target: compile for an accelerator that you do not have, and report kernels and memory,
            instead of measuring: `h200`, `h100`, `a100`, `b200`, or a TPU topology such as
            `v5e:2x2`.
    """

    env: str = "crypto"
    repeats: int = 5
    startup: bool = True
    json: bool = False
    compare: tuple[str, ...] | None = None
    scaling: Path | None = None
    target: str | None = None

    def check_effects(self, given: Sequence[str]) -> None:
        """Reject what would change nothing.

        Args:
            given: the options that were given.

        Raises:
            ValueError: For two of `--compare`, `--scaling` and `--target`, or another option that
                has no effect with one of them.
        """
        modes = [mode for mode in _EFFECTIVE if getattr(self, mode) is not None]
        if len(modes) > 1:
            flags = " and ".join(f"--{mode}" for mode in modes)
            raise ValueError(f"{flags} are different things; give one of them")
        for mode in modes:
            effective = _EFFECTIVE[mode]
            ignored = [flag for flag in given if flag not in (f"--{mode}", *effective)]
            if ignored:
                verb = "has" if len(ignored) == 1 else "have"
                raise ValueError(
                    f"{', '.join(ignored)} {verb} no effect with --{mode}; options that do: "
                    f"{', '.join(effective)}"
                )


def to_workload(env: str, given: Mapping[str, Any]) -> Workload:
    """Make the workload that options describe.

    Args:
        env: name of the environment.
        given: what the options say, as a table of a file of a run.

    Raises:
        ValueError: If values are out of range or inconsistent.
    """
    about_env = given.get("env", {})
    config = override(TrainConfig(), {key: each for key, each in given.items() if key != "env"})
    if not isinstance(config.mapping, str):
        raise ValueError(
            f"a benchmark's mapping must be shared, per_agent or ensemble:K, got {config.mapping}"
        )
    network = given.get("default_policy", {}).get("network", {})
    network = {"kind": network} if isinstance(network, str) else network
    kind = network_kind(config.default_policy.network)
    separate = network.get("separate_critic", NETWORKS[kind].core_class is None)
    sizes = {name: value for name, value in network.items() if name != "kind"}
    return Workload(
        env=env,
        env_kwargs=about_env.get("kwargs", {}),
        network=kind,
        network_kwargs={**sizes, "separate_critic": separate},
        mapping=config.mapping,
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_epochs=config.default_ppo.num_epochs,
        num_minibatches=config.default_ppo.num_minibatches,
        micro_batch_rows=config.micro_batch_rows,
        matmul_precision=config.matmul_precision,
        fused_gradients=config.fused_gradients,
        fused_acting=config.fused_acting,
        rollout_unroll=config.rollout_unroll,
        num_devices=config.num_devices,
    )


def main(args: Sequence[str], prog: str = "jaxmarl-ppo bench") -> int:
    """Measure what the options say and print the result.

    Raises:
        ValueError: If options are inconsistent.
    """
    own, of_run = options_of(BenchOptions), shown_options(_SHOWN)
    if session.asks_for_help(args):
        session.print_help(BenchOptions, prog, args, [*own, *of_run], [*own, *of_run])
    find = find_option(of_run, closed=True)
    options, by_path = session.parse_with(BenchOptions, args, prog, of_run, find)
    given = to_table(by_path)
    flags = [o.flag for o in own if getattr(options, o.key) != getattr(BenchOptions, o.key)]
    options.check_effects(flags + [option.flag for option in of_run if option.key in by_path])
    workload = to_workload(options.env, given)
    if options.target is not None:
        # What is traced lies on the host, whatever else there is.
        jax.config.update("jax_platforms", "cpu")
        session.find_modules_here(*filter(is_own, [options.env]))
        result = compile_ahead(workload, options.target, workload.num_devices)
        print(json.dumps(result)) if options.json else session.show(format_ahead(result))
        return 0
    session.use_cpu_cores()
    session.find_modules_here(*filter(is_own, [options.env]))
    if options.compare is not None:
        num_envs = workload.num_envs if "num_envs" in given else NUM_ENVS
        with _cores_awake():
            result = compare(options.compare, num_envs, workload.num_steps, options.repeats)
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
        result = measure(workload, options.repeats, options.startup)
        table = format_result(result)
    if options.json:
        print(json.dumps(result))
    else:
        session.show(table)
    return 0


def _cores_awake() -> AbstractContextManager[None]:
    """Keep cores awake as in a run over all devices."""
    return awake.cores_awake(awake.helps(jax.local_device_count()))
