"""Evaluation against exact game values, against step-by-step play, and on lives of its own."""

import dataclasses
import functools
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from probe_envs import RandomLives
from run_folders import leave_run

import jaxmarl_envs
from jaxmarl_envs import Box, Discrete, MultiAgentEnv, Observation
from jaxmarl_envs.shuttle_grid import DISPATCHERS
from jaxmarl_envs.tic_tac_toe import GameTable
from jaxmarl_ppo.config.mapping import Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation import evaluate
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies, evaluate_run
from jaxmarl_ppo.evaluation.scenarios import tic_tac_toe as tic_tac_toe_report
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation
from jaxmarl_ppo.evaluation.scenarios.registry import SCENARIOS, find_scenario, matches
from jaxmarl_ppo.evaluation.scenarios.shuttle_grid import yardsticks
from jaxmarl_ppo.evaluation.scenarios.tic_tac_toe import (
    move_probabilities,
    report_tic_tac_toe,
    why_not_exact,
)
from jaxmarl_ppo.evaluation.tables import format_report
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.types import Moments

MLP8, LSTM8 = MLP(hidden_sizes=(8,)), LSTM(hidden_sizes=(8,), lstm_size=8)
UNIFORM_EXPLOITABILITY = 0.959830
SIGMAS = 4.5
GAMES = 4096
# What every report says of how it was made.
MADE_AS = ("episodes", "seed", "unfinished")


def make_config(network=MLP8, mapping="shared", policies=None, **spec):
    return TrainConfig(
        num_envs=2,
        num_steps=8,
        mapping=mapping,
        default_policy=PolicySpec(network=network, **spec),
        policies=policies or {},
    )


def make_player(env, params, network=MLP8, mapping="shared", head=100.0, **spec):
    """A learner with fresh policies whose policy heads are multiplied by `head`."""
    config = make_config(network, mapping, **spec)
    learner = make_learner(env, params, config, strict=False)
    initial = jax.jit(learner.init_population)(jax.random.key(7))
    player = SimpleNamespace(
        env=env, params=params, learner=learner, population=initial, config=config
    )
    return with_head(player, head)


def with_head(player, factor):
    """The same learner, so what is compiled stays; 0 makes all actions equally likely."""

    def scale(stack):
        scaled = jax.tree.map(lambda x: factor * x, stack.params["policy_head"])
        return stack.replace(params={**stack.params, "policy_head": scaled})

    groups = tuple(scale(stack) for stack in player.population.policy_groups)
    return changed(player, population=player.population.replace(policy_groups=groups))


def changed(player, **changes):
    return SimpleNamespace(**{**vars(player), **changes})


def with_scripts(player, **scripts):
    """The same with scripted players that no mapping draws."""
    players = player.learner.players.with_scripts(scripts)
    return changed(player, learner=dataclasses.replace(player.learner, players=players))


def number_of(player, name):
    """A player's, by its name."""
    return player.learner.players.names.index(name)


def evaluate_player(player, **kwargs):
    report = evaluate_policies(
        player.learner, player.population, env=player.env, env_params=player.params, **kwargs
    )
    scenario, every_report = find_scenario(player.env), ("all", "agents", *MADE_AS)
    for path, _ in scalars(report):
        if path.partition("/")[0] not in every_report:
            assert any(matches(path, each) for each in scenario.numbers), path
    return report


def play(player, seed, episodes, **kwargs):
    key = jax.random.key(seed)
    return jax.device_get(play_episodes(player.learner, player.population, episodes, key, **kwargs))


def moves_of(player, table, name):
    """One player's move probabilities."""
    return move_probabilities(
        player.learner, player.params, player.population, table, number_of(player, name)
    )


def assert_mean(values, expected):
    """The mean of independent values is what it should be, as far as its error allows."""
    values = np.asarray(values, float)
    assert abs(values.mean() - expected) < SIGMAS * values.std(ddof=1) / np.sqrt(values.size)


@pytest.fixture(scope="module")
def board():
    return jaxmarl_envs.make("tic_tac_toe")


@pytest.fixture(scope="module")
def table(board):
    return GameTable(board[0].board)


@pytest.fixture(scope="module")
def shared(board):
    return make_player(*board)


