"""The picture of what `compare_ray.py` measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray_baseline.report import SIDES, caption
from ray_baseline.scenarios import SCENARIOS, Measure

COLOURS = {
    "ours": "tab:blue",
    "twins": "tab:green",
    "slow_env": "tab:red",
    "rllib": "tab:orange",
}
# Columns of a curve, and what they are called.
AXES = {
    0: "seconds since the start, compilation included",
    1: "environment steps",
}

WIDE_SPAN = 100  # last by first


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw every measure against seconds and against environment steps, a line per run, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [(name, m) for name in result["scenarios"] for m in SCENARIOS[name].measures]
    size = (4.2 * max(len(names), 1), 6.6)
    figure, panels = plt.subplots(len(AXES), max(len(names), 1), figsize=size, squeeze=False)
    for k, (name, measure) in enumerate(names):
        for panel, column in zip(panels[:, k], AXES, strict=True):
            _fill(panel, result["scenarios"][name], measure, column)
            panel.set_ylabel(measure.label)
        panels[0, k].set_title(name)
    figure.text(0.5, 0.01, caption(result["machine"]), ha="center", fontsize=7)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=max(len(labels), 1), fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 0.96))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _fill(panel: Any, found: Mapping[str, Any], measure: Measure, column: int) -> None:
    """Draw the runs of all sides into one panel."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    for side, title in SIDES.items():
        curves = found[side]["curves"][measure.label] if side in found else []
        label = f"{title}, {len(curves)} run{'s' if len(curves) > 1 else ''}"
        for points in filter(None, curves):
            times, values = [p[column] for p in points], [p[2] for p in points]
            panel.plot(times, values, color=COLOURS[side], label=label, lw=1, marker=".", ms=2)
            label = None
    if measure.target is not None:
        panel.axhline(measure.target, color="grey", lw=0.8, ls="--")
    panel.set_xscale("log")
    # Of a decade's marks more than one are named where the span is short.
    low, high = panel.get_xlim()
    subs = (1.0, 2.0, 5.0) if high < WIDE_SPAN * low else (1.0,)
    panel.xaxis.set_major_locator(LogLocator(subs=subs))
    panel.xaxis.set_major_formatter(EngFormatter())
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xlabel(AXES[column])
