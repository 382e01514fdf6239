"""The report page of runs."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies
from jaxmarl_ppo.evaluation.group import evaluate_group
from jaxmarl_ppo.evaluation.scenarios.against_random import RESULTS
from jaxmarl_ppo.evaluation.scenarios.known import RETURNS, known_of
from jaxmarl_ppo.evaluation.tables import GROUP_COLUMNS, group_rows, scenario_table
from jaxmarl_ppo.pages.league import ELO, elo_series, league_table
from jaxmarl_ppo.pages.page import Page, make_page, read_static
from jaxmarl_ppo.pages.replay_page import STATIC as REPLAY_STATIC
from jaxmarl_ppo.pages.replay_page import replay_data
from jaxmarl_ppo.pages.run_facts import progress_facts
from jaxmarl_ppo.pages.watch import watch_run
from jaxmarl_ppo.runs.files import EVALUATIONS_FILE, LINEAGE_FILE, METRICS_FILE
from jaxmarl_ppo.runs.lineage import Event, read_lineage
from jaxmarl_ppo.runs.log import read_entries, scalars
from jaxmarl_ppo.runs.run_folder import load_run, members_of, read_record
from jaxmarl_ppo.runs.status import FAILED, Status, read_end, read_status

REPORT_FILE = "report.html"
STATIC = ("report.css", *REPLAY_STATIC, "table.js", "report.js")
# Of a longer log this many entries are drawn, evenly spaced.
MAX_ENTRIES, MAX_CURVES = 400, 50_000
# Entries of a run's log, and its evaluations.
Log = tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]


def report_runs(
    run_dirs: Sequence[str | Path],
    plays: bool = True,
    seed: int = 0,
    env: MultiAgentEnv | str | None = None,
    allow_imports: Sequence[str] = (),
) -> Page:
    """Make a page of one run, or of several in comparison.

    Args:
        run_dirs: folders of runs, or that of a group of seeds.
        plays: also evaluate a single run or all seeds, and show episodes of it or of the first
            seed.
        seed: of both.
        env: as `load_run` needs it.
        allow_imports: as `load_run` needs it.

    Raises:
        ValueError: If there is no run, or it cannot be read.
    """
    if not run_dirs:
        raise ValueError("give the folder of at least one run")
    data = report_data(run_dirs)
    if plays and "group" in data:
        data |= _played_group(Path(run_dirs[0]), seed, env, allow_imports)
    elif plays and len(run_dirs) == 1:
        data |= _played(run_dirs[0], seed, env, allow_imports)
    return report_page(data)


def report_page(data: Mapping[str, Any], connects: bool = False) -> Page:
    """Make the page of `report_data`."""
    body = read_static("head.html") + read_static("report.html").replace(
        '<section id="episodes" aria-label="Episodes" hidden><h2>Episodes</h2></section>',
        '<section id="episodes" aria-label="Episodes" hidden><h2>Episodes</h2>'
        f"{read_static('replay.html')}</section>",
    )
    return make_page(str(data["title"]), body, STATIC, data, connects)


def report_data(run_dirs: Sequence[str | Path]) -> dict[str, Any]:
    """Read the folders of runs as plain data.

    Raises:
        ValueError: If one of them holds no run.
    """
    folders = [Path(folder) for folder in run_dirs]
    records = [read_record(folder) for folder in folders]
    logs = [_log(folder) for folder in folders]
    statuses = [
        read_status(folder, record, entries)
        for folder, record, (entries, _) in zip(folders, records, logs, strict=True)
    ]
    if len(folders) == 1:
        members = members_of(folders[0])
        if members:
            names, own = [member.name for member in members], [read_record(m) for m in members]
            own_logs = [_log(member) for member in members]
            lineage = read_lineage(folders[0] / LINEAGE_FILE)
            ends = dict(zip(names, map(read_end, members), strict=True))
            failed = {name: end.reason for name, end in ends.items() if end and end.state == FAILED}
            return describe_group(logs[0], names, own, own_logs, lineage, statuses[0], failed)
    return describe_runs([str(folder) for folder in folders], records, logs, statuses)


def describe_runs(
    names: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    logs: Sequence[Log],
    statuses: Sequence[Status | None] = (),
) -> dict[str, Any]:
    """Describe runs by their records, logs (entries and evaluations) and statuses, if known."""
    statuses = statuses or [None] * len(names)
    runs = [
        {
            "name": name,
            "series": _series(entries) | _series(evaluations, "evaluation/"),
            "league": league_table(entries),
            "facts": progress_facts(entries, record, status),
            "changes": changes_of(entries),
            "config": _flat({key: record[key] for key in ("env", "config")})
            | _flat({key: record[key] for key in ("versions", "platform") if key in record}),
        }
        for name, record, (entries, evaluations), status in zip(
            names, records, logs, statuses, strict=True
        )
    ]
    environments = dict.fromkeys(record["env"]["name"] for record in records)
    facts = [["runs", str(len(runs))]]
    if len(runs) == 1:
        facts = [["run", names[0]], *runs[0]["facts"]]
    return {
        "title": ", ".join(environments),
        "facts": facts,
        **_known([record["env"] for record in records]),
        "runs": runs,
        "times": _times([entries for entries, _ in logs]),
    }


def describe_group(
    together: Log,
    names: Sequence[str],
    records: Sequence[Mapping[str, Any]],
    logs: Sequence[Log],
    lineage: Sequence[Event] = (),
    status: Status | None = None,
    failed: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Describe a group of runs that differ in their seeds.

    Args:
        together: the group's own log and evaluations.
        names: of its members.
        records: of the members.
        logs: of the members.
        lineage: of the members, with population-based training.
        status: of the group, if known.
        failed: members that an error stopped, and why.
    """
    entries, evaluations = together
    data = describe_runs(names, records, logs)
    if lineage:
        data |= describe_lineage(data["runs"], lineage, entries[-1]["env_steps"] if entries else 0)
    data["group"] = {"series": _series(entries) | _series(evaluations, "evaluation/")}
    data["facts"] = [["seeds", str(len(names))]]
    data["facts"] += progress_facts(entries, records[0], status, "of each")
    data["facts"] += [[name, f"failed: {why}", "bad"] for name, why in (failed or {}).items()]
    # Seeds train side by side, so the times of one are those of all.
    return data | {"times": _times([entries]), "timed": ["all seeds"]}


