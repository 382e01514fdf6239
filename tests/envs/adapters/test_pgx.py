"""pgx games through the adapter against pgx itself: the same keys and actions on both sides."""

import dataclasses
import importlib.util
import json
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest
from pgx.kuhn_poker import KuhnPoker
from probe_envs import quick_jit

import jaxmarl_envs
from jaxmarl_envs import Discrete, check_env
from jaxmarl_envs.adapters.incoming.pgx import Pgx

# Steps to play, enough for games to end on some of them.
STEPS = {
    "connect_four": 42,
    "kuhn_poker": 4,
    "leduc_holdem": 8,
    "minatar-breakout": 40,
    "2048": 180,
}
QUICK = ("connect_four", "kuhn_poker", "leduc_holdem", "minatar-breakout")  # to compile
PLAYERS = {"minatar-breakout": 1, "2048": 1}
SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "train_connect_four.py"


@pytest.fixture(scope="module")
def made():
    """`made(env_id, **options)`: each environment built once, its functions compiled once."""
    known = {}

    def make(env_id, **options):
        name = json.dumps([env_id, options], sort_keys=True)
        if name not in known:
            env, params = jaxmarl_envs.make("pgx", env_id=env_id, **options)
            known[name] = env, params, quick_jit(env.reset_env), quick_jit(env.step_env)
        return known[name]

    return make


def play_both(env, params, num_steps, num_games):
    """Random legal games on both sides, `[T, B, ...]` NumPy arrays of ours and of pgx's."""
    game, num_players = env.game, env.num_agents
    key_reset, *keys = jax.random.split(jax.random.key(3), 1 + num_steps)

    def views(state):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return jnp.stack([game.observe(state, i) for i in range(num_players)])

    def reset(key):
        obs, state = env.reset_env(key, params)
        return obs, (state, game.init(key))

    def time_step(carry, key):
        state, theirs = carry
        key_act, key_step = jax.random.split(key)
        legal = theirs.legal_action_mask
        drawn = jax.random.categorical(key_act, jnp.where(legal, 0.0, -jnp.inf))
        # Those who wait send something else, which must not matter.
        action = jnp.where(jnp.arange(num_players) == theirs.current_player, drawn, 1)
        obs, state, reward, terminated, truncated, info = env.step_env(
            key_step, state, action, params
        )
        before, theirs = theirs, game.step(theirs, drawn, key_step)
        record = {
            "obs": obs,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "metrics": info.get("metrics", {}),
            "was_over": before.terminated,
            "theirs": theirs,
            "views": views(theirs),
        }
        return (state, theirs), record

    @quick_jit
    def play():
        obs, begun = jax.vmap(reset)(jax.random.split(key_reset, num_games))
        steps = jnp.stack([jax.random.split(key, num_games) for key in keys])
        _, record = jax.lax.scan(jax.vmap(time_step), begun, steps)
        first = {"obs": obs, "theirs": begun[1], "views": jax.vmap(views)(begun[1])}
        return first, record

    return jax.device_get(play())


@pytest.fixture(scope="module")
def played(made):
    known = {}

    def play(env_id):
        if env_id not in known:
            env, params, *_ = made(env_id)
            num_games = 64 if STEPS[env_id] < 100 else 8
            known[env_id] = play_both(env, params, STEPS[env_id], num_games)
        return known[env_id]

    return play


def expect_observation(obs, theirs, views):
    """Everything of an observation `[..., A, ...]`, from pgx's state."""
    np.testing.assert_array_equal(obs.features, views.reshape(*views.shape[: obs.alive.ndim], -1))
    assert obs.features.dtype == np.float32
    over = theirs.terminated[..., None]
    moves = np.arange(obs.alive.shape[-1]) == theirs.current_player[..., None]
    np.testing.assert_array_equal(obs.alive, np.broadcast_to(~over, obs.alive.shape))
    np.testing.assert_array_equal(obs.agent_mask, moves & ~over)
    legal = theirs.legal_action_mask[..., None, :]
    np.testing.assert_array_equal(obs.action_mask, legal | ~obs.agent_mask[..., None])


# ---- Step for step as pgx ------------------------------------------------------------------------


