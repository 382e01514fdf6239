"""Scaling of the cost per agent step with workload size: sweeps, figures and a picture.

The points of a sweep are all compiled first and then take turns, round by round, so that changes of
the machine's speed affect them alike. Within a sweep the number of agent steps of a training step
is constant where possible, so that only the swept quantity differs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.bench.timing import Timing, time_in_turn
from jaxmarl_ppo.bench.training import WARM_UP_STEPS, TrainingSteps
from jaxmarl_ppo.bench.workload import Workload
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.machine.files import open_atomically

STEP, UPDATE, FLOP = "step_ns_per_decision", "update_ns_per_decision", "step_ps_per_flop"
# The least factor between the ends of an axis of the picture: less would exaggerate noise.
_MIN_SPAN = 10.0


@dataclass(frozen=True)
class WorkloadSeries:
    """Holds workloads that differ in one quantity.

    Attributes:
        name: in the results.
        label: the swept quantity, in words.
        values: of the swept quantity.
        workload: for a value.
        per_flop: whether to draw cost per floating-point operation beside cost per decision.
    """

    name: str
    label: str
    values: tuple[int, ...]
    workload: Callable[[int], Workload]
    per_flop: bool = False


def _dense(width: int = 64) -> dict[str, Any]:
    return {"hidden_sizes": (width, width), "separate_critic": True}


def _with_envs(num_envs: int) -> Workload:
    num_steps = 32768 // num_envs
    return Workload("crypto", {}, "mlp", _dense(), "per_agent", num_envs, num_steps=num_steps)


def _with_actors(num_agents: int) -> Workload:
    kwargs = {"num_agents": num_agents}
    return Workload("basic", kwargs, "mlp", _dense(), num_envs=64, num_steps=1024 // num_agents)


def _with_waiting(num_agents: int) -> Workload:
    kwargs = {"num_agents": num_agents}
    return Workload("round_robin", kwargs, "mlp", _dense(), num_envs=64, num_steps=512)


def _with_policies(num_policies: int) -> Workload:
    policies = f"ensemble:{num_policies}"
    return Workload("basic", {"num_agents": 1}, "mlp", _dense(), policies, num_envs=256)


def _with_width(width: int) -> Workload:
    return Workload("basic", {}, "mlp", _dense(width), num_envs=64, num_steps=128)


SWEEPS = (
    WorkloadSeries("envs", "parallel environments", (16, 64, 256, 1024, 4096), _with_envs),
    WorkloadSeries(
        "agents_all_act", "agents, all act at every step", (2, 4, 8, 16, 32, 64), _with_actors
    ),
    WorkloadSeries(
        "agents_one_acts", "agents, one acts at a step", (2, 4, 8, 16, 32, 64), _with_waiting
    ),
    WorkloadSeries("policies", "policies", (1, 2, 4, 8, 16), _with_policies),
    WorkloadSeries("width", "network width", (32, 64, 128, 256), _with_width, per_flop=True),
)


def scaling(sweeps: Sequence[WorkloadSeries] = SWEEPS, repeats: int = 5) -> dict[str, Any]:
    """Measure the training steps of all points of some sweeps.

    Args:
        sweeps: to measure.
        repeats: rounds that medians are taken over.

    Returns:
        `sweeps`: for each its `points` and, for cost per decision and per floating-point operation,
        the ratio of greatest to least, `growth` and `growth_per_flop`.

    Raises:
        ValueError: If there are no repeats, or as `Workload.make`.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    measured = []
    for sweep in sweeps:
        points = _measure(sweep, repeats)
        measured.append(
            {
                "name": sweep.name,
                "label": sweep.label,
                "per_flop": sweep.per_flop,
                "points": points,
                "growth": growth(points, STEP),
                "growth_per_flop": growth(points, FLOP),
            }
        )
    return {"repeats": repeats, "sweeps": measured}


def growth(points: Sequence[dict[str, Any]], cost: str) -> float:
    """Divide the greatest cost of some points by the least, whichever of them comes first."""
    costs = [point[cost] for point in points]
    return max(costs) / min(costs)


