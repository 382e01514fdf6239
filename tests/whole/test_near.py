"""What `make near` runs is what a change can affect."""

from pathlib import Path

import pytest
from near import affected_tests


@pytest.mark.parametrize(
    ("changed", "expected", "unexpected"),
    [
        ("jaxmarl_ppo/ppo/loss.py", {"ppo", "learner", "training", "cli", "whole"}, {"credit"}),
        ("jaxmarl_ppo/types.py", {"credit", "networks", "bench"}, {"machine", "envs"}),
        ("jaxmarl_ppo/cli/train.py", {"cli", "whole"}, {"training", "bench"}),
        ("jaxmarl_ppo/pages/static/chart.js", {"pages", "training"}, {"learner"}),
        ("envs/jaxmarl_envs/core.py", {"envs", "ppo", "rollout"}, {"machine"}),
        ("docs/runs.md", {"whole"}, {"runs"}),
        ("benchmarks/train_connect_four.py", {"whole", "test_pgx.py"}, {"envs", "test_host.py"}),
    ],
)
def test_a_change_affects_its_folder_and_those_that_import_from_it(changed, expected, unexpected):
    found = {path.name for path in affected_tests({Path(changed)})}
    assert expected <= found
    assert not unexpected & found


def test_a_test_that_changed_runs_alone_and_what_all_share_runs_all():
    path = Path("tests/ppo/test_ppo.py")
    assert affected_tests({path}) == [path]
    assert affected_tests({path, Path("jaxmarl_ppo/ppo/loss.py")}).count(path) == 0  # in its folder
    assert affected_tests({path, Path("tests/support/lamps.py")}) == [Path("tests")]
    assert affected_tests({Path("tests/ppo/test_gone.py")}) == []
