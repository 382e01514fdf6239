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
from jaxmarl_ppo.evaluation.scenarios.openspiel import report_openspiel
from jaxmarl_ppo.evaluation.scenarios.poker import report_poker
from jaxmarl_ppo.evaluation.scenarios.shuttle_grid import report_shuttle_grid
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import report_tic_tac_toe


class Scenario(NamedTuple):
    """Describe how an environment is evaluated."""

    env_type: type[MultiAgentEnv]
    report_fn: Callable[[Evaluation], Report]
    num_episodes: int  # unless the caller overrides it
    numbers: tuple[str, ...]  # paths that it may report; `*` is any part


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
    "phantom_tic_tac_toe": Scenario(PhantomTicTacToe, play_against_random, 1024, _AGAINST),
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


def matches(path: str, pattern: str) -> bool:
    """Return whether a path matches `Scenario.numbers`, in which `*` stands for any part."""
    parts, expected = path.split("/"), pattern.split("/")
    return len(parts) == len(expected) and all(
        wanted in ("*", part) for part, wanted in zip(parts, expected, strict=True)
    )