@pytest.mark.rare_cases("2048", "minatar-breakout", "leduc_holdem", "kuhn_poker")
@pytest.mark.parametrize("env_id", STEPS)
def test_every_step_is_pgx_s_own(played, env_id):
    first, steps = played(env_id)
    expect_observation(first["obs"], first["theirs"], first["views"])
    expect_observation(steps["obs"], steps["theirs"], steps["views"])
    np.testing.assert_array_equal(steps["reward"], steps["theirs"].rewards)
    ends = steps["theirs"].terminated & ~steps["was_over"]
    np.testing.assert_array_equal(
        steps["terminated"], np.broadcast_to(ends[..., None], steps["terminated"].shape)
    )
    assert not steps["truncated"].any()
    assert ends.any()
    assert (np.asarray(steps["reward"]) != 0).any()
    assert steps["obs"].alive.shape[-1] == PLAYERS.get(env_id, 2)


@pytest.mark.rare_cases("2048", "minatar-breakout", "leduc_holdem", "kuhn_poker")
@pytest.mark.parametrize("env_id", STEPS)
def test_the_mover_sees_the_observation_that_pgx_keeps(played, env_id):
    _, steps = played(env_id)
    mover = steps["theirs"].current_player
    seen = np.take_along_axis(steps["obs"].features, mover[..., None, None], axis=2)[:, :, 0]
    shown = steps["theirs"].observation
    np.testing.assert_array_equal(seen, shown.reshape(seen.shape))


def test_a_game_that_is_over_gives_nothing_more(played):
    _, steps = played("kuhn_poker")
    was_over = steps["was_over"]
    assert was_over[-1].all()
    for name in ("reward", "terminated", "truncated"):
        assert not steps[name][was_over].any()
    for counts in steps["metrics"].values():
        assert not counts[was_over].any()


def test_outcomes_are_counted_once_by_the_sign_of_the_last_reward(played):
    for env_id in ("connect_four", "leduc_holdem"):
        _, steps = played(env_id)
        returns = steps["reward"].sum(0)  # [B, A]
        finished = steps["terminated"].any(0)
        assert finished.all()
        for name, sign in (("win", 1), ("draw", 0), ("loss", -1)):
            counted = steps["metrics"][name].sum(0)
            np.testing.assert_array_equal(counted, np.sign(returns) == sign)
    assert steps["metrics"]["draw"].any()


@pytest.mark.rare
def test_games_of_one_player_have_no_outcomes(played):
    assert played("2048")[1]["metrics"] == {}


def test_both_players_begin_and_then_take_turns(played):
    first, steps = played("connect_four")
    begins = np.asarray(first["theirs"].current_player)
    assert 0.25 < begins.mean() < 0.75
    mover = np.argmax(steps["obs"].agent_mask, axis=-1)  # [T, B]
    continues = steps["obs"].alive.all(-1)
    turn = (begins + 1 + np.arange(len(mover))[:, None]) % 2
    np.testing.assert_array_equal(mover[continues], turn[continues])


def test_poker_players_see_their_own_card_alone(played):
    first, steps = played("kuhn_poker")
    cards = np.asarray(first["theirs"]._cards)  # [B, A]
    for obs in (first["obs"].features, steps["obs"].features[0]):
        np.testing.assert_array_equal(obs[..., :3], np.eye(3)[cards])


# ---- Games by hand -------------------------------------------------------------------------------


def play_columns(made, columns, **options):
    """One game of connect four; the rewards of who began and of the other, and the edges."""
    _, params, reset, step = made("connect_four", **options)
    obs, state = reset(jax.random.key(0), params)
    begins = int(np.argmax(obs.agent_mask))
    steps = []
    for column in columns:
        action = np.full(2, column, np.int32)
        obs, state, reward, terminated, truncated, info = step(
            jax.random.key(1), state, action, params
        )
        order = [begins, 1 - begins]
        steps.append(
            {
                "reward": np.asarray(reward)[order].tolist(),
                "terminated": np.asarray(terminated).tolist(),
                "truncated": np.asarray(truncated).tolist(),
                "alive": np.asarray(obs.alive).tolist(),
                "metrics": {
                    name: np.asarray(counts)[order].tolist()
                    for name, counts in info["metrics"].items()
                },
            }
        )
    return steps