@pytest.fixture(scope="module")
def seats(board):
    """A policy for each seat, its own identity among the inputs, and a normaliser at work."""
    player = make_player(
        *board, mapping="per_agent", append_agent_id=True, normalise_observations=True
    )
    shape = (2, *player.learner.players.policy_groups[0].network.input_shape)
    key_mean, key_var = jax.random.split(jax.random.key(1))
    moments = Moments(
        count=jnp.full(2, 100.0),
        mean=jax.random.uniform(key_mean, shape),
        var=jax.random.uniform(key_var, shape, minval=0.5, maxval=2.0),
    )
    (stack,) = player.population.policy_groups
    stack = stack.replace(obs_moments=moments)
    return changed(player, population=player.population.replace(policy_groups=(stack,)))


@pytest.fixture(scope="module")
def unequal(board):
    """A network of its own shape for each seat, so that there are two policy groups."""
    policies = {"o": PolicySpec(network=MLP(hidden_sizes=(4, 4)), append_agent_id=True)}
    player = make_player(*board, mapping="per_agent", policies=policies)
    assert [group.interface.slots for group in player.learner.players.policy_groups] == [(0,), (1,)]
    return player


@pytest.fixture(scope="module")
def shared_games(shared):
    return play(shared, 0, GAMES)


@pytest.fixture(scope="module")
def shared_policy(shared, table):
    return moves_of(shared, table, "shared")


@pytest.fixture(scope="module")
def shared_and_random(shared):
    return with_scripts(shared, random=make_random_script(shared.env, shared.params))


@pytest.fixture(scope="module")
def small_shuttle():
    return jaxmarl_envs.make(
        "shuttle_grid", num_shuttles=3, num_rows=2, num_cols=4, ports=((0, 2),), max_steps=48
    )


# --- Tic-tac-toe: exact


def by_hand(player, table, decision):
    """Who moves at one position and with what probabilities, in NumPy from the network's logits."""
    features, action_mask = map(np.asarray, table.observations())
    seat, players = int(table.mover[decision]), player.learner.players
    name = players.policies[players.mapping.candidates[seat][0]]
    groups = zip(players.policy_groups, player.population.policy_groups, strict=True)
    group, stack = next((group, stack) for group, stack in groups if seat in group.interface.slots)
    policy = jax.tree.map(lambda x: x[number_of(player, name) - group.first_player], stack)
    inputs = features[decision]
    if group.interface.agent_id:
        inputs = np.concatenate([inputs, np.eye(2)[seat]])
    if policy.obs_moments is not None:
        moments = policy.obs_moments
        inputs = (inputs - moments.mean) / np.sqrt(moments.var)
    logits = np.asarray(group.network.module.apply({"params": policy.params}, (), inputs)[1])
    exp = np.where(action_mask[decision], np.exp(logits - logits.max()), 0.0)
    return name, exp / exp.sum()


def check_by_hand(player, table):
    moves = {name: moves_of(player, table, name) for name in player.learner.players.names}
    spread = []
    for decision in (0, 5, 100, 2000, table.num_decisions - 1):
        name, expected = by_hand(player, table, decision)
        np.testing.assert_allclose(moves[name][decision], expected, atol=1e-4)
        spread.append(np.ptp(expected[table.action_mask[decision]]))
    assert max(spread) > 0.1  # the network has an opinion, so the comparison says something
    for probabilities in moves.values():
        assert probabilities[~table.action_mask].max() == 0


def test_move_probabilities_are_the_networks_own(shared, table):
    check_by_hand(shared, table)


def test_each_seat_has_its_own_policy_inputs_and_normaliser(seats, table):
    check_by_hand(seats, table)


def test_a_network_of_its_own_shape_for_each_seat(unequal, table):
    check_by_hand(unequal, table)


def test_planes_through_convolutions():
    env, params = jaxmarl_envs.make("tic_tac_toe", planes=True)
    player = make_player(env, params, CNN(channels=(4,), hidden_sizes=(8,)), head=200.0)
    check_by_hand(player, GameTable(env.board))


