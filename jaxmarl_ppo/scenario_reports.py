"""What an evaluation says beyond returns, for the environments whose optimum is known.

A report function gets an `Evaluation` and returns entries for the report, all of them plain data;
`headline`, a list of sentences, is what people are shown first. To add a scenario, write one such
function and enter it in `SCENARIOS`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.shuttle_dispatchers import DISPATCHERS, evaluate_dispatcher
from jaxmarl_envs.shuttle_grid import ShuttleGrid
from jaxmarl_envs.tic_tac_toe import State, TicTacToe
from jaxmarl_envs.tic_tac_toe_solver import MAX_CELLS, GameTable, Outcome
from jaxmarl_ppo.episodes import EpisodeTotals, play_episodes
from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.rollout import init_slots
from jaxmarl_ppo.scripted import make_random_script
from jaxmarl_ppo.types import Population, PyTree

Report = dict[str, Any]
PERFECT = 1e-9  # an exploitability below this is rounding


@dataclass(frozen=True)
class Evaluation:
    """What a report function has to go by."""

    learner: Learner
    env_params: PyTree
    population: Population
    totals: EpisodeTotals  # [episodes, A] each: the episodes played already
    greedy: bool  # how they were played
    key: jax.Array  # for what the function plays itself

    @property
    def num_episodes(self) -> int:
        """Episodes played already, and to be played again wherever a comparison needs it."""
        return len(self.totals.finished)


class Scenario(NamedTuple):
    """How an environment is evaluated."""

    env_type: type[MultiAgentEnv]
    report_fn: Callable[[Evaluation], Report]
    num_episodes: int  # unless the caller says otherwise


class MeanAndSE(TypedDict):
    """Mean and standard error."""

    mean: float
    se: float | None  # one value alone has none


def mean_and_se(values: ArrayLike) -> MeanAndSE:
    """Of `[n]` independent values."""
    values = np.asarray(values, np.float64)
    se = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None
    return {"mean": float(values.mean()), "se": se}


def plus_minus(mean: float, se: float | None, digits: int) -> str:
    """`25.1 ± 0.2`."""
    return f"{mean:.{digits}f}" + ("" if se is None else f" ± {se:.{digits}f}")


def report_tic_tac_toe(evaluation: Evaluation) -> Report:
    """Exploitability and results against scripted play, exact where the board can be solved."""
    env = evaluation.learner.env
    assert isinstance(env, TicTacToe)
    obstacle = why_not_exact(evaluation.learner)
    if obstacle is not None:
        return {"exploitability_note": obstacle, **_play_against_random(evaluation)}
    table = GameTable(env)
    players = evaluation.learner.players
    tables = {
        player: move_probabilities(
            evaluation.learner, evaluation.env_params, evaluation.population, table, player
        )
        for player in {q for slot in range(env.num_agents) for q in players.learners(slot)}
    }
    seats = {
        (agent, players.names[player]): tables[player]
        for slot, agent in enumerate(env.agents)
        for player in players.learners(slot)
    }
    ways = {"greedy": table.greedy, "stochastic": lambda policy: policy}
    by_seat = {
        name: {
            agent: {
                player: table.best_response_value(way(policy), _other(env, agent))
                for (seat, player), policy in seats.items()
                if seat == agent
            }
            for agent in dict.fromkeys(seat for seat, _ in seats)
        }
        for name, way in ways.items()
    }
    exploitability = {
        name: float(np.mean([np.mean(list(values.values())) for values in found.values()]))
        for name, found in by_seat.items()
    }
    first = {
        agent: tables[players.learners(slot)[0]]
        for slot, agent in enumerate(env.agents)
        if players.learners(slot)
    }
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
        f"{name} policy, exactly: {_results_in_words(opponents)}"
        for name, opponents in against.items()
    ]
    return {
        "exploitability": {**exploitability, "best_response": by_seat},
        "against": against,
        "headline": headline,
    }


def _other(env: TicTacToe, agent: str) -> str:
    return next(other for other in env.agents if other != agent)


def move_probabilities(
    learner: Learner, env_params: PyTree, population: Population, table: GameTable, player: int
) -> np.ndarray:
    """A network's move probabilities at every position, `[D, N]`, for `GameTable`.

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
    """Of every move `[D, N]` of the slots `mover [D]` in `states [D]`, were it `player`'s turn."""
    env, players = learner.env, learner.players
    assert isinstance(env, TicTacToe)
    num_positions = mover.shape[0]
    key = jax.random.key(0)
    slots = init_slots(env, env_params, players, population.league, key, num_positions)
    obs = jax.vmap(env.observe)(states)
    slots = slots.replace(obs=obs, player=jnp.full(slots.player.shape, player))
    uniform = obs.action_mask / obs.action_mask.sum(-1, keepdims=True)
    log_probs = jnp.log(uniform)
    banks = zip(players.banks, population.banks, slots.hidden, strict=True)
    for seats, stack, hidden in banks:
        encoder, distribution = seats.encoder, seats.bank.distribution
        row, plays = seats.rows(slots.player)
        asked = plays & encoder.own(obs.agent_mask)
        inputs, mask = encoder(obs, slots), encoder.action_mask(obs)
        fresh = encoder.own(slots.fresh)
        outputs = seats.bank.forward(stack, row, hidden, inputs, fresh, asked)[2]

        def log_prob(action, outputs=outputs, mask=mask, distribution=distribution) -> jax.Array:
            actions = jnp.broadcast_to(action, mask.shape[:2])
            return distribution.log_prob(outputs, mask, actions)

        own = jax.vmap(log_prob, out_axes=-1)(jnp.arange(env.num_cells))  # [D, S, N]
        log_probs = encoder.spread(own, log_probs, asked)
    return log_probs[jnp.arange(num_positions), mover]


