"""Registry of scenario reports, for the environments whose optimum is known.

A report function takes an `Evaluation` and returns entries of plain data for the report;
`headline`, a list of sentences, is shown first. To add a scenario, write one such function and
enter it in `SCENARIOS`.
"""

from collections.abc import Callable

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.phantom_tic_tac_toe import PhantomTicTacToe
from jaxmarl_envs.poker import KuhnPoker, LeducHoldem
from jaxmarl_envs.shuttle_grid import ShuttleGrid
from jaxmarl_envs.tic_tac_toe import TicTacToe
from jaxmarl_ppo.evaluation.scenarios.against_random import RESULTS, play_against_random
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report, Scenario
from jaxmarl_ppo.evaluation.scenarios.crypto import report_crypto
from jaxmarl_ppo.evaluation.scenarios.imperfect_information import (
    report_phantom,
    report_poker,
)
from jaxmarl_ppo.evaluation.scenarios.shuttle_grid import report_shuttle_grid
from jaxmarl_ppo.evaluation.scenarios.tabulated import EXPLOITABILITY_PATHS, why_not_tabulated
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import report_tic_tac_toe
from jaxmarl_ppo.learner.learner import Learner

_AGAINST = tuple(f"against/*/*/*/{result}" for result in RESULTS)
_DELIVERIES = tuple(
    f"deliveries/{path}{name}" for path in ("", "dispatchers/*/") for name in ("mean", "se")
)

SCENARIOS: dict[str, Scenario] = {
    "crypto": Scenario(Crypto, report_crypto, 1024, ("accuracy/bob_0", "accuracy/eve_0")),
    "kuhn_poker": Scenario(KuhnPoker, report_poker, 1024, (*EXPLOITABILITY_PATHS, "value")),
    "leduc_holdem": Scenario(LeducHoldem, report_poker, 1024, (*EXPLOITABILITY_PATHS, "value")),
    "phantom_tic_tac_toe": Scenario(
        PhantomTicTacToe, play_against_random, 1024, _AGAINST, exact_fn=report_phantom
    ),
    "shuttle_grid": Scenario(
        ShuttleGrid,
        report_shuttle_grid,
        256,
        _DELIVERIES,
    ),
    "tic_tac_toe": Scenario(
        TicTacToe, report_tic_tac_toe, 1024, (*EXPLOITABILITY_PATHS, *_AGAINST)
    ),
}


def find_scenario(env: MultiAgentEnv) -> Scenario | None:
    """Find the entry of an environment; None if there is none or only the name is the same."""
    if env.steps_on_host:
        # The adapters of environments in Python take a while to import.
        from jaxmarl_ppo.evaluation.scenarios import openspiel

        if isinstance(env, openspiel.SCENARIO.env_type):
            return openspiel.SCENARIO
    scenario = SCENARIOS.get(env.name)
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