@pytest.mark.parametrize("mapping", ["shared", "seats", "unequal"])
def test_uniform_play_has_its_known_figures(mapping, table, request):
    player = with_head(request.getfixturevalue(mapping), 0.0)
    report = evaluate_player(player, episodes=GAMES)
    assert report["exploitability"]["stochastic"] == pytest.approx(UNIFORM_EXPLOITABILITY, abs=2e-6)
    random = report["against"]["stochastic"]["random"]
    assert random["x"] == pytest.approx(
        {"win": 0.584921, "draw": 0.126984, "loss": 0.288095}, abs=2e-6
    )
    assert random["o"] == pytest.approx(
        {"win": 0.288095, "draw": 0.126984, "loss": 0.584921}, abs=2e-6
    )
    # All logits alike: the greedy policy takes the first empty cell.
    first = table.greedy(table.uniform_policy())
    assert report["exploitability"]["greedy"] == table.exploitability(first)
    minimax = table.expected_outcome(first, table.minimax_policy())._asdict()
    assert report["against"]["greedy"]["minimax"]["x"] == pytest.approx(minimax)


def test_reported_table_is_that_of_the_network(shared, shared_policy, table):
    report = evaluate_player(shared, episodes=GAMES)
    ways = {"greedy": table.greedy(shared_policy), "stochastic": shared_policy}
    # What the opponent in the other seat can get.
    responses = {
        name: {
            "x": {"shared": table.best_response_value(policy, "o")},
            "o": {"shared": table.best_response_value(policy, "x")},
        }
        for name, policy in ways.items()
    }
    assert report["exploitability"] == {
        "greedy": table.exploitability(ways["greedy"]),
        "stochastic": table.exploitability(shared_policy),
        "best_response": responses,
    }
    stochastic = responses["stochastic"]
    assert abs(stochastic["x"]["shared"] - stochastic["o"]["shared"]) > 1e-3
    minimax = table.expected_outcome(table.minimax_policy(), shared_policy)
    assert report["against"]["stochastic"]["minimax"]["o"] == pytest.approx(
        {"win": minimax.loss, "draw": minimax.draw, "loss": minimax.win}
    )


@pytest.mark.parametrize("mapping", ["seats", "unequal"])
def test_each_policy_is_exploited_in_its_own_seat(mapping, table, request):
    player = request.getfixturevalue(mapping)
    report = evaluate_player(player, episodes=GAMES)
    x, o = moves_of(player, table, "x"), moves_of(player, table, "o")
    for name, way in (("greedy", table.greedy), ("stochastic", lambda policy: policy)):
        of_x, of_o = (table.best_response_value(way(policy), other) for policy, other in
                      ((x, "o"), (o, "x")))  # fmt: skip
        found = report["exploitability"]["best_response"][name]
        assert found == {"x": {"x": of_x}, "o": {"o": of_o}}
        assert report["exploitability"][name] == (of_x + of_o) / 2
        minimax = table.minimax_policy()
        against = report["against"][name]["minimax"]
        assert against["x"] == table.expected_outcome(way(x), minimax)._asdict()
        outcome = table.expected_outcome(minimax, way(o))
        assert against["o"] == {"win": outcome.loss, "draw": outcome.draw, "loss": outcome.win}
    assert abs(of_x - of_o) > 1e-3


def exact_report(player):
    """What needs no episodes."""
    key = jax.random.key(0)
    args = (player.learner, player.params, player.population, None, False, key)
    return report_tic_tac_toe(Evaluation(*args))


def test_all_members_of_an_ensemble_are_exploited(board, table):
    player = make_player(*board, mapping={"x": ["a", "b"], "o": "a"})
    report = exact_report(player)["exploitability"]
    a, b = moves_of(player, table, "a"), moves_of(player, table, "b")
    of_a, of_b = table.best_response_value(a, "o"), table.best_response_value(b, "o")
    as_o = table.best_response_value(a, "x")
    found = report["best_response"]["stochastic"]
    assert found == {"x": {"a": of_a, "b": of_b}, "o": {"a": as_o}}
    assert report["stochastic"] == pytest.approx(((of_a + of_b) / 2 + as_o) / 2, abs=1e-12)
    assert of_a != of_b


LEAGUE = {
    "mapping": Matchups(({"x": "main", "o": "past"}, {"x": "past", "o": "main"})),
    "policies": {"past": Snapshots("main", size=2, add_every=1)},
}


def test_snapshots_are_not_what_is_exploited(board, table):
    player = make_player(*board, **LEAGUE)
    found = exact_report(player)["exploitability"]["best_response"]
    moves = moves_of(player, table, "main")
    assert found["stochastic"] == {
        "x": {"main": table.best_response_value(moves, "o")},
        "o": {"main": table.best_response_value(moves, "x")},
    }


@pytest.fixture(scope="module")
def against_script(board):
    """A network as x, random play as o."""
    policies = {"dice": Scripted("random")}
    return make_player(*board, mapping={"x": "main", "o": "dice"}, policies=policies)


