"""Readable reports: tables of agents and of pairings, and a picture of the latter."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from jaxmarl_ppo.evaluation.scenarios.base import Report
from jaxmarl_ppo.evaluation.scenarios.known import SCRIPTED
from jaxmarl_ppo.evaluation.seeds import SPREAD
from jaxmarl_ppo.evaluation.statistics import plus_minus
from jaxmarl_ppo.machine.files import open_atomically
from jaxmarl_ppo.machine.terminal import PlainConsole
from jaxmarl_ppo.machine.text import in_picture

# Headings of `group_rows`.
GROUP_COLUMNS = ("over seeds", "mean", "IQM", "95 % from", "to")
# Columns of single episodes, which mean nothing over seeds.
_EXTREMES = ("return_min", "return_max")
# In percent: listeners who share the key read everything, others guess one of two goals.
_CIPHER = {"bob_0": "100", "eve_0": "50"}


def format_report(report: Report, width: int | None = None) -> str:
    """Format a report: the scenario's headline, then a table of the agents.

    Args:
        report: of `evaluate_policies` or `evaluate_run`.
        width: characters per line; columns beyond them go into further tables. None for the width
            of the widest table.
    """
    acting = {"sample": "sampled actions", "greedy": "greedy actions"}[report["acting"]]
    lines = [
        f"{report['env']}: {report['episodes']:,} episodes, {acting}, seed {report['seed']}",
        *(f"  {line}" for line in report.get("headline", ())),
    ]
    if "exploitability_note" in report:
        lines.append(f"  exploitability {report['exploitability_note']}")
    if "unfinished" in report:
        lines.append(f"  {report['unfinished']:,} episodes {report['unfinished_note']}")
    table = _agents_table(report["agents"], report["all"], width)
    if "cross_play" in report:
        table += ["", *format_cross_play(report["cross_play"]).splitlines()]
    return "\n".join([*lines, *table])


def scenario_table(report: Report, goals: Mapping[str, float]) -> tuple[list[str], list[list[str]]]:
    """Tabulate a scenario's own results: a row for each, a column for each way to act.

    Args:
        report: of `evaluate_policies`.
        goals: known results by name, as in `scenarios.known`.

    Returns:
        Headings, and rows of texts; none where the scenario measures nothing of its own.
    """
    rows: dict[str, dict[str, str]] = {}

    def enter(row: str, column: str, text: str) -> None:
        rows.setdefault(row, {})[column] = text

    for way, number in report.get("exploitability", {}).items():
        if way != "best_response":
            enter("exploitability (0 is perfect play)", f"{way} policy", f"{number:.4f}")
    if "value" in report:
        enter("return of the first player", "stochastic policy", f"{report['value']:.4f}")
    for way, opponents in report.get("against", {}).items():
        for opponent, seats in opponents.items():
            for seat, result in seats.items():
                text = " / ".join(f"{100 * share:.1f}" for share in result.values())
                enter(f"{seat} against {opponent}", f"{way} policy", text)
    for agent, share in report.get("accuracy", {}).items():
        enter(f"{agent} names the goal, % of steps", "these policies", f"{100 * share:.1f}")
        enter(f"{agent} names the goal, % of steps", "a perfect cipher", _CIPHER[agent])
    if "deliveries" in report:
        found = {"these policies": report["deliveries"]} | {
            f"scripted dispatcher {name}": own
            for name, own in report["deliveries"]["dispatchers"].items()
        }
        for name, own in found.items():
            text = plus_minus(own["mean"], own["se"], 2)
            enter(name, "deliveries per shift ± standard error", text)
        for name, value in goals.items():
            if name != SCRIPTED:
                enter(f"{name} (known)", "deliveries per shift ± standard error", str(value))
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table = [[name, *(row.get(column, "") for column in columns)] for name, row in rows.items()]
    return ["", *columns], table


def group_rows(report: Report) -> list[tuple[str, *tuple[float | None, ...]]]:
    """Tabulate the numbers of `evaluate_group`, but for single episodes', in `GROUP_COLUMNS`."""
    return [
        (path, *(own[name] for name in ("mean", *SPREAD)))
        for path, own in report["numbers"].items()
        if not path.endswith(_EXTREMES)
    ]


def format_group_report(report: Report) -> str:
    """Format the report of `evaluate_group`: a line for every number."""
    acting = {"sample": "sampled actions", "greedy": "greedy actions"}[report["acting"]]
    table = Table(box=box.SIMPLE_HEAD)
    for k, heading in enumerate(GROUP_COLUMNS):
        table.add_column(heading, justify="right" if k else "left")
    for path, *numbers in group_rows(report):
        table.add_row(path, *("-" if x is None else f"{x:.4g}" for x in numbers))
    head = (
        f"{report['env']}: {len(report['members'])} seeds, {report['episodes']:,} episodes of "
        f"each, {acting}, seed {report['seed']}"
    )
    return "\n".join([head, *_lines(table)])