def outcomes(time_step):
    return [name for name, counts in time_step["metrics"].items() if any(counts)]


def test_four_in_a_row_pays_both_players_on_that_step(made):
    *before, last = play_columns(made, [0, 1, 0, 1, 0, 1, 0])
    assert all(
        time_step["reward"] == [0, 0] and time_step["alive"] == [True, True] for time_step in before
    )
    assert not any(map(outcomes, before))
    assert last["reward"] == [1, -1]
    assert (last["terminated"], last["truncated"]) == ([True, True], [False, False])
    assert last["alive"] == [False, False]
    assert last["metrics"] == {"win": [1, 0], "draw": [0, 0], "loss": [0, 1]}


def test_an_action_outside_the_mask_loses_at_once(made):
    *before, last = play_columns(made, [3, 3, 3, 3, 3, 3, 3])
    assert not any(any(time_step["terminated"]) for time_step in before)
    assert last["reward"] == [-1, 1]
    assert last["terminated"] == [True, True]
    assert last["metrics"]["loss"] == [1, 0]


def test_a_full_board_is_a_draw_on_the_last_step_of_the_horizon(made):
    # Column by column, in an order that lines nobody's stones up.
    order = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 3, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    order += [4, 4, 4, 4, 4, 4, 6, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6]
    *before, last = play_columns(made, order)
    env, params, *_ = made("connect_four")
    assert len(order) == env.horizon(params) == 42
    assert not any(any(time_step["terminated"]) for time_step in before)
    assert last["terminated"] == [True, True]
    assert last["reward"] == [0, 0]
    assert last["metrics"]["draw"] == [1, 1]


def test_the_longest_hand_of_leduc_has_eight_moves(made):
    env, params, reset, step = made("leduc_holdem")
    _, state = reset(jax.random.key(0), params)
    check, bet, call = 0, 1, 0
    ends = []
    for move in [check, bet, bet, call] * 2:
        _, state, _, terminated, *_ = step(
            jax.random.key(1), state, np.full(2, move, np.int32), params
        )
        ends.append(bool(terminated.all()))
    assert ends == [False] * 7 + [True]
    assert env.horizon(params) == 8


# ---- Time limits ---------------------------------------------------------------------------------


def test_a_horizon_truncates_a_game_that_is_not_over(made):
    steps = play_columns(made, [0, 1, 0, 1], horizon=3)
    assert [time_step["truncated"] for time_step in steps] == [[t == 2] * 2 for t in range(4)]
    assert [time_step["alive"] for time_step in steps] == [[t < 2] * 2 for t in range(4)]
    assert not any(any(time_step["terminated"]) for time_step in steps)
    assert not any(map(outcomes, steps))
    env, params, *_ = made("connect_four", horizon=3)
    assert env.horizon(params) == 3


def test_a_record_may_have_the_former_name_of_a_horizon():
    env, params = jaxmarl_envs.make("pgx", env_id="connect_four", max_steps=7)
    assert env.horizon(params) == 7
    with pytest.raises(ValueError, match=r"does not take the options .*max_steps"):
        jaxmarl_envs.make("pgx", env_id="connect_four", max_steps=7, horizon=8)


def test_an_end_on_the_last_step_is_an_end(made):
    last = play_columns(made, [0, 1, 0, 1, 0, 1, 0], horizon=7)[-1]
    assert (last["terminated"], last["truncated"]) == ([True, True], [False, False])
    assert last["metrics"]["win"] == [1, 0]


def test_an_end_at_the_horizon_is_what_the_user_says(made):
    # Nobody has won: with a horizon of 3 the game would go on.
    cut = play_columns(made, [0, 1, 0], horizon=3, at_time_limit="terminates")[-1]
    assert (cut["terminated"], cut["truncated"]) == ([True, True], [False, False])
    assert (cut["alive"], outcomes(cut)) == ([False, False], [])
    # A win at the very horizon is one of its outcomes all the same.
    won = play_columns(made, [0, 1, 0, 1, 0, 1, 0], horizon=7, at_time_limit="truncates")[-1]
    assert (won["terminated"], won["truncated"]) == ([False, False], [True, True])
    assert (won["alive"], won["metrics"]["win"]) == ([False, False], [1, 0])
    with pytest.raises(ValueError, match=r"at_time_limit='truncates' has no effect.*'2048'"):
        Pgx("2048", at_time_limit="truncates")
    with pytest.raises(ValueError, match="at_time_limit='ends': valid choices are truncates, ter"):
        Pgx("2048", at_time_limit="ends")