@pytest.mark.rare
def test_a_seat_that_nobody_learns_is_left_out(against_script, table, monkeypatch):
    report = evaluate_player(against_script, episodes=GAMES)
    moves = moves_of(against_script, table, "main")
    value = table.best_response_value(moves, "o")
    assert report["exploitability"]["stochastic"] == value
    assert report["exploitability"]["best_response"]["stochastic"]["x"] == {"main": value}
    outcome = table.expected_outcome(moves, table.uniform_policy())._asdict()
    assert report["against"]["stochastic"]["random"] == {"x": outcome}
    assert "as o" not in format_report(report)
    monkeypatch.setattr(tic_tac_toe_report, "why_not_exact", lambda learner: "left out: no reason")
    report = evaluate_player(against_script, episodes=64)
    assert report["against"]["stochastic"]["random"].keys() == {"x"}


# --- Tic-tac-toe: by play


def expected_length(table, policy):
    """Plies of a game, exactly: the probabilities of getting to each decision, added up."""
    reached = np.zeros(table.num_positions)
    reached[0] = 1.0
    for d, position in enumerate(table.decisions):  # in order of plies
        legal = table.action_mask[d]
        np.add.at(reached, table.successor[d, legal], reached[position] * policy[d, legal])
    return reached[table.decisions].sum()


def test_returns_and_lengths_are_those_of_the_exact_game(shared_games, shared_policy, table):
    outcome = table.expected_outcome(shared_policy, shared_policy)
    assert_mean(shared_games.metrics["win"][:, 0], outcome.win)
    assert_mean(shared_games.metrics["draw"][:, 0], outcome.draw)
    assert_mean(shared_games.returns[:, 0], outcome.win - outcome.loss)
    np.testing.assert_array_equal(shared_games.returns[:, 1], -shared_games.returns[:, 0])
    # Games that were taken as they end, over boards that begin anew, would be too short here.
    assert shared_games.lengths.std() > 0.5
    assert_mean(shared_games.lengths[:, 0], expected_length(table, shared_policy))
    assert shared_games.finished.all()
    assert (shared_games.lives == 1).all()


@pytest.mark.parametrize("seat", ["x", "o"])
def test_random_agents_draw_from_their_legal_moves(shared_and_random, shared_policy, table, seat):
    policies, players = [shared_policy, shared_policy], [0, 0]
    slot = shared_and_random.env.agents.index(seat)
    policies[slot], players[slot] = table.uniform_policy(), number_of(shared_and_random, "random")
    outcome = table.expected_outcome(*policies)
    games = play(shared_and_random, 1, GAMES, players=np.array(players))
    assert_mean(games.metrics["win"][:, 0], outcome.win)
    assert_mean(games.metrics["loss"][:, 0], outcome.loss)


def test_every_episode_can_have_players_of_its_own(shared_and_random, shared_policy, table):
    random = number_of(shared_and_random, "random")
    half = GAMES // 2
    players = np.repeat([[0, random], [random, 0]], half, axis=0)  # [episodes, A]
    games = play(shared_and_random, 2, GAMES, players=players)
    uniform = table.uniform_policy()
    for rows, policies in (
        (slice(0, half), (shared_policy, uniform)),
        (slice(half, None), (uniform, shared_policy)),
    ):
        outcome = table.expected_outcome(*policies)
        assert_mean(games.metrics["win"][rows, 0], outcome.win)
        assert_mean(games.metrics["loss"][rows, 0], outcome.loss)


def test_greedy_play_draws_nothing(shared, shared_games, table, shared_policy):
    greedy = [play(shared, seed, 64, greedy=True) for seed in (0, 1)]
    best = table.greedy(shared_policy)
    outcome = table.expected_outcome(best, best)
    for games in greedy:
        assert (games.lengths == expected_length(table, best)).all()
        assert (games.returns[:, 0] == outcome.win - outcome.loss).all()
    assert np.ptp(shared_games.lengths) > 0


