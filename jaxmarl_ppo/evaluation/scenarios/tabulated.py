"""Policy tables for exact evaluation: action probabilities at every decision of a small game.

Letters: `D` decisions, `N` actions.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import Observation
from jaxmarl_ppo.evaluation.scenarios.base import Report
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.ask import ask
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.types import Population, PyTree

PERFECT = 1e-9  # an exploitability below this is rounding
# The numbers of `exploitability_report`, as `Scenario.numbers` names them.
EXPLOITABILITY_PATHS = (
    "exploitability/greedy",
    "exploitability/stochastic",
    "exploitability/best_response/*/*/*",
)


def action_probabilities(
    learner: Learner,
    env_params: PyTree,
    population: Population,
    obs: Observation,
    mover: np.ndarray,
    player: int,
) -> np.ndarray:
    """Compute a network's action probabilities at decisions, `[D, N]`.

    It is evaluated in every seat that it can play; rows of other seats are uniform. It must depend
    on nothing but the observation, see `why_not_tabulated`.

    Args:
        learner: of the players.
        env_params: of its environment.
        population: their parameters.
        obs: `[D, A, ...]`, at each decision.
        mover: `[D]` int, the slots that decide.
        player: to evaluate.
    """
    args = (env_params, population, obs, jnp.asarray(mover), jnp.int32(player))
    return np.exp(np.asarray(_log_probabilities(learner, *args), np.float64))


@partial(jax.jit, static_argnums=0)
def _log_probabilities(
    learner: Learner,
    env_params: PyTree,
    population: Population,
    obs: Observation,
    mover: jax.Array,
    player: jax.Array,
) -> jax.Array:
    """Compute log-probabilities of all actions, `[D, N]`, if `player` decided everywhere."""
    num_decisions, num_actions = mover.shape[0], obs.action_mask.shape[-1]
    players, key = learner.players.without_fixed_members(), jax.random.key(0)
    state = init_rollout_state(
        learner.env, env_params, players, population.league, key, num_decisions
    )
    state = state.replace(obs=obs, player=jnp.full(state.player.shape, player))
    log_probs = jnp.log(obs.action_mask / obs.action_mask.sum(-1, keepdims=True))
    groups = zip(players.policy_groups, population.policy_groups, state.hidden, strict=True)
    for group, stack, hidden in groups:
        response = ask(group, stack, hidden, state, obs, obs.agent_mask)
        distribution = group.network.distribution

        def log_prob(action, response=response, distribution=distribution) -> jax.Array:
            mask = response.action_mask
            actions = jnp.broadcast_to(action, mask.shape[:2])
            return distribution.log_prob(response.outputs, mask, actions)

        own = jax.vmap(log_prob, out_axes=-1)(jnp.arange(num_actions))  # [D, S, N]
        log_probs = group.interface.spread(own, log_probs, response.asked)
    return log_probs[jnp.arange(num_decisions), mover]


@partial(jax.jit, static_argnums=0)
def observe_all(observe: Callable[[Any], Observation], states: PyTree) -> Observation:
    """Observe states, `[D, ...]` leaves, by the function that observes one."""
    return jax.vmap(observe)(states)


def why_not_tabulated(learner: Learner, decision: str) -> str | None:
    """Explain why a table cannot represent these policies; None if it can.

    Args:
        learner: of the policies.
        decision: all that a policy may depend on for a table to represent it.
    """
    if any(group.network.is_recurrent for group in learner.players.policy_groups):
        return f"left out: a policy with memory does not play by the {decision} alone"
    interfaces = [group.interface for group in learner.players.policy_groups]
    if any(interface.prev_action or interface.prev_reward for interface in interfaces):
        return (
            "left out: a policy that sees its previous action or reward does not play by the "
            f"{decision} alone"
        )
    return None


def policies_by_seat(
    learner: Learner, probabilities: Callable[[int], np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Tabulate the trained policies in each seat, `[D, N]` by name.

    Args:
        learner: of the players.
        probabilities: makes the table of a player.
    """
    players, cached = learner.players, cache(probabilities)
    return {
        agent: {players.names[player]: cached(player) for player in players.learners(slot)}
        for slot, agent in enumerate(learner.env.agents)
        if players.learners(slot)
    }


def exploitability_report(
    agents: tuple[str, ...],
    seats: Mapping[str, Mapping[str, np.ndarray]],
    ways: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    best_response_value: Callable[[np.ndarray, str], float],
    unit: str,
    perfect: str = "an equilibrium",
) -> Report:
    """Report the value of a best response to every policy, and its mean over both seats.

    Args:
        agents: the two players.
        seats: tables of the policies in each seat, by name.
        ways: of playing a table, by name.
        best_response_value: the most that the other seat can win against a table.
        unit: of exploitability in the headline, after a space; empty for none.
        perfect: what the headline calls play that nobody can exploit.

    Returns:
        `exploitability`: that of each way, and `best_response`, by way, seat and policy.
        `headline`: a line for each way.
    """
    other = dict(zip(agents, reversed(agents), strict=True))
    responses = {
        name: {
            agent: {
                player: best_response_value(way(policy), other[agent])
                for player, policy in policies.items()
            }
            for agent, policies in seats.items()
        }
        for name, way in ways.items()
    }
    exploitability = {
        name: float(np.mean([np.mean(list(values.values())) for values in found.values()]))
        for name, found in responses.items()
    }
    headline = [
        f"{name} policy: exact exploitability {value:.4f}{unit}"
        + (f" ({perfect})" if value < PERFECT else "")
        for name, value in exploitability.items()
    ]
    return {
        "exploitability": {**exploitability, "best_response": responses},
        "headline": headline,
    }