def why_not_exact(learner: Learner) -> str | None:
    """Why a table of positions cannot say what these policies play; None if it can."""
    env = learner.env
    assert isinstance(env, TicTacToe)
    if env.num_cells > MAX_CELLS:
        return (
            f"left out: a {env.rows} x {env.cols} board has too many positions to list "
            f"(at most {MAX_CELLS} cells can be solved)"
        )
    if any(seats.bank.is_recurrent for seats in learner.players.banks):
        return "left out: a policy with memory does not play by the position alone"
    encoders = [seats.encoder for seats in learner.players.banks]
    if any(encoder.prev_action or encoder.prev_reward for encoder in encoders):
        return (
            "left out: a policy that sees its previous action or reward does not play by the "
            "position alone"
        )
    return None


def _exact_results(
    table: GameTable, policies: Mapping[str, np.ndarray]
) -> dict[str, dict[str, dict[str, float]]]:
    """Against random and minimax play, of each seat's policy."""

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
            jax.random.fold_in(evaluation.key, seat),
            evaluation.num_episodes,
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
    words = (
        f"{acting} policy, {evaluation.num_episodes:,} games in each seat: "
        f"{_results_in_words({'random': results})}"
    )
    note = f"by play, {evaluation.num_episodes} games in each seat"
    return {"against": {acting: {"random": results}}, "against_note": note, "headline": [words]}


def _results_in_words(opponents: dict[str, dict[str, dict[str, float]]]) -> str:
    """Wins / draws / losses of both seats against each opponent."""

    def in_percent(result: dict[str, float]) -> str:
        return " / ".join(f"{100 * result[name]:.1f}" for name in Outcome._fields)

    return (
        "; ".join(
            f"against {opponent} play "
            + ", ".join(f"as {seat} {in_percent(result)} %" for seat, result in results.items())
            for opponent, results in opponents.items()
        )
        + " (win / draw / loss)"
    )


def report_crypto(evaluation: Evaluation) -> Report:
    """How often the listeners name the goal."""
    agents = evaluation.learner.env.agents
    accuracy = {
        agent: mean_and_se(evaluation.totals.metrics["accuracy"][:, agents.index(agent)])["mean"]
        for agent in ("bob_0", "eve_0")
    }
    headline = (
        f"bob_0 names the goal at {100 * accuracy['bob_0']:.1f} % of the ticks, "
        f"eve_0 at {100 * accuracy['eve_0']:.1f} % (a perfect cipher: 100 % and 50 %)"
    )
    return {"accuracy": accuracy, "headline": [headline]}


def report_shuttle_grid(evaluation: Evaluation) -> Report:
    """Deliveries of a shift, beside those of the scripted dispatchers on as many shifts."""
    env = evaluation.learner.env
    assert isinstance(env, ShuttleGrid)
    team = mean_and_se(evaluation.totals.metrics["deliveries"][:, 0])
    max_steps = int(evaluation.env_params.max_steps)
    shifts = _dispatched_shifts(
        env, max_steps, evaluation.num_episodes, evaluation.env_params, evaluation.key
    )
    dispatchers = {name: mean_and_se(row) for name, row in zip(DISPATCHERS, shifts, strict=True)}
    best = max(dispatchers, key=lambda name: dispatchers[name]["mean"])
    headline = (
        f"{_deliveries_in_words(team)} deliveries per shift of "
        f"{max_steps} ticks; best scripted dispatcher ({best}) "
        f"{_deliveries_in_words(dispatchers[best])}"
    )
    return {"deliveries": {**team, "dispatchers": dispatchers}, "headline": [headline]}


@partial(jax.jit, static_argnums=(0, 1, 2))
def _dispatched_shifts(
    env: ShuttleGrid, max_steps: int, num_episodes: int, env_params: PyTree, key: jax.Array
) -> jax.Array:
    """Deliveries `[dispatchers, episodes]`.

    All dispatchers get the same starts and jobs, so their differences vary less; and all run
    through one compiled shift, since compiling costs more than running it.
    """
    env_params = env_params.replace(max_steps=max_steps)

    def evaluate(index: jax.Array) -> jax.Array:
        def dispatcher(*args: Any) -> jax.Array:
            return jax.lax.switch(index, tuple(DISPATCHERS.values()), *args)

        return evaluate_dispatcher(env, env_params, dispatcher, key, num_episodes)

    return jax.lax.map(evaluate, jnp.arange(len(DISPATCHERS)))


def _deliveries_in_words(stats: MeanAndSE) -> str:
    return plus_minus(stats["mean"], stats["se"], 2)


SCENARIOS: dict[str, Scenario] = {
    "crypto": Scenario(Crypto, report_crypto, 1024),
    "shuttle_grid": Scenario(ShuttleGrid, report_shuttle_grid, 256),
    "tic_tac_toe": Scenario(TicTacToe, report_tic_tac_toe, 1024),
}


def find_scenario(env: MultiAgentEnv) -> Scenario | None:
    """The entry for an environment; None where there is none, or the name is all they share."""
    scenario = SCENARIOS.get(env.name)
    return scenario if scenario and isinstance(env, scenario.env_type) else None
