"""Groups of seeds on the command line."""

import csv
import json
import re

import pytest
from command_line import run, status_of
from documents import ROOT
from page_data import read_page

from jaxmarl_ppo.evaluation.curve_tables import write_curves

TINY = "--num-envs 2 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 1 --no-progress"


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Two seeds that their limit of time stops before they begin, and that then go on."""
    run_dir = tmp_path_factory.mktemp("seeds") / "run"
    arguments = f"train tic_tac_toe {TINY} --num-seeds 2 --total-env-steps 96 --log-interval 1"
    assert status_of(*arguments.split(), "--max-minutes", "1e-6", "--run-dir", str(run_dir)) == 0
    assert status_of("resume", str(run_dir), "--no-progress", "--max-minutes", "10") == 0
    return run_dir


def test_a_group_says_what_is_next(group, capsys):
    status, out, _ = run(capsys, f"resume {group} --no-progress")
    assert status == 0
    assert "of each of 2 seeds" in out
    assert f"watch it: jaxmarl-ppo watch {group}/members/seed-0" in out


def test_a_group_is_evaluated(group, capsys):
    status, out, _ = run(capsys, f"evaluate {group} --episodes 4 --checkpoint newest")
    assert status == 0
    assert "2 seeds, 4 episodes of each" in out
    assert "exploitability/greedy" in out
    status, out, _ = run(capsys, f"evaluate {group} --episodes 4 --json")
    assert json.loads(out)["members"].keys() == {"seed-0", "seed-1"}
    status, _, err = run(capsys, f"evaluate {group} --cross-play")
    assert status == 2
    assert "--cross-play has no effect on a group of seeds" in err
    status, _, err = run(capsys, f"evaluate {group} --exact")
    assert status == 2
    assert "exact=True has no effect on tic_tac_toe" in err


def test_a_group_is_reported(group, capsys):
    status, out, _ = run(capsys, f"report {group}")
    assert status == 0
    assert f"saved in {group}/report.html" in out
    data = read_page((group / "report.html").read_text())
    assert data["evaluation"]["headline"][1] == "The episodes below are seed-0's."
    assert data["replay"]["episodes"]
    rows = {path: numbers for path, *numbers in data["evaluation"]["rows"]}
    low, high = rows["agents/x/return_mean"][2:]
    assert low <= rows["agents/x/return_mean"][1] <= high
    assert not any(path.endswith("return_max") for path in rows)
    facts = dict(fact[:2] for fact in data["facts"])
    assert facts["status"] == "finished"
    assert facts["environment steps of each"] == "96 of 96 (100\u00a0%)"
    # Once for all seeds, which train side by side.
    assert data["timed"] == ["all seeds"]
    assert {len(row) for row in data["times"]} == {2}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_curves_of_a_group_are_written_as_tables(group, tmp_path, capsys):
    curves, summary = tmp_path / "curves.csv", tmp_path / "summary.csv"
    before = (group / "report.html").stat().st_mtime_ns
    status, out, _ = run(capsys, f"report {group} --csv {curves} --summary {summary}")
    assert status == 0
    assert out == f"saved in {curves}\nsaved in {summary}\n"
    assert (group / "report.html").stat().st_mtime_ns == before
    rows = table(curves)
    assert {row["run"] for row in rows} == {str(group)}
    returns = [row for row in rows if row["metric"] == "agents/x/return_mean"]
    for seed in ("0", "1"):
        log = (group / "members" / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()
        logged = {
            str(entry["env_steps"]): entry["agents"]["x"]["return_mean"]
            for entry in map(json.loads, log)
            if "return_mean" in entry["agents"]["x"]
        }
        own = [row for row in returns if row["seed"] == seed]
        assert {row["env_steps"]: float(row["value"]) for row in own} == logged
    log = map(json.loads, (group / "metrics.jsonl").read_text().splitlines())
    found = {row["env_steps"]: row for row in table(summary) if row["metric"] == "all/return_mean"}
    for entry in log:
        row = found[str(entry["env_steps"])]
        assert row["seeds"] == "2"
        assert float(row["mean"]) == entry["all"]["return_mean"]
        assert float(row["ci95_low"]) == entry["ci95_low"]["all"]["return_mean"]


def test_the_line_of_the_documents_draws_a_curve_for_every_seed(group, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    write_curves(tmp_path / "curves.csv", [group])
    text = (ROOT / "docs" / "watching.md").read_text()
    (block,) = re.findall(r"```py\n(import pandas\n.*?)```", text, flags=re.DOTALL)
    read, draw = block.strip().rsplit("\n", 1)
    namespace = {}
    exec(read, namespace)
    axes = eval(draw, namespace)
    assert [line.get_label() for line in axes.get_lines()] == ["0", "1"]


def test_a_picture_of_a_group_is_drawn_for_papers(group, tmp_path, capsys):
    status, out, _ = run(capsys, f"report {group} --picture {tmp_path}/curve.pdf")
    assert status == 0
    assert out == f"saved in {tmp_path}/curve.pdf\n"
    assert (tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--picture curve.jpg",
            "'curve.jpg' is not the name of a picture; valid endings: .png, .pdf",
        ),
        ("GROUP --picture curve.pdf", "--picture shows one run or group, got 2 folders"),
        ("--csv curves.csv --seed 1", "--seed has no effect beside --csv"),
        ("--csv curves.csv --no-plays", "--no-plays has no effect beside --csv"),
        ("--csv curves.csv --live", "--csv has no effect with --live"),
        ("GROUP/members/seed-0 --summary summary.csv", "has a single seed"),
    ],
)
def test_files_of_curves_are_refused(group, tmp_path, capsys, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, f"report {group} {options.replace('GROUP', str(group))}")
    assert status == 2
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_group_cannot_be_watched_as_one(group, capsys):
    status, _, err = run(capsys, f"watch {group}")
    assert status == 2
    assert "holds 2 runs; name one of them" in err


def test_the_record_of_a_group_is_repeated_with_its_seeds(group):
    from jaxmarl_ppo.cli.train import parse_train

    config = parse_train([str(group / "config.json")]).run.config
    assert config.num_seeds == 2
