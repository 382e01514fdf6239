"""Tables of what `compare_ray.py` measured."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ray_baseline.scenarios import SCENARIOS, Scenario
from ray_baseline.tuning import is_same

ROWS = {
    "env_steps_per_s": ("environment steps/s", "{:,.0f}"),
    "decisions_per_s": ("decisions/s", "{:,.0f}"),
    "env_steps_per_core_s": ("environment steps per second of a core", "{:,.0f}"),
    "cores_kept_busy": ("cores kept busy", "{:.1f}"),
    "sampling_share": ("of its time: sampling", "{:.0%}"),
    "learning_share": ("of its time: learning", "{:.0%}"),
    "peak_memory_mb": ("peak memory, MB", "{:,.0f}"),
    "trained_rows_per_decision": ("rows trained on per decision", "{:.2f}"),
}
NOT_THE_SAME = (
    "RLlib steps plain-Python twins of the games, one environment after the other, and this "
    "package steps its own compiled ones, all at once. Its column on RLlib's environments is of "
    "the very class that RLlib steps (from_rllib_env), in a process for each core: that ratio is "
    "what the trainer is worth by itself, the other one what it is with a compiled environment.",
    "Each side has the number of parallel environments and the length of rollout that suit it; "
    "networks, passes, rows of a minibatch and the constants of PPO are the same. Where the "
    "machine is virtual, its cores are kept awake for ours on its own environments; RLlib's "
    "processes, of which there are more than cores, are slower with it.",
    "The side with --preset slow_env has the network and the mapping of the others and that "
    "preset's rollouts, passes, minibatches, learning rate and normalisation. It tells what a user "
    "with such a class gets, not what the trainers do with equal settings.",
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
    "RLlib's rates decide which of its settings are the fastest, and none of what it learns with "
    "them. Its former API stack leaves out the last, smaller minibatch of a pass.",
    "RLlib's returns are means over about the episodes of the latest iteration, ours over those of "
    "the latest second. A target counts as reached at the end of the iteration, or second, whose "
    "mean it is, so that environment steps to it are rounded up, ours to many more than RLlib's.",
    "Crypto is measured by bob, and by what he and alice earn, not by eve's return, which rises "
    "where she breaks the cipher. Bob's accuracy comes on both sides from the mean returns of eve "
    "and bob: added up they are -2 for each of his errors. At the first step nothing was said yet, "
    "so that he can be right in 98 percent.",
    "Sampling and learning are what RLlib's own timers say; what is left goes to handing over "
    "weights and numbers. This package does both in one compiled program.",
    "Steps per second leave out start-up, compilation and each run's first two windows. Seconds to "
    "a target and the picture count from the start of the process, imports and compilation "
    "included. Memory is that of all processes of a side together. Where cores are kept less busy "
    "than there are, a side waits for itself, or other programs run beside it.",
)
SIDES = {
    "ours": "jaxmarl_ppo",
    "twins": "jaxmarl_ppo on RLlib's environments",
    "slow_env": "the same, --preset slow_env",
    "rllib": "RLlib",
}
# What the columns of ratios to RLlib are called.
RATIOS = {
    "ours": "ratio",
    "twins": "ratio, same environments",
    "slow_env": "ratio, --preset slow_env",
}
ONE_CORE = (
    "There is one core: all processes of a side take turns on it. RLlib's runners, which elsewhere "
    "play at the same time, gain nothing here, and neither does this package's second device; "
    "these figures do not tell how the two compare where there are more cores."
)


def print_report(result: Mapping[str, Any]) -> None:
    """All tables, and what is not the same."""
    console = Console()
    console.print(f"{caption(result['machine'])}.")
    if result["machine"]["cores"] == 1:
        console.print(ONE_CORE)
    for name, found in result["scenarios"].items():
        console.print(comparison_table(name, found))
    for name, found in result["scenarios"].items():
        there = found["tuned_on"]
        console.print(f"{name}: RLlib has the settings that were its fastest on {caption(there)}.")
        if not is_same(there, result["machine"]):
            console.print("That is another machine: compare_ray.py --tune finds those of this one.")
        for side, settings in found["settings"].items():
            shown = ", ".join(f"{k} {v}" for k, v in settings.items())
            console.print(f"{name}, {SIDES[side]}: {shown}")
    console.print("What is not the same:")
    for sentence in result["not_the_same"]:
        console.print(f"- {sentence}")


def comparison_table(name: str, found: Mapping[str, Any]) -> Table:
    """All sides of a scenario: the median over runs, and the least and the most of several."""
    table = Table(title=SCENARIOS[name].title, title_justify="left")
    table.add_column("")
    sides = [side for side in SIDES if side in found]
    compared = [side for side in sides if side in found["ratios"]]
    for title in (*(SIDES[side] for side in sides), *(RATIOS[side] for side in compared)):
        table.add_column(title, justify="right")
    for key, (label, form) in rows(SCENARIOS[name]).items():
        cells = [_cell(found[side], key, form) for side in sides]
        better = [found["ratios"][side].get(key) for side in compared]
        quotients = ["" if ratio is None else f"{ratio:,.1f} x" for ratio in better]
        table.add_row(label, *cells, *quotients)
    for side in sides:
        if found[side]["error"]:
            table.add_row(f"[red]{SIDES[side]} failed[/red]", found[side]["error"])
    return table


def rows(scenario: Scenario) -> dict[str, tuple[str, str]]:
    """By figure its label and how it is written."""
    found = dict(ROWS)
    for measure in scenario.measures:
        label = measure.label
        if measure.target is not None:
            reached = f"{label} of {measure.target:g}"
            found[f"seconds_to {label}"] = (f"seconds to {reached}", "{:,.1f}")
            found[f"steps_to {label}"] = (f"environment steps to {reached}", "{:,.0f}")
        found[f"last {label}"] = (f"{label}, at the end", "{:,.2f}")
    return found


def _cell(side: Mapping[str, Any], key: str, form: str) -> str:
    value = side["figures"].get(key)
    if value is not None:
        median, least, most = (form.format(value[part]) for part in ("median", "least", "most"))
        return median if value["least"] == value["most"] else f"{median} ({least} to {most})"
    what, _, label = key.partition(" ")
    if what in ("seconds_to", "steps_to"):
        column = 0 if what == "seconds_to" else 1
        ends = [points[-1][column] for points in side["curves"][label] if points]
        return f"not always in {max(ends):,.0f}" if ends else "-"
    return "-"


def tuning_table(name: str, rows: list[dict[str, Any]]) -> Table:
    """RLlib's rates at all settings that were tried, the fastest first."""
    table = Table(title=SCENARIOS[name].title, title_justify="left")
    for title in ("settings", "env steps/s", "decisions/s", "memory, MB", "error"):
        table.add_column(title)
    for row in sorted(rows, key=lambda row: -(row["env_steps_per_s"] or 0.0)):
        settings = ", ".join(f"{key} {value}" for key, value in row["settings"].items())
        keys = ("env_steps_per_s", "decisions_per_s", "peak_memory_mb")
        numbers = ["-" if row[key] is None else f"{row[key]:,.0f}" for key in keys]
        table.add_row(settings, *numbers, row["error"] or "")
    return table


def caption(machine: Mapping[str, Any]) -> str:
    """Hardware and versions in a line."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"{cores} of {machine['processor']}, {machine['date']}; "
        f"Python {machine['python']}, {versions}"
    )
