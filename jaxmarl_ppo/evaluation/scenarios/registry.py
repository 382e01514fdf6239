"""Registry of scenario reports, for the environments whose optimum is known.

A report function takes an `Evaluation` and returns entries of plain data for the report;
`headline`, a list of sentences, is shown first. To add a scenario, write one such function and
enter it in `SCENARIOS`.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxmarl_envs.adapters.incoming.openspiel import OpenSpiel
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.phantom_tic_tac_toe import PhantomTicTacToe
from jaxmarl_envs.poker import KuhnPoker, LeducHoldem
from jaxmarl_envs.shuttle_grid import ShuttleGrid
from jaxmarl_envs.tic_tac_toe import TicTacToe
from jaxmarl_ppo.evaluation.scenarios.against_random import RESULTS, play_against_random
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.crypto import report_crypto
from jaxmarl_ppo.evaluation.scenarios.imperfect_information import (
    report_phantom,
    report_poker,
)
from jaxmarl_ppo.evaluation.scenarios.openspiel import report_openspiel
from jaxmarl_ppo.evaluation.scenarios.shuttle_grid import report_shuttle_grid
from jaxmarl_ppo.evaluation.scenarios.tabulated import why_not_tabulated
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import report_tic_tac_toe
from jaxmarl_ppo.learner.learner import Learner


class Scenario(NamedTuple):
    """Describe how an environment is evaluated."""

    env_type: type[MultiAgentEnv]
    report_fn: Callable[[Evaluation], Report]
    num_episodes: int  # unless the caller overrides it
    numbers: tuple[str, ...]  # paths that it may report; `*` is any part
    exact_fn: Callable[[Evaluation], Report] | None = None  # takes too long unless asked for


_EXPLOITABILITY = (
    "exploitability/greedy",
    "exploitability/stochastic",
    "exploitability/best_response/*/*/*",
)
_AGAINST = tuple(f"against/*/*/*/{result}" for result in RESULTS)
_DELIVERIES = tuple(
    f"deliveries/{path}{name}" for path in ("", "dispatchers/*/") for name in ("mean", "se")
)

SCENARIOS: dict[str, Scenario] = {
    "crypto": Scenario(Crypto, report_crypto, 1024, ("accuracy/bob_0", "accuracy/eve_0")),
    "kuhn_poker": Scenario(KuhnPoker, report_poker, 1024, (*_EXPLOITABILITY, "value")),
    "leduc_holdem": Scenario(LeducHoldem, report_poker, 1024, (*_EXPLOITABILITY, "value")),
    "openspiel": Scenario(OpenSpiel, report_openspiel, 1024, _EXPLOITABILITY),
    "phantom_tic_tac_toe": Scenario(
        PhantomTicTacToe, play_against_random, 1024, _AGAINST, exact_fn=report_phantom
    ),
    "shuttle_grid": Scenario(
        ShuttleGrid,
        report_shuttle_grid,
        256,
        _DELIVERIES,
    ),
    "tic_tac_toe": Scenario(TicTacToe, report_tic_tac_toe, 1024, (*_EXPLOITABILITY, *_AGAINST)),
}


def find_scenario(env: MultiAgentEnv) -> Scenario | None:
    """Find the entry of an environment; None if there is none or only the name is the same."""
    scenario = SCENARIOS.get("openspiel" if isinstance(env, OpenSpiel) else env.name)
    return scenario if scenario and isinstance(env, scenario.env_type) else None


def is_exact_on_request(env: MultiAgentEnv) -> bool:
    """Return whether an environment has exact measures that are reported only on request."""
    scenario = find_scenario(env)
    return scenario is not None and scenario.exact_fn is not None


def check_exact(learner: Learner, env: MultiAgentEnv) -> Callable[[Evaluation], Report]:
    """Return the function that computes the exact measures which are reported only on request.

    Args:
        learner: of the policies.
        env: that they play.

    Raises:
        ValueError: If the environment has none, or these policies cannot be tabulated.
    """
    scenario = find_scenario(env)
    if scenario is None or scenario.exact_fn is None:
        valid = ", ".join(name for name, each in SCENARIOS.items() if each.exact_fn is not None)
        raise ValueError(
            f"exact=True has no effect on {env.name}: only these have exact measures that are "
            f"left out without it: {valid}"
        )
    obstacle = why_not_tabulated(learner, "information state")
    if obstacle is not None:
        raise ValueError(f"exact=True: exploitability cannot be computed: {obstacle}")
    return scenario.exact_fn


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches `Scenario.numbers`, in which `*` stands for any part."""
    parts, expected = path.split("/"), pattern.split("/")
    return len(parts) == len(expected) and all(
        wanted in ("*", part) for part, wanted in zip(parts, expected, strict=True)
    )