def describe_lineage(
    runs: Sequence[dict[str, Any]], lineage: Sequence[Event], until: int
) -> dict[str, Any]:
    """Tabulate the copies between members, and add the members' numbers to their series.

    Args:
        runs: the description of each member.
        lineage: the events.
        until: environment steps up to which members have their last numbers.
    """
    paths = list(lineage[0].after)
    for run in runs:
        own = [event for event in lineage if event.member == run["name"]]
        ends = [event.env_steps for event in own[1:]] + [until]
        # Each number from its event to the next one.
        steps = [
            step for event, end in zip(own, ends, strict=True) for step in (event.env_steps, end)
        ]
        for path in paths:
            values = [float(f"{event.after[path]:.5g}") for event in own for _ in range(2)]
            run["series"][f"numbers/{path}"] = {"steps": steps, "values": values}
    rows = [
        [
            f"{event.env_steps:,}",
            event.member,
            event.parent,
            "could not continue" if event.score is None else event.score,
            event.parent_score,
            *(f"{event.before[path]:.3g} to {event.after[path]:.3g}" for path in paths),
        ]
        for event in lineage
        if event.parent is not None
    ]
    columns = ["environment steps", "member", "copy of", "its score", "the other's", *paths]
    return {"lineage": {"columns": columns, "rows": rows}}


