"""The main curve of a scenario, and known results."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# Names of curves as reports have them: the path of a number, `*` for every agent.
RETURNS = ("evaluation/agents/*/return_mean", "agents/*/return_mean")

SCRIPTED = "best scripted dispatcher"  # of the shuttles, among their `baselines`


class Known(NamedTuple):
    """Known results of a scenario with its default arguments."""

    measures: tuple[str, ...]  # the first that a log has is the main one
    goals: Mapping[str, float]  # of these measures, by how they are reached
    params: Mapping[str, Any]  # that the goals are for
    free: frozenset[str] = frozenset()  # arguments whose values do not affect the goals


KNOWN: dict[str, Known] = {
    "tic_tac_toe": Known(
        ("evaluation/exploitability/greedy", *RETURNS), {"perfect play on both sides": 0.0}, {}
    ),
    "crypto": Known(
        RETURNS,
        {"eve at her best": -25.0, "bob and alice at their best": 24.0},
        {"max_steps": 25},
    ),
    "kuhn_poker": Known(
        ("evaluation/exploitability/stochastic", *RETURNS), {"an equilibrium": 0.0}, {}
    ),
    "leduc_holdem": Known(
        ("evaluation/exploitability/stochastic", *RETURNS), {"an equilibrium": 0.0}, {}
    ),
    "shuttle_grid": Known(
        ("evaluation/deliveries/mean", "agents/*/deliveries"),
        {
            SCRIPTED: 24.7,
            "central planner over it": 25.2,
            "if shuttles met at the ports only": 26.3,
        },
        {"max_steps": 256},
        frozenset({"reward", "full_view", "half_turn"}),
    ),
}


def known_of(env: Mapping[str, Any]) -> Known:
    """Find known results of an environment by its entry in a run's record."""
    found = KNOWN.get(env["name"], Known(RETURNS, {}, {}))
    made = env.get("make") or {}
    params = env.get("params")
    params = params if isinstance(params, Mapping) else {}  # parameters may be a single number
    changed = set(made.get("kwargs") or ()) - found.free
    as_it_comes = made.get("name") == env["name"] and not changed
    if as_it_comes and all(params.get(key) == value for key, value in found.params.items()):
        return found
    return found._replace(goals={})
