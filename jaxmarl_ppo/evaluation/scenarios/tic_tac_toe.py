"""What an evaluation says about tic-tac-toe: exploitability, and results against scripted play."""

import dataclasses
from collections.abc import Mapping
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.tic_tac_toe import MAX_CELLS, GameTable, Outcome, State, TicTacToe
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.statistics import mean_and_se
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.ask import ask
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.types import Population, PyTree

PERFECT = 1e-9  # an exploitability below this is rounding


def report_tic_tac_toe(evaluation: Evaluation) -> Report:
    """Report exploitability and results against scripts, exact where the board can be solved."""
    env = evaluation.learner.env
    assert isinstance(env, TicTacToe)
    obstacle = why_not_exact(evaluation.learner)
    if obstacle is not None:
        return {"exploitability_note": obstacle, **_play_against_random(evaluation)}
    table = GameTable(env.board)
    seats = _policies_by_seat(evaluation, table)
    ways = {"greedy": table.greedy, "stochastic": lambda policy: policy}
    responses = {
        name: {
            agent: {
                player: table.best_response_value(way(policy), _other(env, agent))
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
    # Of several policies for a seat the first one stands for all.
    first = {agent: next(iter(policies.values())) for agent, policies in seats.items()}
    against = {
        name: _exact_results(table, {agent: way(policy) for agent, policy in first.items()})
        for name, way in ways.items()
    }
    headline = [
        f"{name} policy: exact exploitability {value:.4f}"
        + (" (perfect play)" if value < PERFECT else "")
        for name, value in exploitability.items()
    ]
    headline += [
        f"{name} policy, exactly, {words}"
        for name, opponents in against.items()
        for words in _results_in_words(opponents)
    ]
    return {
        "exploitability": {**exploitability, "best_response": responses},
        "against": against,
        "headline": headline,
    }


def _policies_by_seat(evaluation: Evaluation, table: GameTable) -> dict[str, dict[str, np.ndarray]]:
    """Tabulate the moves of the policies that learn in each seat, `[D, N]` by name."""
    learner = evaluation.learner
    players = learner.players

    @cache
    def probabilities(player: int) -> np.ndarray:
        return move_probabilities(
            learner, evaluation.env_params, evaluation.population, table, player
        )

    return {
        agent: {players.names[player]: probabilities(player) for player in players.learners(slot)}
        for slot, agent in enumerate(learner.env.agents)
        if players.learners(slot)
    }


def _other(env: TicTacToe, agent: str) -> str:
    return next(other for other in env.agents if other != agent)


def move_probabilities(
    learner: Learner, env_params: PyTree, population: Population, table: GameTable, player: int
) -> np.ndarray:
    """Compute a network's move probabilities at every position, `[D, N]`, for `GameTable`.

    It is asked in every seat that it can play; rows of other seats are uniform. It must not look at
    anything but the position.
    """
    states = jax.tree.map(lambda x: x[table.decisions], table.states())
    log_probs = _log_probabilities(
        learner, env_params, population, states, table.mover, jnp.int32(player)
    )
    return np.exp(np.asarray(log_probs, np.float64))


@partial(jax.jit, static_argnums=0)
def _log_probabilities(
    learner: Learner,
    env_params: PyTree,
    population: Population,
    states: State,
    mover: jax.Array,
    player: jax.Array,
) -> jax.Array:
    """Compute log-probabilities of all moves, `[D, N]`, were `player` to move in every state.

    `mover [D]` are the slots whose turn it is in `states [D]`.
    """
    env = learner.env
    assert isinstance(env, TicTacToe)
    num_positions = mover.shape[0]
    players, key = learner.players.without_fixed_members(), jax.random.key(0)
    state = init_rollout_state(env, env_params, players, population.league, key, num_positions)
    obs = jax.vmap(env.observe)(states)
    state = state.replace(obs=obs, player=jnp.full(state.player.shape, player))
    uniform = obs.action_mask / obs.action_mask.sum(-1, keepdims=True)
    log_probs = jnp.log(uniform)
    banks = zip(players.banks, population.banks, state.hidden, strict=True)
    for bank, stack, hidden in banks:
        response = ask(bank, stack, hidden, state, obs, obs.agent_mask)
        distribution = bank.network.distribution

        def log_prob(action, response=response, distribution=distribution) -> jax.Array:
            mask = response.action_mask
            actions = jnp.broadcast_to(action, mask.shape[:2])
            return distribution.log_prob(response.outputs, mask, actions)

        own = jax.vmap(log_prob, out_axes=-1)(jnp.arange(env.board.num_cells))  # [D, S, N]
        log_probs = bank.interface.spread(own, log_probs, response.asked)
    return log_probs[jnp.arange(num_positions), mover]


def why_not_exact(learner: Learner) -> str | None:
    """Say why a table of positions cannot hold what these policies play; None if it can."""
    assert isinstance(learner.env, TicTacToe)
    board = learner.env.board
    if board.num_cells > MAX_CELLS:
        return (
            f"left out: a {board.rows} x {board.cols} board has too many positions to list "
            f"(at most {MAX_CELLS} cells can be solved)"
        )
    if any(bank.network.is_recurrent for bank in learner.players.banks):
        return "left out: a policy with memory does not play by the position alone"
    interfaces = [bank.interface for bank in learner.players.banks]
    if any(interface.prev_action or interface.prev_reward for interface in interfaces):
        return (
            "left out: a policy that sees its previous action or reward does not play by the "
            "position alone"
        )
    return None


def _exact_results(
    table: GameTable, policies: Mapping[str, np.ndarray]
) -> dict[str, dict[str, dict[str, float]]]:
    """Compute each seat's exact results against random and against minimax play."""

    def result(agent: str, policy: np.ndarray, opponent: np.ndarray) -> dict[str, float]:
        if agent == "x":
            return table.expected_outcome(policy, opponent)._asdict()
        return Outcome(*reversed(table.expected_outcome(opponent, policy)))._asdict()

    opponents = {"random": table.uniform_policy(), "minimax": table.minimax_policy()}
    return {
        name: {agent: result(agent, policy, opponent) for agent, policy in policies.items()}
        for name, opponent in opponents.items()
    }


def _play_against_random(evaluation: Evaluation) -> Report:
    acting = "greedy" if evaluation.greedy else "stochastic"
    learner, agents = evaluation.learner, evaluation.learner.env.agents
    script = make_random_script(learner.env, evaluation.env_params)
    longest = max(learner.players.names, key=len)
    players = learner.players.with_scripts({f"not {longest}": script})  # a name that nobody has
    learner = dataclasses.replace(learner, players=players)
    results = {}
    for seat, agent in enumerate(agents):
        if not players.learners(seat):
            continue
        totals = play_episodes(
            learner,
            evaluation.population,
            evaluation.num_episodes,
            jax.random.fold_in(evaluation.key, seat),
            evaluation.greedy,
            env_params=evaluation.env_params,
            players=np.array(
                [
                    players.learners(seat)[0] if slot == seat else players.num_players - 1
                    for slot in range(len(agents))
                ]
            ),
        )
        metrics = jax.device_get(totals.metrics)
        results[agent] = {
            name: mean_and_se(metrics[name][:, seat])["mean"] for name in Outcome._fields
        }
    against = {"random": results}
    (words,) = _results_in_words(against)
    headline = [f"{acting} policy, {evaluation.num_episodes:,} games in each seat, {words}"]
    note = f"by play, {evaluation.num_episodes} games in each seat"
    return {"against": {acting: against}, "against_note": note, "headline": headline}


def _results_in_words(opponents: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Write wins, draws and losses of both seats, a line for each opponent."""

    def in_percent(result: dict[str, float]) -> str:
        return " / ".join(f"{100 * result[name]:.1f}" for name in Outcome._fields)

    return [
        f"against {opponent}: "
        + ", ".join(f"{seat} {in_percent(result)} %" for seat, result in results.items())
        + " (win / draw / loss)"
        for opponent, results in opponents.items()
    ]
