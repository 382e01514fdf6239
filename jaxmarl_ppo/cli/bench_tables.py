"""Tables of the results of `jaxmarl-ppo bench`."""

from typing import Any

from rich.table import Table

from jaxmarl_ppo.bench.scaling import STEP, UPDATE


def format_comparison(result: dict[str, Any]) -> Table:
    """Draw what `compare` found as a table."""
    size = f"{result['num_envs']:,} environments x {result['num_steps']} steps"
    table = Table(title=f"environment steps, {size}\n{_machine(result['hardware'])}")
    for heading in ("pair", "ours/s", "theirs/s", "ratio"):
        table.add_column(heading, justify="left" if heading == "pair" else "right")
    for pair in result["pairs"]:
        theirs = f"{pair['peer']} {result['versions'][pair['peer']]} {pair['game']}"
        between = f"({pair['ratio_range']['min']:.2f} to {pair['ratio_range']['max']:.2f})"
        table.add_row(
            f"{pair['env']} : {theirs}",
            f"{pair['ours_per_s']['median']:,.0f}",
            f"{pair['theirs_per_s']['median']:,.0f}",
            f"{pair['ratio']:.2f} {between}",
        )
    for own in result["alone"]:
        table.add_row(own["env"], f"{own['ours_per_s']['median']:,.0f}", "", "")
    return table


def format_scaling(result: dict[str, Any]) -> Table:
    """Draw what `scaling` found as a table."""
    table = Table(title=f"cost per decision\n{_machine(result['hardware'])}")
    table.add_column("sweep")
    for heading in ("value", "decisions", "step, ns", "update, ns", "dearest/cheapest"):
        table.add_column(heading, justify="right")
    for sweep in result["sweeps"]:
        growth = f"{sweep['growth']:.2f}"
        if sweep["per_flop"]:
            growth += f", per operation {sweep['growth_per_flop']:.2f}"
        for point in sweep["points"]:
            first = point is sweep["points"][0]
            table.add_row(
                sweep["label"] if first else "",
                f"{point['value']:,}",
                f"{point['decisions']:,.0f}",
                f"{point[STEP]:,.0f}",
                f"{point[UPDATE]:,.0f}",
                growth if first else "",
                end_section=point is sweep["points"][-1],
            )
    return table


def format_ahead(result: dict[str, Any]) -> Table:
    """Draw what `compile_ahead` found as a table."""
    workload, memory = result["workload"], result["memory_mb"]
    devices = f"{result['num_devices']} x {result['device']}"
    table = Table(
        title=f"{workload['env']}, {workload['network']}, {workload['mapping']}, "
        f"{workload['num_envs']:,} environments x {workload['num_steps']} steps\n"
        f"compiled for {devices}, run nowhere (JAX {result['jax']})",
        show_header=False,
    )
    kernels, trips = result["kernels"], result["round_trips"]
    floor = result["floor_ms"]
    parts = ", ".join(f"{name.replace('_', ' ')} {ms:,.1f} ms" for name, ms in floor.items())
    fits = "fits" if result["fits"] else "does not fit"
    rows = [
        (
            "kernels",
            f"{kernels['env_step']:.4g} a step, "
            f"{', '.join(map(str, kernels['gradient']))} a gradient, "
            f"{kernels['iteration']:,.0f} an iteration",
        ),
        (
            "round trips to the host",
            f"{trips['env_step']:.4g} a step, {trips['iteration']:,.0f} an iteration",
        ),
        (
            "loops whose length is known only at run time",
            ", ".join(_place(loop["scope"]) for loop in result["loops"]) or "none",
        ),
        (
            "memory of a device",
            f"{memory['all']:,.0f} MB of {result['device_mb']:,.0f}: it {fits} "
            f"(temporary {memory['temporary']:,.0f}, state {memory['arguments']:,.0f}, code "
            f"{memory['code']:,.0f})",
        ),
        (
            "exchanged in an iteration",
            ", ".join(
                f"{own['count']:,.0f} {kind} of {own['bytes'] / max(own['count'], 1) / 1e3:,.0f} kB"
                for kind, own in result["collectives"].items()
            )
            or "nothing",
        ),
        ("at least", f"{parts}: each a bound by itself"),
        (
            "at most",
            f"{1e3 * result['env_steps'] / max(floor.values()):,.0f} environment steps/s, by the "
            "greatest of them",
        ),
        ("compiled in", f"{result['compile_s']:.0f} s, after {result['trace_s']:.1f} s of tracing"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _place(scope: str) -> str:
    """Describe the place of a loop in a step, by names in the source."""
    ways = ("while", "body", "closed_call", "cond", "shard_map")
    named = [part for part in scope.split("/") if part not in ways and "(" not in part]
    return " ".join(named) or "the step"


def _machine(hardware: dict[str, Any]) -> str:
    return (
        f"{hardware['device']} ({hardware['processor']}), {hardware['cpus']} CPUs, "
        f"JAX {hardware['jax']}"
    )


def format_result(result: dict[str, Any]) -> Table:
    """Draw what `measure` found as a table."""
    workload, hardware = result["workload"], result["hardware"]
    title = (
        f"{workload['env']}, {workload['network']}, {workload['mapping']}, "
        f"{workload['num_envs']} environments x {workload['num_steps']} steps\n"
        f"{_machine(hardware)}"
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