def _agents_table(
    agents: dict[str, dict[str, Any]], together: dict[str, Any], width: int | None
) -> list[str]:
    shown = ("return_mean", "return_se", "return_min", "return_max", "length_mean")
    extras = list(dict.fromkeys(name for row in agents.values() for name in row))
    extras = [name for name in extras if name not in shown]
    headings = ["return", "min", "max", "steps alive"]
    headings += [heading.removesuffix("_mean") for heading in extras]
    rows = {}
    for name, row in agents.items():
        cells = ["-"] * 4
        if "return_mean" in row:
            cells = [plus_minus(row["return_mean"], row["return_se"], 3)]
            cells += [f"{row[key]:.3g}" for key in shown[2:4]] + [f"{row['length_mean']:.1f}"]
        numbers = [row.get(key) for key in extras]
        cells += ["-" if number is None else f"{number:.4g}" for number in numbers]
        rows[name] = cells
    if len(agents) > 1:
        cells = [plus_minus(together["return_mean"], together["return_se"], 3)]
        cells += [f"{together[key]:.3g}" for key in shown[2:4]]
        rows["together"] = [*cells, *["-"] * (1 + len(extras))]
    return _fitting_tables("agent", headings, rows, width)


def _fitting_tables(
    first: str, headings: Sequence[str], rows: Mapping[str, Sequence[str]], width: int | None
) -> list[str]:
    """Format a table, split into several tables of as many columns as fit."""
    lines: list[str] = []
    begin = 0
    while begin < len(headings):
        end, table = begin + 1, _table(first, headings, rows, begin, begin + 1)
        while end < len(headings):
            wider = _table(first, headings, rows, begin, end + 1)
            if width is not None and max(map(len, wider)) > width:
                break
            end, table = end + 1, wider
        lines += table
        begin = end
    return lines


def _table(
    first: str, headings: Sequence[str], rows: Mapping[str, Sequence[str]], begin: int, end: int
) -> list[str]:
    """Write the columns from `begin` to before `end`."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for heading in headings[begin:end]:
        table.add_column(heading, justify="right")
    for name, cells in rows.items():
        table.add_row(name, *cells[begin:end])
    return _lines(table)


def _lines(table: Table) -> list[str]:
    # Wide enough never to fold a column; rich pads no further than the table needs.
    console = PlainConsole(file=io.StringIO(), width=1000, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def format_cross_play(report: dict[str, Any]) -> str:
    """Format the mean return of the first row agent in every pairing as a table."""
    agent = report["rows"]["agents"][0]
    cells = report["returns"][agent]
    header = ["", *report["columns"]["players"]]
    lines = [header]
    for name, means, widths in zip(
        report["rows"]["players"], cells["mean"], cells["ci95"], strict=True
    ):
        pairs = zip(means, widths, strict=True)
        lines.append([name, *(f"{m:.3g}" + (f" ± {w:.2g}" if w else "") for m, w in pairs)])
    sizes = [max(len(line[column]) for line in lines) for column in range(len(header))]
    table = [
        "  ".join(
            cell.ljust(size) if column == 0 else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(line, sizes, strict=True))
        ).rstrip()
        for line in lines
    ]
    rows, columns = (" + ".join(report[side]["agents"]) for side in ("rows", "columns"))
    title = (
        f"return of {agent} (mean ± 95 % interval over {report['episodes']:,} episodes): "
        f"rows play {rows}, columns {columns}"
    )
    return "\n".join([title, *table])


def plot_cross_play(report: dict[str, Any], title: str, path: Path) -> None:
    """Draw the table of `format_cross_play` as a heat map into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    agent = report["rows"]["agents"][0]
    rows, columns = ([*map(in_picture, report[side]["players"])] for side in ("rows", "columns"))
    means = np.array(report["returns"][agent]["mean"])
    figure = Figure(
        figsize=(3.5 + 0.75 * len(columns), 2.2 + 0.42 * len(rows)), dpi=150, layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # White is an even result if there are losses, else the middle.
    centre = 0.0 if means.min() < 0.0 < means.max() else float(np.median(means))
    bound = max(float(np.abs(means - centre).max()), 1e-9)
    image = axes.imshow(means, cmap="RdBu", vmin=centre - bound, vmax=centre + bound, aspect="auto")
    for (row, column), mean in np.ndenumerate(means):
        dark = abs(mean - centre) > 0.6 * bound
        axes.text(
            column, row, f"{mean:.3g}", ha="center", va="center", fontsize=8,
            color="white" if dark else "black",
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_xlabel(in_picture(" + ".join(report["columns"]["agents"])))
    axes.set_ylabel(in_picture(" + ".join(report["rows"]["agents"])))
    axes.set_title(in_picture(title), fontsize=10)
    figure.colorbar(image, label=in_picture(f"mean return of {agent}"))
    with open_atomically(path) as file:
        figure.savefig(file, format="png")