def test_horizons_are_the_limits_that_pgx_plays_by():
    from pgx import animal_shogi
    from pgx.minatar import freeway

    def horizon(env_id, **options):
        env, params = jaxmarl_envs.make("pgx", env_id=env_id, **options)
        return env.horizon(params)

    assert horizon("animal_shogi") == animal_shogi.MAX_TERMINATION_STEPS
    assert horizon("minatar-freeway") == int(freeway.time_limit) + 1
    assert horizon("minatar-freeway", horizon=2500) == 2500
    assert horizon("go_9x9") == 2 * 81
    assert horizon("go_9x9", max_terminal_steps=30) == 30
    assert horizon("kuhn_poker", horizon=1000) == 3
    assert horizon("2048") is None
    assert horizon("2048", horizon=1000) == 1000


# ---- Spaces and options --------------------------------------------------------------------------


def test_spaces_are_the_game_s_own(made):
    env, params, *_ = made("connect_four")
    assert (env.name, env.agents, env.max_actors) == ("connect_four", ("player_0", "player_1"), 1)
    space = env.observation_space("player_1", params)
    assert (space.low, space.high, space.shape) == (0, 1, (84,))
    assert env.action_space("player_0", params) == Discrete(7)
    with pytest.raises(ValueError, match=r"unknown agent 'x'.*player_0, player_1"):
        env.action_space("x", params)


def test_counts_have_no_bounds():
    env, params = jaxmarl_envs.make("pgx", env_id="backgammon")
    space = env.observation_space("player_0", params)
    assert (space.low, space.high, space.shape) == (-np.inf, np.inf, (34,))


def test_planes_are_the_flat_numbers_in_their_places(made):
    _, params, reset, _ = made("connect_four")
    env, _, reset_planes, step_planes = made("connect_four", planes=True)
    assert env.observation_space("player_0", params).shape == (6, 7, 2)
    key = jax.random.key(4)
    obs, state = reset_planes(key, params)
    mover = int(np.argmax(obs.agent_mask))
    obs, *_ = step_planes(key, state, np.array([2, 2]), params)
    expected = np.zeros((2, 6, 7, 2))
    expected[mover, 5, 2, 0] = expected[1 - mover, 5, 2, 1] = 1
    np.testing.assert_array_equal(obs.features, expected)
    assert reset(key, params)[0].features.shape == (2, 84)


def test_options_reach_the_game():
    env, _ = jaxmarl_envs.make("pgx", env_id="minatar-breakout", sticky_action_prob=0.0)
    assert env.game.sticky_action_prob == 0
    env, params = jaxmarl_envs.make("pgx", env_id="go_9x9", komi=5.5)
    assert (env.name, env.game._game.komi) == ("go_9x9", 5.5)
    assert env.action_space("player_0", params) == Discrete(82)
    assert jaxmarl_envs.make("pgx", env_id="go_9x9", size=5)[0].name == "go_5x5"


def test_a_run_can_build_it_again():
    env, _ = jaxmarl_envs.make("pgx", env_id="go_9x9", planes=True, horizon=50, komi=5.5)
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, params = jaxmarl_envs.make(name, **kwargs)
    assert (again.name, again.planes, again.horizon(params)) == ("go_9x9", True, 50)
    assert again.game._game.komi == 5.5


def test_observations_of_several_arrays_are_joined(monkeypatch):
    class Cards(KuhnPoker):
        def _observe(self, state, player_id):
            seen = super()._observe(state, player_id)
            return {"chips": seen[3:].reshape(2, 2) * 0.5, "hand": seen[:3]}

    plain = Pgx("kuhn_poker")
    monkeypatch.setattr(pgx, "make", lambda env_id: Cards())
    env = Pgx("kuhn_poker")
    reset, both = quick_jit(env.reset_env), jax.random.key(5)
    seen = np.asarray(quick_jit(plain.reset_env)(both, plain.default_params)[0].features)
    obs, _ = reset(both, env.default_params)
    np.testing.assert_array_equal(obs.features, np.hstack([seen[:, 3:] * 0.5, seen[:, :3]]))
    assert env.observation_space("player_0", env.default_params).high == np.inf
    with pytest.raises(ValueError, match=r"planes=True: 'kuhn_poker' shows .*\(2, 2\), \(3,\)"):
        Pgx("kuhn_poker", planes=True)