def test_reports_by_play_agree_with_exact_ones(shared, monkeypatch):
    exact = evaluate_player(shared, episodes=GAMES)["against"]["stochastic"]["random"]
    monkeypatch.setattr(tic_tac_toe_report, "why_not_exact", lambda learner: "left out: no reason")
    report = evaluate_player(shared, episodes=GAMES)
    assert "exploitability" not in report
    assert report["exploitability_note"] == "left out: no reason"
    assert "4096 games" in report["against_note"]
    assert "exploitability left out: no reason" in format_report(report)
    played = report["against"]["stochastic"]["random"]
    for seat in ("x", "o"):
        for name, p in exact[seat].items():
            error = np.sqrt(p * (1 - p) / GAMES)
            assert abs(played[seat][name] - p) < SIGMAS * error
        assert abs(exact[seat]["win"] - exact[seat]["loss"]) > 0.1  # so that seats can be told


def test_there_is_no_table_where_play_depends_on_more_than_a_listed_position(board, seats):
    large = make_learner(*jaxmarl_envs.make("tic_tac_toe", size=4), make_config())
    rewarded = make_learner(*board, make_config(prev_reward=True))
    recurrent = make_learner(*board, make_config(LSTM8))
    assert why_not_exact(seats.learner) is None
    assert "memory" in why_not_exact(recurrent)
    assert "4 x 4 board" in why_not_exact(large)
    assert "previous action or reward" in why_not_exact(rewarded)


# --- Crypto and shuttles


def test_crypto_by_chance():
    report = evaluate_player(make_player(*jaxmarl_envs.make("crypto"), head=0.0))
    agents = report["agents"]
    assert report["episodes"] >= 1000
    for name, expected in (("eve_0", -37.5), ("bob_0", 0.0), ("alice_0", 0.0)):
        assert abs(agents[name]["return_mean"] - expected) < SIGMAS * agents[name]["return_se"]
        assert 0.05 < agents[name]["return_se"] < 0.5
        assert agents[name]["length_mean"] == 25
    # 24 guesses an episode, each right with probability 1 / 4.
    error = np.sqrt(0.25 * 0.75 / (24 * report["episodes"]))
    assert report["accuracy"] == pytest.approx({"bob_0": 0.25, "eve_0": 0.25}, abs=SIGMAS * error)
    assert report["accuracy"]["bob_0"] == agents["bob_0"]["accuracy"]


@pytest.mark.rare
def test_shuttles_beside_their_dispatchers(small_shuttle):
    env, params = small_shuttle
    report = evaluate_player(make_player(env, params, head=0.0), episodes=64)
    deliveries = report["deliveries"]
    dispatchers = deliveries["dispatchers"]
    assert list(dispatchers) == list(DISPATCHERS)
    assert dispatchers["hold"] == {"mean": 0.0, "se": 0.0}
    assert dispatchers["greedy"]["mean"] > dispatchers["uniform"]["mean"] > 0
    assert deliveries["mean"] == report["agents"]["shuttle_1"]["return_mean"] > 0
    (headline,) = report["headline"]  # of a hall of one's own nothing else is known
    assert "best scripted dispatcher" in headline


def test_what_is_known_of_the_hall_as_it_comes():
    env, params = jaxmarl_envs.make("shuttle_grid")
    (sentence,) = yardsticks(env, params.max_steps)
    assert sentence == (
        "known of this hall: central planner over it 25.2; if shuttles met at the ports only 26.3"
    )
    assert yardsticks(env, 64) == []
    smaller, _ = jaxmarl_envs.make("shuttle_grid", num_shuttles=4)
    assert yardsticks(smaller, params.max_steps) == []


# --- Memory


class Attentive(RandomLives):
    """Waits, deaths, rebirths and late joins; whatever those who wait are said to do is ignored."""

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return obs, (state, obs.agent_mask)

    def step_env(self, key, state, action, params):
        state, acts = state
        obs, state, *rest = super().step_env(key, state, jnp.where(acts, action, 0), params)
        return obs, (state, obs.agent_mask), *rest


