"""Games of OpenSpiel, played here and there move by move, and what OpenSpiel says of policies."""

import functools

import jax
import numpy as np
import pytest

pytest.importorskip("pyspiel")

import pyspiel

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.openspiel import OpenSpielGame, from_openspiel
from jaxmarl_envs.policy_table import most_probable
from jaxmarl_ppo import evaluate_run, load_run, make_learner
from jaxmarl_ppo.cli import main as cli
from jaxmarl_ppo.evaluation.scenarios.openspiel import SCENARIO, _observations, _why_not
from jaxmarl_ppo.evaluation.scenarios.registry import find_scenario
from jaxmarl_ppo.evaluation.scenarios.tabulated import action_probabilities

pytestmark = pytest.mark.filterwarnings("ignore:.*is stepped in Python")


@functools.cache
def made(name, options=()):
    """One object of each game, whose functions are compiled once."""
    env, params = make("openspiel", env_id=name, num_workers=0, **dict(options))
    return env, params, jax.jit(env.reset_env), jax.jit(env.step_env)


def test_hidden_information_is_told_as_an_information_state():
    poker = pyspiel.load_game("kuhn_poker")
    env, params, *_ = made("kuhn_poker")
    assert env.observation_space("player_0", params).shape == (11,)
    assert poker.information_state_tensor_shape() == [11]
    env, _ = make("openspiel", env_id="kuhn_poker", tensor="observation", num_workers=0)
    assert env.observation_space("player_0", ()).shape == (7,)
    assert env.horizon(()) == 3
    assert env.agents == ("player_0", "player_1")


def test_a_game_of_ones_own_keeps_the_contract():
    env = from_openspiel(lambda: pyspiel.load_game("liars_dice", {"numdice": 2}), num_workers=0)
    assert env.name == "liars_dice"
    report = check_env(env, (), num_steps=20, num_envs=2)
    assert report.num_steps == 40


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("kuhn_pokr", {}, "OpenSpiel knows no game 'kuhn_pokr'; valid: kuhn_poker, "),
        (3, {}, "env_id=3: give the name of a game"),
        ("leduc_poker", {"plyers": 3}, "'leduc_poker' with {'plyers': 3}: Unknown parameter"),
        ("coin_game", {}, "'coin_game' writes neither observations nor information states"),
        ("mfg_garnet", {}, "'mfg_garnet' is a mean-field game"),
        ("kuhn_poker", {"tensor": "board"}, "tensor='board': valid choices for 'kuhn_poker' are"),
        ("othello", {"tensor": "information_state"}, "valid choices for 'othello' are observation"),
        ("kuhn_poker", {"horizon": 0}, "horizon=0: give a whole number"),
    ],
)
def test_what_cannot_be_played_is_refused(name, options, message):
    with pytest.raises(ValueError) as caught:
        make("openspiel", env_id=name, num_workers=0, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("make_fn", [3, lambda: 3])
def test_only_a_function_that_makes_a_game_is_taken(make_fn):
    with pytest.raises(ValueError, match="give a function that makes a game"):
        from_openspiel(make_fn)


def test_a_run_is_trained_and_its_exploitability_is_openspiels(tmp_path):
    options = "env_id=kuhn_poker num_workers=0 --num-envs 8 --num-steps 4 --total-env-steps 64"
    run_dir = str(tmp_path / "run")
    sizes = ["--hidden-sizes", "8", "--run-dir", run_dir, "--quiet"]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "openspiel", "--env-kwargs", *options.split(), *sizes])
    found = evaluate_run(run_dir, episodes=8)["exploitability"]

    run = load_run(run_dir)
    assert find_scenario(run.env) is SCENARIO
    decisions = run.env.decisions
    assert len(decisions.keys) == 12  # six for each player
    learner, obs = make_learner(run.env, (), run.config), _observations(run.env, decisions)
    policy = action_probabilities(learner, (), run.population, obs, decisions.mover, player=0)
    ways = {"stochastic": policy, "greedy": most_probable(policy)}
    for name, table in ways.items():
        rows = {k: list(enumerate(row)) for k, row in zip(decisions.keys, table, strict=True)}
        expected = pyspiel.exploitability(run.env.game, pyspiel.TabularPolicy(rows))
        assert found[name] == pytest.approx(expected, abs=1e-6)
    assert 0 < found["stochastic"] < 1


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("matrix_rps", "at the same time"),
        ("leduc_poker(players=3)", "not a zero-sum game of two"),
        ("tic_tac_toe", "over 500,000 histories"),
    ],
)
def test_why_there_is_no_exploitability_is_told(name, note):
    env, *_ = made(name)
    assert note in _why_not(env)


def last_rewards(env, params, actions):
    """What the last of some actions pays, whoever takes them."""
    obs, state = env.reset_env(jax.random.key(0), params)
    for action in actions:
        assert (obs.action_mask[:, action] | ~obs.agent_mask).all()
        moves = np.full(env.num_agents, action, np.int32)
        obs, state, reward, *_ = env.step_env(jax.random.key(0), state, moves, params)
    return np.abs(reward).tolist()


def test_pgx_numbers_the_actions_of_the_same_games_otherwise():
    pytest.importorskip("pgx")
    there, here = (make("pgx", env_id="kuhn_poker"), made("kuhn_poker")[:2])
    # A bet that is called is for 2, and two passes are for 1.
    assert last_rewards(*there, [0, 0]) == last_rewards(*here, [1, 1]) == [2, 2]
    assert last_rewards(*there, [1, 1]) == last_rewards(*here, [0, 0]) == [1, 1]
    # Nobody can fold before a raise: the third of pgx's actions, the first of OpenSpiel's.
    for (env, params), fold in (
        (make("pgx", env_id="leduc_holdem"), 2),
        (made("leduc_poker")[:2], 0),
    ):
        obs, _ = env.reset_env(jax.random.key(0), params)
        (legal,) = np.asarray(obs.action_mask)[np.asarray(obs.agent_mask)]
        assert np.flatnonzero(~legal).tolist() == [fold]


# Games that load without parameters and cannot come in: four mean-field games, and nine that do not
# write what players observe as numbers.
REFUSED = {
    *("mfg_crowd_modelling", "mfg_crowd_modelling_2d", "mfg_dynamic_routing", "mfg_garnet"),
    *("coin_game", "coordinated_mp", "cribbage", "crossword", "liars_dice_ir"),
    *("morpion_solitaire", "phantom_ttt_ir", "social_deduction", "tarok"),
}


@pytest.mark.slow
def test_every_game_that_openspiel_has_comes_in_or_is_refused():
    played, refused = set(), set()
    for kind in pyspiel.registered_games():
        if not kind.default_loadable:
            continue
        try:
            game = OpenSpielGame(pyspiel.load_game(kind.short_name), None, 30, flatten=False)
        except ValueError:
            refused.add(kind.short_name)
            continue
        frame, choose = game.reset(3), np.random.default_rng(0)
        total = np.zeros(len(game.names))
        while frame.alive.any():
            action = [choose.choice(np.flatnonzero(legal)) for legal in frame.action_mask]
            frame, outcome, _ = game.step(np.array(action, np.int32))
            assert np.isfinite(frame.features).all()
            total += outcome.reward
        np.testing.assert_allclose(total, game._state.returns(), rtol=1e-4, atol=1e-4)
        played.add(kind.short_name)
    assert refused == REFUSED
    assert len(played) == 100