def test_an_unknown_id_names_the_closest_and_all_valid_ids():
    with pytest.raises(ValueError, match="unknown env_id 'connect4'") as error:
        Pgx("connect4")
    for part in ("did you mean 'connect_four'?", "go_9x9, ", "bridge_bidding"):
        assert part in str(error.value)


def test_unknown_options_name_the_valid_ones():
    with pytest.raises(ValueError, match=r"'go_9x9'.*'rules': 1.*valid options: size, komi"):
        Pgx("go_9x9", rules=1)
    with pytest.raises(ValueError, match=r"'connect_four'.*valid options: none"):
        Pgx("connect_four", size=8)


@pytest.mark.parametrize("horizon", [0, -1, 2.0, True])
def test_a_horizon_must_be_positive(horizon):
    with pytest.raises(ValueError, match=rf"horizon={horizon!r}: .* at least 1"):
        Pgx("kuhn_poker", horizon=horizon)


def test_only_planes_can_be_had_as_planes():
    with pytest.raises(ValueError, match=r"planes=True: 'kuhn_poker' .* \(7,\).* no planes"):
        Pgx("kuhn_poker", planes=True)
    with pytest.raises(ValueError, match="planes='yes': planes must be True or False"):
        Pgx("connect_four", planes="yes")


# ---- Bridge, whose deals are a file --------------------------------------------------------------


@pytest.mark.slow
def test_bridge_of_four_players_keeps_the_contract(tmp_path):
    # Every hand of a deal is a number of 13 cards in base 4: whose each card is.
    rng = np.random.default_rng(0)
    owners = np.stack([rng.permutation(np.repeat(np.arange(4), 13)) for _ in range(5)])
    keys = (owners.reshape(5, 4, 13) * 4 ** np.arange(12, -1, -1)).sum(-1)
    table = tmp_path / "deals.npy"
    np.save(table, np.stack([keys, rng.integers(0, 2**19, (5, 4))]).astype(np.int32))
    env, params = jaxmarl_envs.make(
        "pgx", env_id="bridge_bidding", dds_results_table_path=str(table)
    )
    assert env.agents == ("player_0", "player_1", "player_2", "player_3")
    report = check_env(env, params, num_steps=40, num_envs=2)
    assert min(report.num_decisions.values()) >= 5
    assert env.horizon(params) == 319


def test_bridge_needs_its_table():
    with pytest.raises(ValueError, match="needs the option dds_results_table_path"):
        Pgx("bridge_bidding")
    with pytest.raises(ValueError, match="cannot read dds_results_table_path='nowhere'"):
        Pgx("bridge_bidding", dds_results_table_path="nowhere")


# ---- Contract, imports, training -----------------------------------------------------------------


@pytest.mark.rare_cases("minatar-breakout", "leduc_holdem", "kuhn_poker")
@pytest.mark.parametrize("env_id", QUICK)
def test_the_contract_is_kept(made, env_id):
    env, params, *_ = made(env_id)
    report = check_env(env, params)
    assert report.num_episodes >= 4


@pytest.mark.rare
@pytest.mark.parametrize(
    "env_id",
    [
        env_id
        for env_id in pgx.available_envs()
        if env_id not in (*QUICK, "chess", "gardner_chess", "go_19x19", "shogi")
    ],
)
def test_the_contract_is_kept_by_slower_games(env_id):
    env, params = jaxmarl_envs.make("pgx", env_id=env_id)
    limit = env.horizon(params)
    report = check_env(env, params, num_steps=500 if limit is None else limit + 8)
    assert report.num_episodes >= 1


# ---- Connect four as the script trains it --------------------------------------------------------