def play_in_steps(player, reset_key, step_keys, functions):
    """One greedy episode in plain Python, one agent at a time through `forward`."""
    reset, step, forward = functions
    (group,), (stack,) = player.learner.players.policy_groups, player.population.policy_groups
    num_agents, width = player.env.num_agents, group.interface.action_width
    only = np.zeros((1, 1), np.int32)
    obs, state = jax.device_get(reset(reset_key, player.params))
    hidden = [jax.device_get(group.network.initial_hidden((1, 1)))] * num_agents
    extras = np.zeros((num_agents, width + 1), np.float32)  # previous action, then reward since
    decided = np.zeros(num_agents, bool)
    returns, lengths = np.zeros(num_agents), np.zeros(num_agents)
    for key in step_keys:
        action = np.zeros(num_agents, np.int32)
        for i in np.flatnonzero(obs.agent_mask):
            inputs = np.concatenate([obs.features[i], extras[i]])[None, None]
            is_first, acting = np.full((1, 1), not decided[i]), np.ones((1, 1), bool)
            hidden[i], _, logits, _ = forward(stack, only, hidden[i], inputs, is_first, acting)
            action[i] = np.where(obs.action_mask[i], logits[0, 0], -np.inf).argmax()
            extras[i] = np.append(np.eye(width)[action[i]], 0.0)
            decided[i] = True
        lengths += obs.alive
        obs, state, reward, terminated, truncated, info = jax.device_get(
            step(key, state, action, player.params)
        )
        returns += reward
        extras[decided, -1] += reward[decided]
        ended = terminated | truncated
        extras[ended], decided[ended] = 0.0, False
        if info["episode_over"]:
            break
    return returns, lengths


def test_memory_and_extra_inputs_are_those_of_plain_play():
    env = Attentive()
    player = make_player(env, env.default_params, LSTM8, prev_action=True, prev_reward=True)
    num_episodes = 8
    totals = play(player, 3, num_episodes, greedy=True)
    key_reset, key_steps = jax.random.split(jax.random.key(3))
    reset_keys = jax.random.split(jax.random.split(key_reset)[0], num_episodes)
    step_keys = [
        jax.random.split(jax.random.split(jax.random.fold_in(key_steps, t), 4)[0], num_episodes)
        for t in range(env.max_steps)
    ]
    (group,) = player.learner.players.policy_groups
    functions = jax.jit(env.reset_env), jax.jit(env.step), jax.jit(group.network.forward)
    for episode, reset_key in enumerate(reset_keys):
        keys = [keys[episode] for keys in step_keys]
        returns, lengths = play_in_steps(player, reset_key, keys, functions)
        np.testing.assert_allclose(totals.returns[episode], returns, atol=1e-5)
        np.testing.assert_array_equal(totals.lengths[episode], lengths)
    # Agents were paid and reborn, so that took part.
    assert totals.lengths.sum() > 100
    assert (totals.lives > 1).sum() > 5


# --- Lives that come and go


@struct.dataclass
class TimetableState:
    time: jax.Array  # []
    joins: jax.Array  # [] bool: whether `late` comes in this episode


class Timetable(MultiAgentEnv[TimetableState, None]):
    """Four steps, 1 for every step alive. No horizon is named, and `endless` really has no end.

    `steady` lives through it, `twice` dies at step 2 and is reborn at once, `late` lives at steps 3
    and 4 of every other episode or so, `never` never.
    """

    name = "timetable"
    agents = ("steady", "twice", "late", "never")

    def __init__(self, endless: bool = False):
        self.endless = endless

    @property
    def default_params(self):
        return None

    def observation_space(self, agent, params):
        return Box(0.0, 4.0, (1,))

    def action_space(self, agent, params):
        return Discrete(2)

    def alive(self, state):
        """`[A]` bool, after `time` steps."""
        late = state.joins & (state.time >= 2)
        alive = jnp.stack([jnp.bool_(True), jnp.bool_(True), late, jnp.bool_(False)])
        return alive & ((state.time < 4) | self.endless)

    def observe(self, state):
        alive = self.alive(state)
        features = jnp.broadcast_to(state.time.astype(jnp.float32), (4, 1))
        return Observation(features, jnp.ones((4, 2), bool), alive, alive)

    def reset_env(self, key, params):
        state = TimetableState(jnp.int32(0), jax.random.bernoulli(key))
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        after = state.replace(time=state.time + 1)
        alive = self.alive(state)
        dies = jnp.array([False, True, False, False]) & (after.time == 2)
        terminated = alive & (dies | ~self.alive(after))
        info = {"metrics": {"double": 2.0 * alive, "acted": 1.0 * alive * action}}
        reward = alive.astype(jnp.float32)
        return self.observe(after), after, reward, terminated, jnp.zeros(4, bool), info


@pytest.fixture(scope="module")
def timetable():
    return make_player(Timetable(), None)


@pytest.fixture(scope="module")
def timetable_report(timetable):
    return evaluate_player(timetable, seed=5)


