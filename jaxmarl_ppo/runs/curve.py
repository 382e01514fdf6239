"""The learning curve of a run as a picture."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmarl_ppo.machine.files import open_atomically
from jaxmarl_ppo.machine.text import in_picture
from jaxmarl_ppo.runs.files import METRICS_FILE
from jaxmarl_ppo.runs.log import read_entries
from jaxmarl_ppo.runs.run_folder import members_of, read_record

PICTURES = (".png", ".pdf", ".svg")
_MAX_LINES = 12


def plot_curve(history: Sequence[Mapping[str, Any]], agents: Sequence[str], title: str, path: Path):
    """Draw the mean return of every agent against environment steps.

    Agents with the same returns throughout, such as a team with one reward, share a line. For
    several seeds the line is the mean, a dotted line the interquartile mean, and the band its 95 %
    interval; the legend says so.

    Args:
        history: entries of the log.
        agents: their names.
        title: of the picture.
        path: where to write it, as PNG, PDF or SVG by its suffix, see `check_picture`.
    """
    # The import takes a second, and touches no display and no global state.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(8, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    curves, has_spread = _curves(history, agents), False
    for label, points in list(curves.items())[:_MAX_LINES]:
        steps, means = zip(*points, strict=True)
        values = [math.nan if mean is None else mean for mean in means]
        lines = axes.plot(
            steps, values, label=in_picture(label), linewidth=1.8, solid_capstyle="round",
            marker="o", markersize=4, markevery=_alone(means),
        )  # fmt: skip
        has_spread = _draw_spread(axes, history, label, lines[0].get_color()) or has_spread
    if not curves:
        axes.text(0.5, 0.5, "no episode has ended", ha="center", transform=axes.transAxes)
    elif has_spread:  # beside the curves, whose bands leave no room
        keys = axes.get_legend_handles_labels()[0] + _spread_keys()
        figure.legend(handles=keys, frameon=False, loc="outside lower center", ncols=3)
    else:
        axes.legend(frameon=False, loc="best")
    hidden = len(curves) - _MAX_LINES
    axes.set_title(in_picture(title) + (f" ({hidden} more agents not shown)" if hidden > 0 else ""))
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return per life")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.margins(x=0.01)
    # TrueType, since publishers reject matplotlib's default fonts in PDF.
    with rc_context({"pdf.fonttype": 42}), open_atomically(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())


def plot_run(run_dir: Path, path: Path) -> None:
    """Draw the curve of a run or of a group of seeds from its folder, see `plot_curve`.

    Raises:
        ValueError: If there is no run, or the name of the picture ends in something else.
    """
    check_picture(path)
    record = read_record(run_dir)
    num_seeds = len(members_of(run_dir))
    title = record["env"]["name"] + (f", {num_seeds} seeds" if num_seeds else "")
    plot_curve(read_entries(run_dir / METRICS_FILE), record["env"]["agents"], title, path)


def check_picture(path: Path) -> None:
    """Check that the name of a picture ends in one of `PICTURES`.

    Raises:
        ValueError: If it does not.
    """
    if path.suffix.lower() not in PICTURES:
        raise ValueError(
            f"{str(path)!r} is not the name of a picture; valid endings: {', '.join(PICTURES)}"
        )


def _draw_spread(axes: Any, history: Sequence[Mapping[str, Any]], label: str, color: Any) -> bool:
    """Draw the spread over seeds of the first agent of a label; return whether entries have it."""
    agent = label.split(", ")[0]
    iqm, low, high = (
        [
            entry.get(name, {}).get("agents", {}).get(agent, {}).get("return_mean", math.nan)
            for entry in history
        ]
        for name in ("iqm", "ci95_low", "ci95_high")
    )
    steps = [entry["env_steps"] for entry in history]
    if all(map(math.isnan, iqm)):
        return False
    axes.plot(steps, iqm, color=color, linewidth=1.2, linestyle=":")
    axes.fill_between(steps, low, high, color=color, alpha=0.18, linewidth=0)
    return True


def _spread_keys() -> list[Any]:
    """Make the entries of the legend that say what lines and bands of seeds are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], color="0.3", linewidth=1.8, label="mean over seeds"),
        Line2D([], [], color="0.3", linewidth=1.2, linestyle=":", label="interquartile mean (IQM)"),
        Patch(color="0.3", alpha=0.18, linewidth=0, label="95 % interval of the IQM"),
    ]


def _curves(
    history: Sequence[Mapping[str, Any]], agents: Sequence[str]
) -> dict[str, tuple[tuple[float, float | None], ...]]:
    """List points (environment step, mean return or None) by label."""
    together: dict[tuple[tuple[float, float | None], ...], list[str]] = {}
    for agent in agents:
        # A line breaks where no life of the agent ended, and continues after it.
        points = tuple(
            (entry["env_steps"], entry.get("agents", {}).get(agent, {}).get("return_mean"))
            for entry in history
        )
        if any(mean is not None for _, mean in points):
            together.setdefault(points, []).append(agent)
    return {_label(names): points for points, names in together.items()}


def _alone(means: Sequence[float | None]) -> list[int]:
    """Find the points without a neighbour, which no line shows."""
    around = (None, *means, None)
    return [
        k
        for k, mean in enumerate(means)
        if mean is not None and around[k] is None and around[k + 2] is None
    ]


def _label(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, … {names[-1]} ({len(names)} agents)"