@pytest.fixture(scope="module")
def script():
    """The module of the training script."""
    spec = importlib.util.spec_from_file_location("train_connect_four", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # for what lies beside it
        spec.loader.exec_module(module)
    return module


def test_look_ahead_wins_then_blocks_then_draws_lots(made, played, script):
    env, params, *_ = made("connect_four")
    _, steps = played("connect_four")
    continues = steps["obs"].alive.all(-1)
    obs, state = jax.tree.map(lambda x: x[continues], (steps["obs"], steps["theirs"]))
    mover, legal = np.asarray(state.current_player), np.asarray(state.legal_action_mask)

    def wins(state, player):
        """Where the player to move would win at once, `[7]`."""
        after = jax.vmap(lambda column: env.game.step(state, column))(np.arange(7))
        return after.rewards[:, player] == 1

    wins_at_once = quick_jit(jax.vmap(wins))
    can_win = legal & np.asarray(wins_at_once(state, mover))
    swapped = state._x._replace(color=1 - state._x.color)
    swapped = state.replace(current_player=1 - mover, _x=swapped)
    must_block = legal & np.asarray(wins_at_once(swapped, 1 - mover))
    choose = quick_jit(jax.vmap(script.look_ahead, in_axes=(None, 0, None, 0)))
    keys = jax.random.split(jax.random.key(6), len(mover))
    chosen = np.asarray(choose(None, obs, params, keys))[np.arange(len(mover)), mover]
    row = np.arange(len(mover))
    threatened = must_block.any(1) & ~can_win.any(1)
    quiet = ~must_block.any(1) & ~can_win.any(1)
    assert min(can_win.any(1).sum(), threatened.sum()) > 20
    assert can_win[row, chosen][can_win.any(1)].all()
    assert must_block[row, chosen][threatened].all()
    assert legal[row, chosen].all()
    counts = np.bincount(chosen[quiet], minlength=7)
    assert counts.min() > 0.5 * counts.mean()


def test_half_of_the_games_begin_after_some_random_moves(script):
    env = script.Openings()
    obs, state = jax.jit(jax.vmap(lambda key: env.reset_env(key, env.default_params)))(
        jax.random.split(jax.random.key(0), 2000)
    )
    moves = np.bincount(state._step_count, minlength=9) / 2000
    np.testing.assert_allclose(moves[0], 0.5, atol=0.05)
    np.testing.assert_allclose(moves[1:], 0.5 / 8, atol=0.02)
    assert bool(obs.alive.all())
    stones = np.asarray(obs.features).reshape(2000, 2, -1)  # what both see of stones of both
    np.testing.assert_array_equal(stones.sum(-1), np.repeat(state._step_count, 2).reshape(-1, 2))
    np.testing.assert_allclose(np.mean(state.current_player), 0.5, atol=0.05)


def test_the_network_is_told_of_lines_and_of_where_stones_land(script):
    rng = np.random.default_rng(0)
    for _ in range(20):
        board = np.zeros((6, 7, 2), np.float32)
        height = rng.integers(0, 7, 7)
        for column in range(7):
            for row in range(height[column]):
                board[5 - row, column, rng.integers(2)] = 1
        stones = board.reshape(42, 2)
        expected = np.zeros((42, 6))
        for line in script.LINES:
            for first, (mine, theirs) in ((0, (0, 1)), (3, (1, 0))):
                count = int(stones[line, mine].sum())
                if not stones[line, theirs].any() and 1 <= count <= 3:
                    expected[line, first + count - 1] += 1
        np.testing.assert_array_equal(script.lines_through(jnp.array(stones)), expected)
        for column, cells in enumerate(np.asarray(script.cells_from(jnp.array(height)))):
            free = 6 - height[column]
            np.testing.assert_array_equal(cells[free:] < 0, True)
            assert [(cell // 7, cell % 7) for cell in cells[:free]] == [
                (5 - height[column] - above, column) for above in range(min(3, free))
            ]


@pytest.mark.slow
def test_a_short_run_of_connect_four_beats_random_play_and_a_look_ahead(script):
    config = dataclasses.replace(script.CONFIG, num_envs=128, total_env_steps=1_000_000)
    result, learner = script.train(config)
    for greedy in (False, True):
        rates = script.win_rates(learner, result.population, 1024, greedy, config.seed)
        assert rates["random"]["win"] > 0.95
        assert rates["look_ahead"]["win"] > 0.9
        assert sum(rates["random"].values()) == 1
