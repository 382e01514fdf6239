"""The page of this name is right, and needs no trainer."""

import numpy as np
from documents import ROOT, python_blocks, run_blocks

PAGE = ROOT / "docs" / "only-the-environments.md"


def test_the_page_steps_environments():
    found = run_blocks(PAGE)
    rewards, over = np.asarray(found["rewards"]), np.asarray(found["over"])
    assert rewards.shape == (100, 1024, 2)
    assert over.shape == (100, 1024)
    np.testing.assert_array_equal(rewards.sum(-1), 0.0)
    won = rewards.any(-1)
    assert not won[~over].any()
    # Random play draws an eighth of its games, and a game takes 5 to 9 steps.
    assert 0.86 < won.sum() / over.sum() < 0.89
    assert 100 / 9 <= over.sum(0).mean() <= 100 / 5


def test_the_final_observation_is_that_of_the_step_where_an_episode_goes_on():
    found = run_blocks(PAGE)
    obs, state = found["obs"], found["state"]
    seen, _, _, _, _, info = found["step"](found["key"], state, np.array([0, 0]), found["params"])
    assert not info["episode_over"]
    for field in ("features", "action_mask", "alive", "agent_mask"):
        np.testing.assert_array_equal(
            getattr(seen, field), getattr(info["final_observation"], field)
        )
    assert obs.agent_mask.tolist() == [True, False]  # a new game, in which x begins


def test_the_scan_has_twelve_lines():
    (scan,) = [block for block in python_blocks(PAGE) if "lax.scan" in block]
    assert len([line for line in scan.splitlines() if line.strip()]) == 12