def _measure(sweep: WorkloadSeries, repeats: int) -> list[dict[str, Any]]:
    """Time the points of a sweep in turn; the update is the difference to a step without epochs."""
    steps: list[TrainingSteps] = []
    workloads = [sweep.workload(value) for value in sweep.values]
    for workload in workloads:
        learner = make_learner(*workload.make())
        devices = Devices(learner.num_devices)
        state = devices.place(jax.jit(learner.init)(jax.random.key(0)))
        whole = TrainingSteps(learner, devices, state)
        steps += [whole, whole.without_epochs()]
    seconds = time_in_turn(steps, repeats, WARM_UP_STEPS)
    points = []
    for index, workload in enumerate(workloads):
        own, idle = seconds[2 * index : 2 * index + 2]
        decisions, flops = steps[2 * index].work(repeats)
        step = Timing.of(own)
        points.append(
            {
                "value": sweep.values[index],
                "decisions": decisions,
                "gflop_per_step": flops / 1e9,
                STEP: 1e9 * step.median / decisions,
                f"{STEP}_range": {
                    "min": 1e9 * step.min / decisions,
                    "max": 1e9 * step.max / decisions,
                },
                UPDATE: 1e9 * float(np.median(np.subtract(own, idle))) / decisions,
                FLOP: 1e12 * step.median / flops,
                "workload": asdict(workload),
            }
        )
    return points


def check_picture_path(path: Path) -> None:
    """Reject at once a path that could not be written after minutes of measuring.

    Raises:
        ValueError: If the name does not end in .png, or its folder does not exist.
    """
    if path.suffix != ".png":
        raise ValueError(f"--scaling {path}: the picture's name must end in .png")
    if not path.parent.is_dir():
        raise ValueError(f"--scaling {path}: the folder {str(path.parent)!r} does not exist")


def plot_scaling(result: dict[str, Any], path: Path) -> None:
    """Draw cost against the swept quantity, one panel for each sweep and kind of cost.

    Args:
        result: of `scaling`, and `hardware` from `describe_hardware`.
        path: where to write it, as PNG.
    """
    # The import takes a second, and touches no display and no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    panels = [(sweep, False) for sweep in result["sweeps"]]
    panels += [(sweep, True) for sweep in result["sweeps"] if sweep["per_flop"]]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    size = (max(4.4 * columns, 5.2), 3.7 * rows + 0.8)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    figure = Figure(figsize=size, dpi=150, layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, (sweep, per_flop) in zip(axes, panels, strict=False):
        _draw_panel(panel, sweep, per_flop)
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    hardware = result["hardware"]
    figure.suptitle(
        f"Cost of training on {hardware['cpus']} CPUs ({hardware['processor']}), "
        f"JAX {hardware['jax']}"
        if hardware["backend"] == "cpu"
        else f"Cost of training on {hardware['device']}, JAX {hardware['jax']}",
        fontsize=11,
    )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    with open_atomically(path) as file:
        figure.savefig(file, format="png")


def _draw_panel(axes: Any, sweep: dict[str, Any], per_flop: bool) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

    points = sweep["points"]
    x = [point["value"] for point in points]
    step = [point[FLOP if per_flop else STEP] for point in points]
    drawn = list(step)
    axes.loglog(x, step, marker="o", linewidth=1.8, label="training step")
    if not per_flop:
        # A difference of two times can be negative by noise; such a point is left out.
        update = [point[UPDATE] if point[UPDATE] > 0 else np.nan for point in points]
        drawn += [cost for cost in update if cost > 0]
        axes.loglog(x, update, marker="s", markersize=5, linewidth=1.8, label="update alone")
    axes.axhline(step[0], color="grey", alpha=0.5, linewidth=1, linestyle="--", label="flat")
    low, high = min(drawn), max(drawn)
    margin = max(1.4, (_MIN_SPAN * low / high) ** 0.5)
    axes.set_ylim(low / margin, high * margin)
    ratio = sweep["growth_per_flop" if per_flop else "growth"]
    axes.set_title(f"dearest over cheapest: {ratio:.2f}", fontsize=10)
    axes.set_xlabel(sweep["label"])
    axes.set_ylabel(
        "picoseconds per floating-point operation" if per_flop else "nanoseconds per decision"
    )
    axes.xaxis.set_major_locator(FixedLocator(x))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, linewidth=0.6)