def changes_of(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List the periods of a run with other numbers: stages of a curriculum, changes by callbacks.

    Args:
        entries: of its log.

    Returns:
        For each period the environment steps `from` and `to`, its `stage` or None, and `values`
        by path; empty for a run without changes.
    """
    periods: list[dict[str, Any]] = []
    began = 0
    for entry in entries:
        stage = entry.get("curriculum", {}).get("stage")
        now = {"stage": stage, "values": entry.get("values", {})}
        if not periods or any(periods[-1][key] != value for key, value in now.items()):
            periods.append({"from": began, **now})
        periods[-1]["to"] = began = entry["env_steps"]
    has_changes = len(periods) > 1 or any(each["values"] for each in periods)
    return periods if has_changes else []


def _log(folder: Path) -> Log:
    return read_entries(folder / METRICS_FILE), read_entries(folder / EVALUATIONS_FILE)


def _known(envs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the main curves and known results; empty where runs differ."""
    first, *others = [known_of(env) for env in envs]
    if any(other != first for other in others):
        return {"measures": list(RETURNS), "goals": {}}
    goals = [{"name": name, "at": at} for name, at in first.goals.items()]
    measures = list(first.measures)
    return {"measures": measures, "goals": dict.fromkeys(measures, goals) if goals else {}}


def _series(entries: Sequence[Mapping[str, Any]], prefix: str = "") -> dict[str, Any]:
    """List the values of every number of the log; None where it is missing or not finite."""
    stride = max(1, -(-len(entries) // MAX_ENTRIES))
    kept = list(entries[::-1][::stride])[::-1]  # the newest is always included
    steps = [entry["env_steps"] for entry in kept]
    found: dict[str, Any] = {}
    for k, entry in enumerate(kept):
        for name, value in scalars(entry):
            if name in ("env_steps", "iteration", "wall_s") or name.startswith(ELO):
                continue
            if prefix + name not in found and len(found) == MAX_CURVES:
                raise ValueError(
                    f"a log has more than {MAX_CURVES:,} different numbers, too many for a report"
                )
            column = found.setdefault(prefix + name, {"steps": steps, "values": [None] * len(kept)})
            if math.isfinite(value):
                column["values"][k] = float(f"{value:.5g}")
    return found | elo_series(kept)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name every leaf by its path, `config.default_ppo.gamma`."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def _times(logs: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[Any]]:
    """Tabulate the time, its split and the speed of runs, a column for each."""

    def of_last(key: str) -> list[Any]:
        return [entries[-1].get(key) if entries else None for entries in logs]

    spent = [_seconds_by_phase(entries) for entries in logs]
    phases = dict.fromkeys(phase for own in spent for phase, s in own.items() if s >= 0.1)
    shares = [None if x is None else f"{x:.0%}, {1 - x:.0%}" for x in of_last("rollout_share")]
    rates = [
        sorted(entry["env_steps_per_s"] for entry in entries if entry.get("env_steps_per_s"))
        for entries in logs
    ]
    rows = [
        ["seconds in all", *of_last("wall_s")],
        *([f"seconds of {phase}", *(own.get(phase) for own in spent)] for phase in phases),
        ["of training: rollout, update", *shares],
        [
            "environment steps per second, median",
            *(own[len(own) // 2] if own else None for own in rates),
        ],
        ["peak memory, MB", *of_last("peak_memory_mb")],
    ]
    return [
        [name, *(round(x, 1) if isinstance(x, float) else x for x in row)]
        for name, *row in rows
        if any(x is not None for x in row)
    ]


def _seconds_by_phase(entries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Sum the time of a run's processes in each phase; each process counts from zero."""
    total: dict[str, float] = {}
    counts = [entry.get("seconds", {}) for entry in entries]
    for own, later in itertools.pairwise([*counts, {}]):
        if sum(later.values()) < sum(own.values()):  # the last entry of its process
            total = {phase: total.get(phase, 0.0) + own.get(phase, 0.0) for phase in total | own}
    return total


def _played_group(
    group_dir: Path, seed: int, env: MultiAgentEnv | str | None, allow_imports: Sequence[str]
) -> dict[str, Any]:
    """Evaluate all members of a group, and play some episodes of the first one."""
    report = evaluate_group(group_dir, seed=seed, env=env, allow_imports=allow_imports)
    first = members_of(group_dir)[0]
    watched = watch_run(first, seed=seed, env=env, allow_imports=allow_imports)
    episodes = f"{report['episodes']:,} fresh episodes of each of {len(report['members'])} seeds"
    return {
        "evaluation": {
            "headline": [
                f"{episodes}, sampled actions, seed {seed}",
                f"The episodes below are {first.name}'s.",
            ],
            "columns": GROUP_COLUMNS,
            "rows": group_rows(report),
        },
        "replay": replay_data(watched.replays, watched.env, watched.elo),
    }


def _notes(report: Mapping[str, Any], is_tabulated: bool) -> list[str]:
    """List what a scenario says in sentences: all of it, unless its numbers are in a table."""
    if not is_tabulated:
        return list(report.get("headline", ()))
    notes = []
    if "exploitability_note" in report:
        notes.append(f"exploitability {report['exploitability_note']}")
    elif "exploitability" in report:
        notes.append("exact exploitability and results")
    if "against" in report:
        how = f", {report['against_note']}" if "against_note" in report else ""
        notes.append(f"against others: {' / '.join(RESULTS)} in %{how}")
    return notes


def _played(
    run_dir: str | Path, seed: int, env: MultiAgentEnv | str | None, allow_imports: Sequence[str]
) -> dict[str, Any]:
    """Evaluate a run and play some of its episodes."""
    run = load_run(run_dir, env=env, allow_imports=allow_imports)
    report = evaluate_policies(run.learner, run.population, seed=seed)
    watched = watch_run(run_dir, seed=seed, env=run.env)
    goals = known_of(read_record(Path(run_dir))["env"]).goals
    results, scenario = scenario_table(report, goals)
    columns = list(dict.fromkeys(key for row in report["agents"].values() for key in row))
    rows = [
        [name, *(row.get(column) for column in columns)] for name, row in report["agents"].items()
    ]
    heads = ["agent", *(column.replace("_", " ") for column in columns)]
    episodes = f"{report['episodes']:,} fresh episodes, sampled actions, seed {seed}"
    return {
        "evaluation": {
            "headline": [*_notes(report, bool(scenario)), episodes],
            "results": {"columns": results, "rows": scenario},
            "columns": heads,
            "rows": rows,
        },
        "replay": replay_data(watched.replays, watched.env, watched.elo),
    }
