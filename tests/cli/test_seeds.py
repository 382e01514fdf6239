"""Groups of seeds on the command line."""

import json

import pytest
from page_data import read_page

from jaxmarl_ppo.cli import main as cli

TINY = "--num-envs 2 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 1 --no-progress"


def run(capsys, text):
    """Exit status, standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        cli.main(text.split())
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Two seeds that their limit of time stops before they begin, and that then go on."""
    run_dir = tmp_path_factory.mktemp("seeds") / "run"
    arguments = f"train tic_tac_toe {TINY} --num-seeds 2 --total-env-steps 96 --log-interval 1"
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments.split(), "--max-minutes", "1e-6", "--run-dir", str(run_dir)])
    assert caught.value.code == 0
    with pytest.raises(SystemExit) as caught:
        cli.main(["resume", str(run_dir), "--no-progress", "--max-minutes", "10"])
    assert caught.value.code == 0
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


def test_a_group_cannot_be_watched_as_one(group, capsys):
    status, _, err = run(capsys, f"watch {group}")
    assert status == 2
    assert "holds 2 runs; name one of them" in err


def test_the_record_of_a_group_is_repeated_with_its_seeds(group, tmp_path):
    from jaxmarl_ppo.cli.train import parse_train

    config = parse_train([str(group / "config.json")]).run.config
    assert config.num_seeds == 2
