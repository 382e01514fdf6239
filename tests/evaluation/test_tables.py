"""A scenario's own results as a table, for pages."""

import pytest

from jaxmarl_ppo.evaluation.scenarios.known import KNOWN
from jaxmarl_ppo.evaluation.tables import scenario_table

DELIVERIES = {
    "mean": 24.5, "se": 0.125, "dispatchers": {"tuned": {"mean": 24.75, "se": None}},
}  # fmt: skip
WON, LOST = ({"win": x, "draw": 0.25, "loss": 0.75 - x} for x in (0.625, 0.0))


@pytest.mark.parametrize(
    ("scenario", "report", "columns", "rows"),
    [
        (
            "tic_tac_toe",
            {
                "exploitability": {"greedy": 0.0, "stochastic": 0.5, "best_response": {}},
                "against": {
                    "greedy": {"random": {"x": WON}},
                    "stochastic": {"random": {"x": LOST}, "minimax": {"o": LOST}},
                },
            },
            ["greedy policy", "stochastic policy"],
            [
                ["exploitability (0 is perfect play)", "0.0000", "0.5000"],
                ["x against random", "62.5 / 25.0 / 12.5", "0.0 / 25.0 / 75.0"],
                ["o against minimax", "", "0.0 / 25.0 / 75.0"],
            ],
        ),
        (
            "crypto",
            {"accuracy": {"bob_0": 0.875, "eve_0": 0.5}},
            ["these policies", "a perfect cipher"],
            [
                ["bob_0 names the goal, % of steps", "87.5", "100"],
                ["eve_0 names the goal, % of steps", "50.0", "50"],
            ],
        ),
        (
            "kuhn_poker",
            {"exploitability": {"stochastic": 0.125, "greedy": 0.5}, "value": -0.0625},
            ["stochastic policy", "greedy policy"],
            [
                ["exploitability (0 is perfect play)", "0.1250", "0.5000"],
                ["return of the first player", "-0.0625", ""],
            ],
        ),
        (
            "shuttle_grid",
            {"deliveries": DELIVERIES},
            ["deliveries per shift ± standard error"],
            [
                ["these policies", "24.50 ± 0.12"],
                ["scripted dispatcher tuned", "24.75"],
                ["central planner over it (known)", "25.2"],
                ["if shuttles met at the ports only (known)", "26.3"],
            ],
        ),
        ("", {"all": {"return_mean": 1.0}}, [], []),
    ],
)
def test_every_scenario_has_a_row_for_each_result(scenario, report, columns, rows):
    goals = KNOWN[scenario].goals if scenario else {}
    assert scenario_table(report, goals) == (["", *columns], rows)
