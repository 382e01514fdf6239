"""The report: what it reads, what it says of it, and where it is written."""

import dataclasses
import shutil
import urllib.error
import urllib.request

import pytest
from page_data import read_page, unpack
from serving import served_by

import jaxmarl_envs
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, Trainer
from jaxmarl_ppo.pages.report import (
    MAX_ENTRIES,
    changes_of,
    describe_runs,
    report_data,
    report_runs,
)
from jaxmarl_ppo.pages.report_server import serve_report
from jaxmarl_ppo.runs.files import METRICS_FILE
from jaxmarl_ppo.runs.lock import locked
from jaxmarl_ppo.runs.status import record_end


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs that differ in one number."""
    found = []
    for gamma in (0.9, 0.99):
        env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
        config = TrainConfig(
            total_env_steps=256,
            num_envs=4,
            num_steps=16,
            mapping="shared",
            default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
            default_ppo=PPOConfig(gamma=gamma, num_minibatches=1),
            log_interval=1,
        )
        run_dir = tmp_path_factory.mktemp("runs") / f"gamma-{gamma}"
        found.append(Trainer(env, params, config, run_dir, progress=False).train())
    return found


def test_every_run_ends_with_one(runs):
    for result in runs:
        data = read_page((result.run_dir / "report.html").read_text())
        (run,) = data["runs"]
        series = run["series"]["agents/x/return_mean"]
        assert series["steps"] == [entry["env_steps"] for entry in result.history]
        assert series["values"] == pytest.approx(
            [entry["agents"]["x"]["return_mean"] for entry in result.history], rel=1e-4
        )
        assert data["measures"][-1] == "agents/*/return_mean"
        assert data["goals"] == {}  # of another board than the one whose value is known


def test_one_run_is_evaluated_and_shown(runs):
    page = report_runs([runs[0].run_dir])
    data = read_page(page.html)
    assert [row[0] for row in data["evaluation"]["rows"]] == ["x", "o"]
    exact, against, episodes = data["evaluation"]["headline"]
    assert (exact, against) == (
        "exact exploitability and results",
        "against others: win / draw / loss in %",
    )
    assert "fresh episodes" in episodes
    results = data["evaluation"]["results"]
    assert results["columns"] == ["", "greedy policy", "stochastic policy"]
    found = {row[0]: row[1:] for row in results["rows"]}
    assert all(float(x) >= 0 for x in found["exploitability (0 is perfect play)"])
    for shares in found["x against random"]:
        assert sum(map(float, shares.split(" / "))) == pytest.approx(100, abs=0.2)
    assert len(results["rows"]) == 1 + 2 * 2  # two opponents in two seats
    assert len(data["replay"]["episodes"]) == 4
    assert "replay" not in read_page(report_runs([runs[0].run_dir], plays=False).html)


def test_the_head_says_whether_a_run_has_finished(runs):
    facts = dict(fact[:2] for fact in report_data([runs[0].run_dir])["facts"])
    assert facts["status"] == "finished"
    assert facts["environment steps"] == "256 of 256 (100\u00a0%)"
    assert facts["ended"].endswith(" UTC")
    at_end = read_page((runs[0].run_dir / "report.html").read_text())
    assert dict(fact[:2] for fact in at_end["facts"]) == facts
    both = report_data([result.run_dir for result in runs])
    assert [dict(f[:2] for f in run["facts"])["status"] for run in both["runs"]] == ["finished"] * 2


def facts_of(folder):
    (run,) = report_data([folder])["runs"]
    return {name: text for name, text, *_ in run["facts"]}


def test_the_head_says_what_stopped_a_run(runs, tmp_path):
    """Of a run that is cut in half: by a signal, its time, an error or kill -9; or that trains."""
    run_dir = shutil.copytree(runs[0].run_dir, tmp_path / "half")
    log = run_dir / METRICS_FILE
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    half = dataclasses.replace(runs[0], run_dir=run_dir, env_steps=128, interrupted=True)
    for stopped_by, failed, words in (
        ("SIGINT", False, "stopped by Ctrl-C (SIGINT)"),
        ("SIGTERM", False, "stopped by SIGTERM"),
        ("max_minutes=1 are over", False, "stopped: max_minutes=1 are over"),
        ("ValueError: it broke", True, "failed: ValueError: it broke"),
    ):
        record_end(dataclasses.replace(half, stopped_by=stopped_by, failed=failed))
        facts = facts_of(run_dir)
        assert facts["status"] == words
        assert facts["environment steps"] == "128 of 256 (50\u00a0%)"
        assert "ended" in facts
        assert report_data([run_dir])["facts"][1] == ["status", words, "bad"]
    with locked(run_dir):
        assert "newest entry" in facts_of(run_dir)
        assert report_data([run_dir])["facts"][1] == ["status", "running"]
    (run_dir / "end.json").unlink()
    facts = facts_of(run_dir)
    assert facts["status"] == "stopped: no end was recorded, as after kill -9"
    assert "newest entry" in facts


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7512, "2 h 5 min")]
)
def test_the_head_says_how_long_a_run_has_trained(seconds, words):
    record = {"env": {"name": "game"}, "config": {}}
    data = describe_runs(["run"], [record], [([{"env_steps": 1, "wall_s": seconds}], [])])
    assert ["training time", words] in data["facts"]


def test_what_differs_between_runs_is_there(runs):
    data = report_data([result.run_dir for result in runs])
    gammas = [run["config"]["config.default_ppo.gamma"] for run in data["runs"]]
    assert gammas == [0.9, 0.99]
    assert data["times"][0][0] == "seconds in all"
    assert len(data["times"][0]) == 3


def test_numbers_that_are_not_finite_and_long_logs_are_thinned():
    record = {"env": {"name": "game"}, "config": {}}
    entries = [
        {
            "env_steps": k,
            "decisions": k,
            "wall_s": 1.0,
            "env_steps_per_s": 1.0,
            "peak_memory_mb": None,
            "agents": {"x": {"return_mean": float("nan") if k == 999 else 1.0}},
        }
        for k in range(1000)
    ]
    data = describe_runs(["run"], [record], [(entries, [])])
    series = data["runs"][0]["series"]["agents/x/return_mean"]
    assert len(series["steps"]) <= MAX_ENTRIES
    assert series["steps"][-1] == 999
    assert series["values"][-1] is None
    assert set(series["values"][:-1]) == {1.0}


def test_periods_have_the_numbers_that_were_in_force():
    def entry(step, **more):
        return {"env_steps": step, **more}

    first = {"curriculum": {"stage": 0}, "values": {"env.params.delay": 2}}
    last = {"curriculum": {"stage": 1}}
    assert changes_of([entry(10, **first), entry(20, **first), entry(30, **last)]) == [
        {"from": 0, "stage": 0, "values": first["values"], "to": 20},
        {"from": 20, "stage": 1, "values": {}, "to": 30},
    ]
    by_callback = changes_of([entry(10), entry(20, values={"default_ppo.gamma": 0.9})])
    assert [period["values"] for period in by_callback] == [{}, {"default_ppo.gamma": 0.9}]
    assert changes_of([entry(10), entry(20)]) == []
    assert changes_of([]) == []


def test_times_add_up_over_the_processes_of_a_run():
    """A process counts its seconds from its own beginning; what is not known has no row."""

    def entry(wall_s, **own):
        return {"env_steps": 1, "decisions": 1, "wall_s": wall_s, "env_steps_per_s": 5.0} | own

    resumed = [
        entry(5.0, seconds={"compiling": 4.0, "training": 1.0}),
        entry(8.0, seconds={"compiling": 4.0, "training": 4.0}),
        entry(11.0, seconds={"compiling": 2.0, "training": 1.0}),
        entry(20.0, seconds={"compiling": 2.0, "training": 9.0, "evaluating": 1.0}),
    ]
    resumed[-1]["rollout_share"] = 0.25
    records = [{"env": {"name": "game"}, "config": {}}] * 2
    data = describe_runs(["a", "b"], records, [(resumed, []), ([entry(3.0)], [])])
    assert data["times"] == [
        ["seconds in all", 20.0, 3.0],
        ["seconds of compiling", 6.0, None],
        ["seconds of training", 13.0, None],
        ["seconds of evaluating", 1.0, None],
        ["of training: rollout, update", "25%, 75%", None],
        ["environment steps per second, median", 5.0, 5.0],
    ]


def test_the_curve_to_look_at_is_the_one_that_a_scenario_is_judged_by():
    def data(*envs):
        records = [{"env": env, "config": {}} for env in envs]
        return describe_runs(["run"] * len(envs), records, [([], [])] * len(envs))

    def env(name, params=None, **kwargs):
        return {"name": name, "make": {"name": name, "kwargs": kwargs}, "params": params or {}}

    shuttles = env("shuttle_grid", {"max_steps": 256})
    found = data(shuttles, shuttles)
    assert found["measures"][-1] == "agents/*/deliveries"
    assert found["goals"]["agents/*/deliveries"] == [
        {"name": "best scripted dispatcher", "at": 24.7},
        {"name": "central planner over it", "at": 25.2},
        {"name": "if shuttles met at the ports only", "at": 26.3},
    ]
    # What is seen and earned changes nothing about deliveries; another hall does.
    otherwise = env("shuttle_grid", {"max_steps": 256}, reward="progress", full_view=True)
    assert data(otherwise)["goals"] == found["goals"]
    assert data(env("shuttle_grid", {"max_steps": 256}, num_rows=8))["goals"] == {}
    assert data(env("shuttle_grid", {"max_steps": 64}))["goals"] == {}
    assert data(env("crypto", {"max_steps": 25}, continuous_actions=True))["goals"] == {}
    # Whatever stands in the place of a table, as in the record of an environment of one number.
    for params in (25, 2.5, [1], "x", None):
        assert data({**env("crypto"), "params": params})["goals"] == {}
    mixed = data(shuttles, env("tic_tac_toe"))
    assert mixed["measures"][-1] == "agents/*/return_mean"
    assert mixed["goals"] == {}


def test_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        report_runs([])
    with pytest.raises(ValueError, match="does not exist"):
        report_runs([tmp_path / "nothing"])


def test_a_run_that_goes_on_is_read_anew(runs, tmp_path):
    folder = tmp_path / "going-on"
    folder.mkdir()
    for name in ("config.json", METRICS_FILE):
        (folder / name).write_bytes((runs[0].run_dir / name).read_bytes())
    lines = (folder / METRICS_FILE).read_text().splitlines(keepends=True)
    (folder / METRICS_FILE).write_text(lines[0])
    with served_by(serve_report, [folder]) as address:
        with urllib.request.urlopen(address, timeout=30) as response:
            data = read_page(response.read().decode())
        assert data["refresh_s"] > 0
        assert len(data["runs"][0]["series"]["agents/x/return_mean"]["steps"]) == 1
        (folder / METRICS_FILE).write_text("".join(lines[:3]) + lines[3][:20])  # half a line
        with urllib.request.urlopen(address + "data", timeout=30) as response:
            data = unpack(response.read().decode())
        assert len(data["runs"][0]["series"]["agents/x/return_mean"]["steps"]) == 3
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.rsplit("/", 2)[0] + "/data", timeout=30)