def test_agents_are_counted_in_the_episodes_that_they_live_in(timetable_report):
    agents = timetable_report["agents"]
    constant = {"return_mean": 4.0, "return_se": 0.0, "return_min": 4.0, "return_max": 4.0}
    constant |= {"length_mean": 4.0, "double": 8.0}
    assert timetable_report["episodes"] == 256
    assert constant.items() <= agents["steady"].items()
    assert constant.items() <= agents["twice"].items()
    assert (agents["steady"]["lives_mean"], agents["twice"]["lives_mean"]) == (1.0, 2.0)
    assert agents["never"] == {"episodes": 0}
    assert 80 < agents["late"]["episodes"] < 176
    assert agents["late"]["return_mean"] == agents["late"]["length_mean"] == 2.0
    assert "unfinished" not in timetable_report


def test_all_agents_of_an_episode_earn_a_return_together(shared, timetable_report):
    agents = timetable_report["agents"].values()
    episodes = timetable_report["episodes"]
    expected = sum(
        row["return_mean"] * row.get("episodes", episodes) / episodes
        for row in agents
        if "return_mean" in row
    )
    assert timetable_report["all"]["return_mean"] == pytest.approx(expected)
    board = evaluate_player(shared, episodes=GAMES)["all"]
    assert set(board.values()) == {0}  # to the digit


def test_episodes_without_an_end_are_cut_off_and_flagged(timetable, monkeypatch):
    env = Timetable(endless=True)
    cut = functools.partial(play_episodes, max_steps=7)
    monkeypatch.setattr(evaluate, "play_episodes", cut)
    report = evaluate_policies(timetable.learner, timetable.population, 16, env=env)
    assert report["unfinished"] == 16
    assert report["agents"]["steady"]["return_mean"] == 7.0
    assert report["agents"]["twice"]["lives_mean"] == 2.0
    assert report["agents"]["late"]["lives_mean"] == 1.0
    assert "16 episodes were not over after 7 steps" in format_report(report)


# --- Players drawn or given


def always(action):
    def script(state, obs, params, key):
        return jnp.full(obs.alive.shape, action)

    return script


@pytest.fixture(scope="module")
def scripted():
    """`steady` is a network's, the others do 1 all their life, or 0, three to one."""
    policies = {"one": Scripted(always(1)), "zero": Scripted(always(0))}
    mapping = {"steady": "main", "*": {"one": 3.0, "zero": 1.0}}
    return make_player(Timetable(), None, mapping=mapping, policies=policies)


def test_players_are_drawn_as_in_training_for_every_life(scripted):
    totals = play(scripted, 0, GAMES)
    acted = totals.metrics["acted"]
    twice = acted[:, 1]  # two lives of two steps
    for value, p in ((0, 1 / 16), (2, 6 / 16), (4, 9 / 16)):
        assert_mean(twice == value, p)
    assert set(np.unique(twice)) == {0, 2, 4}
    late = acted[totals.lives[:, 2] > 0, 2]
    assert_mean(late == 2, 3 / 4)
    assert set(np.unique(late)) == {0, 2}


def test_given_players_are_kept_for_the_whole_episode(scripted):
    main, one, zero = (number_of(scripted, name) for name in ("main", "one", "zero"))
    totals = play(scripted, 0, 64, players=np.array([zero, one, one, one]))
    acted = totals.metrics["acted"]
    assert (acted[:, 0] == 0).all()
    np.testing.assert_array_equal(acted[:, 1:], totals.lengths[:, 1:])
    assert (totals.lives[:, 1] == 2).all()
    # A network may sit on any slot that its policy group covers.
    assert scripted.learner.players.able(0) == [main, one, zero]
    assert scripted.learner.players.able(1) == [one, zero]


def test_a_player_that_cannot_hold_a_slot_is_refused(scripted, shared, unequal):
    with pytest.raises(
        ValueError, match=r"player main cannot play agent 'twice'; valid: one, zero$"
    ):
        play(scripted, 0, 4, players=np.array([0, 0, 1, 1]))
    for wrong in (3, -1):
        with pytest.raises(
            ValueError, match=f"player number {wrong} cannot play agent 'late'; valid: one, zero$"
        ):
            play(scripted, 0, 4, players=np.array([0, 1, wrong, 1]))
    rows = np.array([[0, 1, 1, 1], [0, 1, 1, 0]])
    with pytest.raises(ValueError, match="player main cannot play agent 'never'"):
        play(scripted, 0, 2, players=rows)
    with pytest.raises(ValueError, match=r"player x cannot play agent 'o'; valid: o$"):
        play(unequal, 0, 4, players=np.array([0, 0]))
    with pytest.raises(ValueError, match="there is a player 'shared' already"):
        with_scripts(shared, shared=always(0))


