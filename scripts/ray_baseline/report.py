"""Tables and the picture of what `compare_ray.py` measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ray_baseline.scenarios import SCENARIOS

ROWS = {
    "env_steps_per_s": ("environment steps/s", "{:,.0f}"),
    "decisions_per_s": ("decisions/s", "{:,.0f}"),
    "env_steps_per_core_s": ("environment steps per second of a core", "{:,.0f}"),
    "cores_kept_busy": ("cores kept busy", "{:.1f}"),
    "seconds_to_target": ("seconds to {label} of {target:g}", "{:,.1f}"),
    "peak_memory_mb": ("peak memory, MB", "{:,.0f}"),
    "trained_rows_per_decision": ("rows trained on per decision", "{:.2f}"),
}
NOT_THE_SAME = (
    "RLlib steps plain-Python twins of the games, one environment after the other, and this "
    "package steps its own compiled ones, all at once.",
    "Each side has the number of parallel environments and the length of rollout that suit it; "
    "networks, passes, rows of a minibatch and the constants of PPO are the same. Where the "
    "machine is virtual, its cores are kept awake for ours; RLlib's processes, of which there are "
    "more than cores, are slower with it.",
    "Ours trains every decision exactly once per pass. RLlib goes on until every policy has had "
    "all its passes, so that one with fewer rows gets more, pads sequences with zeros, and trains "
    "on an extra row at the end of each piece of an episode whose loss is masked; see the rows "
    "trained on per decision.",
    "Tic-tac-toe: where RLlib's rollout ends, moves that wait for the other's answer are lost to "
    "training; a rollout has so many steps that these are few.",
    "Shuttles and noise: RLlib plays whole episodes (complete_episodes), since its learner fails "
    "with an IndexError in the second iteration where a rollout ends between an LSTM agent's "
    "decision and its next. Only ours masks exits that are not there; to RLlib, whose masks would "
    "cost it time, asking for one is holding. Both discount per decision.",
    "Weights begin otherwise: ours orthogonal with a small last layer of the policy, RLlib's as "
    "torch has it. The frozen policies are such beginnings.",
    "Torch's LSTM has two bias vectors, ours has one, and its forget gates begin open.",
    "RLlib's returns are means over about the episodes of the latest iteration, ours over those of "
    "the latest second.",
    "Steps per second leave out start-up, compilation and each run's first two windows. Seconds to "
    "a return and the picture count from the start of the process, imports and compilation "
    "included. Memory is that of all processes of a side together. Where cores are kept less busy "
    "than there are, a side waits for itself, or other programs run beside it.",
)
SIDES = {"ours": "jaxmarl_ppo", "rllib": "RLlib"}


def print_report(result: Mapping[str, Any]) -> None:
    """All tables, and what is not the same."""
    console = Console()
    for name, found in result["scenarios"].items():
        console.print(comparison_table(name, found))
    for name, found in result["scenarios"].items():
        for side, title in SIDES.items():
            settings = ", ".join(f"{k} {v}" for k, v in found["settings"][side].items())
            console.print(f"{name}, {title}: {settings}")
    console.print(f"{caption(result['machine'])}. What is not the same:")
    for sentence in result["not_the_same"]:
        console.print(f"- {sentence}")


def comparison_table(name: str, found: Mapping[str, Any]) -> Table:
    """Both sides of a scenario."""
    scenario = SCENARIOS[name]
    table = Table(title=scenario.title, title_justify="left")
    table.add_column("")
    for title in (*SIDES.values(), "ratio"):
        table.add_column(title, justify="right")
    for key, (label, form) in ROWS.items():
        if key == "seconds_to_target" and scenario.target is None:
            continue
        cells = [_cell(found[side], key, form) for side in SIDES]
        ratio = found["ratios"].get(key)
        title = label.format(label=scenario.return_label, target=scenario.target)
        table.add_row(title, *cells, "" if ratio is None else f"{ratio:,.1f} x")
    for side, title in SIDES.items():
        if found[side]["error"]:
            table.add_row(f"[red]{title} failed[/red]", found[side]["error"])
    return table


def _cell(side: Mapping[str, Any], key: str, form: str) -> str:
    value = side[key]
    if value is not None:
        return form.format(value)
    reached = [points[-1][0] for points in side["curves"] if points]
    if key == "seconds_to_target" and reached:
        return f"not in {max(reached):,.0f}"
    return "-"


def tuning_table(name: str, rows: list[dict[str, Any]]) -> Table:
    """RLlib's rates at all settings that were tried, the fastest first."""
    table = Table(title=SCENARIOS[name].title, title_justify="left")
    settings = list(rows[0]["settings"])
    for title in (*settings, "env steps/s", "decisions/s", "memory, MB", "error"):
        table.add_column(title)
    for row in sorted(rows, key=lambda row: -(row["env_steps_per_s"] or 0.0)):
        values = [str(value) for value in row["settings"].values()]
        keys = ("env_steps_per_s", "decisions_per_s", "peak_memory_mb")
        numbers = ["-" if row[key] is None else f"{row[key]:,.0f}" for key in keys]
        table.add_row(*values, *numbers, row["error"] or "")
    return table


def caption(machine: Mapping[str, Any]) -> str:
    """Hardware and versions in a line."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cores']} cores of {machine['processor']}; "
        f"Python {machine['python']}, {versions}"
    )


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Return against seconds since the start of the process, both sides, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    names = [name for name in result["scenarios"] if SCENARIOS[name].target is not None]
    figure, panels = plt.subplots(1, len(names), figsize=(4.6 * len(names), 3.8), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        scenario, found = SCENARIOS[name], result["scenarios"][name]
        for (side, title), colour in zip(SIDES.items(), ("tab:blue", "tab:orange"), strict=True):
            for k, points in enumerate(found[side]["curves"]):
                if points:
                    seconds, returns = zip(*points, strict=True)
                    label = title if k == 0 else None
                    panel.plot(seconds, returns, color=colour, label=label, marker=".", ms=3)
        panel.axhline(scenario.target, color="grey", lw=0.8, ls="--")
        panel.set_xscale("log")
        panel.set_xlim(left=5.0)
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_title(name)
        panel.set_xlabel("seconds since the start, compilation included")
        panel.set_ylabel(scenario.return_label)
        if panel.get_legend_handles_labels()[0]:
            panel.legend()
    figure.text(0.5, 0.01, caption(result["machine"]), ha="center", fontsize=7)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)