# --- Reports


def test_reports_are_plain_data_and_the_seed_decides(timetable, timetable_report, shared):
    assert json.loads(json.dumps(timetable_report, allow_nan=False)) == timetable_report
    assert evaluate_player(timetable, seed=5) == timetable_report
    assert evaluate_player(timetable, seed=6) != timetable_report
    exact = evaluate_player(shared, episodes=GAMES, seed=np.int64(0))
    assert json.loads(json.dumps(exact, allow_nan=False)) == exact
    assert (exact["env"], exact["acting"]) == ("tic_tac_toe", "sample")


def test_one_episode_has_no_standard_error(timetable):
    report = evaluate_player(timetable, episodes=1)
    assert report["agents"]["steady"]["return_se"] is None
    assert " ± " not in format_report(report)


def test_a_report_in_words(shared, timetable_report):
    report = evaluate_player(shared, episodes=GAMES)
    report["headline"][0] = "greedy policy: [bold] exact"
    text = format_report(report)
    assert text.startswith("tic_tac_toe: 4,096 episodes, sampled actions, seed 0\n")
    assert "greedy policy: [bold] exact" in text
    assert "stochastic policy: exact exploitability " in text
    x = next(line for line in text.splitlines() if line.split()[:1] == ["x"])
    stats = report["agents"]["x"]
    assert x.split()[1:4] == [f"{stats['return_mean']:.3f}", "±", f"{stats['return_se']:.3f}"]
    *_, never, together = (line.split() for line in format_report(timetable_report).splitlines())
    stats = timetable_report["all"]
    assert together[:2] == ["together", f"{stats['return_mean']:.3f}"]
    assert never[0] == "never"
    assert set(never[1:]) == {"-", "0"}


def test_perfect_play_is_called_so(shared, table, monkeypatch):
    monkeypatch.setattr(
        tic_tac_toe_report, "move_probabilities", lambda *args: table.minimax_policy()
    )
    report = evaluate_player(shared, episodes=GAMES)
    assert report["headline"][0] == "greedy policy: exact exploitability 0.0000 (perfect play)"
    assert report["against"]["greedy"]["minimax"]["x"] == {"win": 0.0, "draw": 1.0, "loss": 0.0}
    assert report["against"]["stochastic"]["random"]["x"]["loss"] == 0.0


def test_every_scenario_is_an_environment_with_a_default():
    assert SCENARIOS.keys() <= set(jaxmarl_envs.names())
    for name, scenario in SCENARIOS.items():
        env, _ = jaxmarl_envs.make(name)
        assert find_scenario(env) is scenario
    imposter = Timetable()
    imposter.name = "crypto"
    assert find_scenario(imposter) is None


def test_a_saved_run(tmp_path):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
    player = make_player(env, params)
    leave_run(tmp_path, player.learner, player.config, player.population)
    report = evaluate_run(tmp_path, episodes=8, seed=3, greedy=True)
    assert report == evaluate_player(player, episodes=8, seed=3, greedy=True)
    assert (report["episodes"], report["acting"], report["seed"]) == (8, "greedy", 3)


@pytest.mark.parametrize("episodes", [0, -3, 1.5, True, "10"])
def test_no_episodes_no_evaluation(timetable, episodes, tmp_path):
    with pytest.raises(ValueError, match="episodes must be a whole number of at least 1"):
        evaluate_player(timetable, episodes=episodes)
    with pytest.raises(ValueError, match="episodes must be a whole number of at least 1"):
        evaluate_run(tmp_path / "absent", episodes=episodes)
    with pytest.raises(ValueError, match="episodes must be a whole number of at least 1"):
        play(timetable, 0, episodes)


def test_other_agents_than_the_policies_know(timetable, board, tmp_path):
    with pytest.raises(ValueError, match="agents x, o, but the policies were made for steady"):
        evaluate_policies(timetable.learner, timetable.population, env=board[0])
    with pytest.raises(ValueError, match="must be a Learner, got TicTacToe; the order"):
        evaluate_policies(*board, timetable.learner)
    with pytest.raises(ValueError, match="absent"):
        evaluate_run(tmp_path / "absent")
