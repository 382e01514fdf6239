"""Conventions of other libraries, as `docs/other-libraries.md` has them: seen without our adapters.

Ends by time limits and illegal actions of Jumanji are in `test_jumanji.py`, actions that pgx and
OpenSpiel number otherwise in `test_openspiel.py`.
"""

import importlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_envs import from_jaxmarl, make

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def particles():
    """JaxMARL's `simple_spread`, its compiled reset and step, by its own names."""
    game = jaxmarl_game("MPE_simple_spread_v3")
    return game, quick_jit(game.reset), quick_jit(game.step_env)


def jaxmarl_game(env_id, **options):
    with warnings.catch_warnings():
        # Of the second Overcooked, and of JaxNav's own defaults.
        warnings.simplefilter("ignore")
        return pytest.importorskip("jaxmarl").make(env_id, **options)


def mpe2_game(name):
    return importlib.import_module(f"mpe2.{name}").parallel_env()


def types_of_step(game, actions=dict):
    """Shapes and types of what a step of JaxMARL returns."""
    seen, state = jax.eval_shape(game.reset, KEY)
    own = [jnp.zeros(getattr(game.action_space(a), "shape", ()), int) for a in game.agents]
    taken = dict(zip(game.agents, own, strict=True)) if actions is dict else actions(own)
    return seen, *jax.eval_shape(game.step_env, KEY, state, taken)[2:]


# ---- Steps of an episode -------------------------------------------------------------------------

# Options, their limit, and how many steps an episode has that nothing else ends.
LENGTHS = {
    "MPE_simple_v3": ({"max_steps": 2}, 3),
    "SMAX": ({"max_steps": 2}, 3),
    "overcooked": ({"max_steps": 2}, 2),
    "overcooked_v2": ({"max_steps": 2}, 2),
    "switch_riddle": ({}, 6),  # 4 n - 6 days
    "coin_game": ({"num_inner_steps": 2, "num_outer_steps": 2}, 4),
    "storm_2p": ({"num_inner_steps": 2}, 2),
    "storm_np": ({"num_inner_steps": 2}, 2),
    "jaxnav": ({"max_steps": 2}, 2),
}


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.rare_cases(*(name for name in LENGTHS if name not in ("MPE_simple_v3", "coin_game")))
@pytest.mark.parametrize("env_id", LENGTHS)
def test_particles_and_battles_of_jaxmarl_play_one_step_more_than_they_say(env_id):
    options, length = LENGTHS[env_id]
    game = jaxmarl_game(env_id, **options)
    spaces = [game.action_space(a) for a in game.agents]
    idle = [jnp.zeros(getattr(space, "shape", ()), space.dtype) for space in spaces]
    actions = tuple(idle) if env_id == "storm_2p" else dict(zip(game.agents, idle, strict=True))
    step, over = quick_jit(game.step_env), []
    _, state = quick_jit(game.reset)(KEY)
    while not any(over):
        _, state, _, done, _ = step(KEY, state, actions)
        over.append(bool(done["__all__"]))
    assert len(over) == length
    env = from_jaxmarl(game)
    assert env.horizon(env.default_params) == length


def test_particles_of_mpe2_play_as_many_steps_as_they_say():
    game = mpe2_game("simple_spread_v3")
    game.reset(seed=0)
    ends = []
    while game.agents:
        _, _, terminated, truncated, _ = game.step(dict.fromkeys(game.agents, 0))
        ends.append((any(terminated.values()), all(truncated.values())))
    assert ends == [(False, False)] * 24 + [(False, True)]


def test_games_of_gymnax_may_be_far_shorter_than_their_limit():
    gymnax = pytest.importorskip("gymnax")
    game, params = gymnax.make("Catch-bsuite")
    assert params.max_steps_in_episode == 1000
    _, state = game.reset_env(KEY, params)
    ended = []
    while not any(ended):
        _, state, _, terminated, _ = game.step_env(KEY, state, 0, params)
        ended.append(bool(terminated))
    assert len(ended) == 9


@pytest.mark.filterwarnings("ignore:.*is stepped in Python")
def test_particles_of_mpe2_do_not_declare_their_length():
    env, params = make("pettingzoo", env_id="mpe2.simple_spread_v3", num_workers=0)
    assert env.horizon(params) is None


# ---- Ends ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
def test_walkers_of_pettingzoo_are_terminated_by_their_time_limit():
    pytest.importorskip("Box2D")
    module = pytest.importorskip("pettingzoo.sisl.multiwalker_v9")
    game = module.parallel_env(max_cycles=2)
    game.reset(seed=0)
    ends = []
    while game.agents:
        still = {agent: np.zeros(4, np.float32) for agent in game.agents}
        _, _, terminated, truncated, _ = game.step(still)
        ends.append((all(terminated.values()), any(truncated.values())))
    assert ends == [(False, False), (True, False)]
    options = {"env_id": "sisl/multiwalker_v9", "max_cycles": 2, "num_workers": 0}
    for reading in ("truncates", "terminates"):
        env, _ = make("pettingzoo", horizon=2, at_time_limit=reading, **options)
        played = env.pool.make_game()
        played.reset(0)
        for _ in range(2):
            _, outcome, _ = played.step(np.zeros((3, 4), np.float32))
        assert outcome.truncated.tolist() == [reading == "truncates"] * 3
        assert outcome.terminated.tolist() == [reading == "terminates"] * 3


def test_gymnax_and_gymnasium_may_set_both_flags():
    gymnasium = pytest.importorskip("gymnasium")
    game, params = pytest.importorskip("gymnax").make("CartPole-v1")
    _, state = game.reset_env(KEY, params)
    terminated, length = False, 0
    while not terminated:
        _, state, _, terminated, _ = game.step_env(KEY, state, 1, params)
        length += 1
    assert game.is_truncated(state, params.replace(max_steps_in_episode=length))
    assert not game.is_truncated(state, params.replace(max_steps_in_episode=length + 1))
    there = gymnasium.make("CartPole-v1", max_episode_steps=8)
    there.reset(seed=0)
    assert [there.step(1)[2:4] for _ in range(8)] == [(False, False)] * 7 + [(True, True)]


def test_an_illegal_action_of_pettingzoo_s_classic_games_sets_both_flags_and_is_no_zero_sum():
    classic = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    game = classic.env()
    game.reset(seed=0)
    game.step(0)
    game.step(0)
    both = {"player_1": True, "player_2": True}
    assert (game.terminations, game.truncations) == (both, both)
    assert game.rewards == {"player_1": 0, "player_2": -1}


@pytest.mark.rare
def test_units_of_smax_are_done_again_and_again_but_the_living_not_even_at_the_limit():
    from jaxmarl.environments.smax import map_name_to_scenario

    game = jaxmarl_game(
        "HeuristicEnemySMAX", scenario=map_name_to_scenario("3m"), max_steps=2, enemy_shoots=False
    )
    _, state = quick_jit(game.reset)(KEY)
    battle = state.state
    dead = battle.replace(
        unit_alive=battle.unit_alive.at[0].set(False),
        unit_health=battle.unit_health.at[0].set(0.0),
    )
    state, step, stop = state.replace(state=dead), quick_jit(game.step_env), jnp.int32(4)
    dones = []
    for _ in range(3):
        legal = game.get_avail_actions(state)
        np.testing.assert_array_equal(legal["ally_0"], np.arange(8) == 4)
        assert legal["ally_1"][:5].all()
        _, state, _, done, _ = step(KEY, state, dict.fromkeys(game.agents, stop))
        dones.append([bool(done[name]) for name in (*game.agents, "__all__")])
    assert dones == [[True, False, False, False]] * 2 + [[True, False, False, True]]


def test_a_game_of_pgx_that_is_over_allows_everything_and_names_another_mover():
    pgx = pytest.importorskip("pgx")
    game = pgx.make("tic_tac_toe")
    step, state = quick_jit(game.step), game.init(KEY)
    first = int(state.current_player)
    for cell in (0, 3, 1, 4, 2):
        state = step(state, cell)
    assert state.terminated
    assert state.rewards[first] == 1
    assert state.current_player == 1 - first
    assert state.legal_action_mask.all()
    after = step(state, 8)
    assert not after.rewards.any()
    np.testing.assert_array_equal(after._x.board, state._x.board)


# ---- What a reset within a step leaves -----------------------------------------------------------


def test_steps_that_reset_themselves_show_the_next_episode(particles):
    game, reset, _ = particles
    seen, state = reset(KEY)
    step = quick_jit(game.step)
    for _ in range(26):
        seen, state, _, done, _ = step(KEY, state, dict.fromkeys(game.agents, jnp.int32(0)))
    assert done["__all__"]
    assert all(done.values())
    assert state.step == 0
    np.testing.assert_array_equal(seen["agent_0"], game.get_obs(state)["agent_0"])


def test_gymnax_s_step_keeps_the_last_observation_in_its_info():
    game, params = pytest.importorskip("gymnax").make("Catch-bsuite")
    _, state = game.reset(KEY, params)
    for _ in range(9):
        seen, state, _, terminated, _, info = game.step(KEY, state, 0, params)
    assert terminated
    # Balls begin at the top.
    assert (seen[0].any(), info["final_observation"][0].any()) == (True, False)


def test_pgx_s_auto_reset_keeps_rewards_and_flags_beside_the_next_board():
    pgx = pytest.importorskip("pgx")
    wrappers = pytest.importorskip("pgx.experimental.wrappers")
    game = pgx.make("tic_tac_toe")
    step, state = quick_jit(wrappers.auto_reset(game.step, game.init)), game.init(KEY)
    for cell in (0, 3, 1, 4, 2):
        state = step(state, cell, KEY)
    assert state.terminated
    assert sorted(state.rewards.tolist()) == [-1, 1]
    assert not state.observation.any()


@pytest.mark.rare
def test_jumanji_s_auto_reset_keeps_reward_and_discount_beside_the_next_observation():
    jumanji = pytest.importorskip("jumanji")
    wrappers = importlib.import_module("jumanji.wrappers")
    for keeps_last in (False, True):
        game = wrappers.AutoResetWrapper(
            jumanji.make("Snake-v1", time_limit=1), next_obs_in_extras=keeps_last
        )
        state, _ = game.reset(KEY)
        _, time_step = quick_jit(game.step)(state, 0)
        assert (bool(time_step.last()), float(time_step.discount)) == (True, 0)
        assert time_step.observation.step_count == 0
        assert ("next_obs" in time_step.extras) == keeps_last


# ---- Agents, rewards, spaces ---------------------------------------------------------------------


def test_alice_and_bob_change_places_and_adversaries_come_first():
    assert jaxmarl_game("MPE_simple_crypto_v3").agents == ["eve_0", "alice_0", "bob_0"]
    assert mpe2_game("simple_crypto_v3").possible_agents == ["eve_0", "bob_0", "alice_0"]
    for name in ("adversary", "push", "tag", "world_comm"):
        agents = jaxmarl_game(f"MPE_simple_{name}_v3").agents
        assert mpe2_game(f"simple_{name}_v3").possible_agents == list(agents)
        kinds = [agent.rpartition("_")[0] for agent in agents]
        assert "adversary" in kinds[0]
        assert kinds[-1] == "agent"
        assert kinds == sorted(kinds, key=lambda kind: "adversary" not in kind)


def test_the_last_step_of_a_coin_game_s_inner_game_pays_nothing():
    paid = {}
    for num_inner_steps in (1, 30):
        game = jaxmarl_game("coin_game", num_inner_steps=num_inner_steps, num_outer_steps=30)
        step = quick_jit(game.step_env)
        _, state = game.reset(KEY)
        rewards = []
        for key in jax.random.split(KEY, 30):
            moves = jax.random.randint(key, (2,), 0, 5)
            _, state, reward, *_ = step(key, state, dict(zip(game.agents, moves, strict=True)))
            rewards += [float(r) for r in reward.values()]
        paid[num_inner_steps] = any(rewards)
    assert paid == {1: False, 30: True}


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_robots_of_brax_mark_the_time_limit_and_pay_one_more_name():
    pytest.importorskip("brax")
    game = jaxmarl_game("hopper_3x1", episode_length=2, auto_reset=False)
    step = quick_jit(game.step_env)
    _, state = game.reset(KEY)
    still, marks = {agent: jnp.zeros(1) for agent in game.agents}, []
    for _ in range(2):
        _, state, reward, done, _ = step(KEY, state, still)
        marks.append((bool(done["__all__"]), float(state.info["truncation"])))
    assert marks == [(False, 0), (True, 1)]
    assert set(reward) == {*game.agents, "__all__"}


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
def test_names_of_storm_are_integers_and_its_rewards_an_array_or_a_tuple():
    for env_id, names, actions, reward in (
        ("storm", {"__all__"}, dict, (2,)),
        ("storm_2p", {"__all__"}, tuple, 2),
        ("storm_np", {"__all__", "agent_0", "agent_1"}, dict, (2,)),
    ):
        game = jaxmarl_game(env_id)
        assert game.agents == [0, 1]
        _, rewards, done, _ = types_of_step(game, actions)
        assert set(done) == names
        assert (len(rewards) if reward == 2 else rewards.shape) == reward
    assert make("jaxmarl", env_id="storm_2p")[0].agents == ("agent_0", "agent_1")


def test_rewards_of_hanabi_have_one_for_all_and_shaped_ones_are_in_the_info():
    _, rewards, *_ = types_of_step(jaxmarl_game("hanabi"))
    assert set(rewards) == {"agent_0", "agent_1", "__all__"}
    for env_id in ("overcooked", "overcooked_v2"):
        _, rewards, _, info = types_of_step(jaxmarl_game(env_id))
        assert set(rewards) == set(info["shaped_reward"]) == {"agent_0", "agent_1"}


def test_observations_of_jaxmarl_are_not_always_of_their_space():
    found = {}
    for env_id in ("overcooked", "overcooked_v2", "hanabi", "coin_game", "storm_np"):
        game = jaxmarl_game(env_id)
        first = game.agents[0]
        seen = jax.eval_shape(lambda key: game.reset(key)[0][first], KEY)  # noqa: B023
        space = game.observation_space(first)
        found[env_id] = (space.shape, np.dtype(space.dtype).name, seen.shape, seen.dtype.name)
    assert found == {
        "overcooked": ((5, 4, 26), "float32", (4, 5, 26), "uint8"),
        "overcooked_v2": ((4, 5, 30), "float32", (4, 5, 30), "int32"),
        "hanabi": (658, "float32", (658,), "float32"),
        "coin_game": ((36,), "uint8", (36,), "int8"),
        "storm_np": ((5, 5, 14), "uint8", (5, 5, 14), "float32"),
    }


def test_observations_of_gymnax_are_not_always_of_their_space():
    gymnax = pytest.importorskip("gymnax")
    game, params = gymnax.make("FourRooms-misc")
    seen, _ = jax.eval_shape(game.reset_env, KEY, params)
    declared = np.dtype(game.observation_space(params).dtype).name
    assert (seen.dtype.name, declared) == ("int32", "float32")
    game, params = gymnax.make("GaussianBandit-misc")
    _, state = game.reset_env(KEY, params)
    seen, *_ = game.step_env(KEY, state, 0, params)
    space = game.observation_space(params)
    assert ((seen < space.low) | (seen > space.high)).any()


def test_colours_of_crypto_are_255_in_jaxmarl_and_1_in_mpe2():
    game = jaxmarl_game("MPE_simple_crypto_v3")
    seen, _ = game.reset(KEY)
    assert max(float(row.max()) for row in seen.values()) == 255
    there, _ = mpe2_game("simple_crypto_v3").reset(seed=0)
    assert max(float(row.max()) for row in there.values()) == 1


def test_returns_that_jaxmarl_logs_of_particles_are_times_the_number_of_agents(particles):
    game, reset, step = particles
    wrappers = importlib.import_module("jaxmarl.wrappers.baselines")
    wrapped = wrappers.MPELogWrapper(game)
    _, state = reset(KEY)
    action = dict.fromkeys(game.agents, jnp.int32(1))
    _, _, reward, _, _ = step(KEY, state, action)
    nothing = jnp.zeros(game.num_agents)
    logged = wrappers.LogEnvState(state, nothing, nothing, nothing, nothing)
    _, logged, same_reward, _, _ = quick_jit(wrapped.step)(KEY, logged, action)
    own = np.array([reward[agent] for agent in game.agents])
    np.testing.assert_allclose([same_reward[agent] for agent in game.agents], own, rtol=1e-6)
    np.testing.assert_allclose(logged.episode_returns, 3 * own, rtol=1e-6)


def test_some_of_jaxmarl_s_actions_are_continuous_by_default():
    continuous = {"MPE_simple_world_comm_v3", "MPE_simple_facmac_v1", "jaxnav"}
    for env_id in (*continuous, "MPE_simple_spread_v3", "MPE_simple_tag_v3", "SMAX"):
        game = jaxmarl_game(env_id)
        kinds = {type(game.action_space(agent)).__name__ for agent in game.agents}
        assert kinds == {"Box" if env_id in continuous else "Discrete"}
    lead = mpe2_game("simple_world_comm_v3").action_space("leadadversary_0")
    assert lead.n == 20


# ---- Actions -------------------------------------------------------------------------------------


def test_directions_of_the_two_overcookeds_are_numbered_otherwise():
    first = importlib.import_module("jaxmarl.environments.overcooked.common")
    second = importlib.import_module("jaxmarl.environments.overcooked_v2.common")
    # x to the right, y down: up, down, right, left.
    assert first.DIR_TO_VEC.tolist() == [[0, -1], [0, 1], [1, 0], [-1, 0]]
    actions = second.ACTION_TO_DIRECTION[:4].tolist()
    assert [second.Direction(k).name for k in actions] == ["RIGHT", "DOWN", "LEFT", "UP"]


def test_spread_is_the_same_game_in_jaxmarl_and_in_mpe2_but_for_its_length(particles):
    game, reset, step = particles
    there = mpe2_game("simple_spread_v3")
    for action in range(5):
        there.reset(seed=action)
        world = there.unwrapped.world
        places = [entity.state.p_pos for entity in (*world.agents, *world.landmarks)]
        _, state = reset(KEY)
        state = state.replace(p_pos=jnp.asarray(places), p_vel=jnp.zeros_like(state.p_vel))
        for _ in range(3):
            actions = dict.fromkeys(game.agents, action)
            seen, state, rewards, *_ = step(KEY, state, actions)
            seen_there, rewards_there, *_ = there.step(actions)
            for agent in game.agents:
                np.testing.assert_allclose(seen[agent], seen_there[agent], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(rewards[agent], rewards_there[agent], rtol=1e-4)


def test_an_action_of_particles_is_paid_one_step_later(particles):
    game, reset, step = particles
    there = mpe2_game("simple_spread_v3")
    paid, paid_there = [], []
    for action in range(5):
        there.reset(seed=0)
        _, state = reset(KEY)
        for _ in range(2):
            _, state, rewards, *_ = step(KEY, state, dict.fromkeys(game.agents, action))
            paid.append(float(rewards["agent_0"]))
            _, rewards, *_ = there.step(dict.fromkeys(there.agents, action))
            paid_there.append(float(rewards["agent_0"]))
    for rewards in (paid, paid_there):
        assert len(set(rewards[::2])) == 1
        assert len(set(rewards[1::2])) == 5


def test_an_illegal_action_of_pgx_s_leduc_costs_1_whatever_is_in_the_pot():
    pgx = pytest.importorskip("pgx")
    game = pgx.make("leduc_holdem")
    step, state = quick_jit(game.step), game.init(KEY)
    for action in (1, 1):  # both raise
        state = step(state, action)
    mover = int(state.current_player)
    assert not state.legal_action_mask[1]
    lost, folded = (step(state, action).rewards[mover] for action in (1, 2))
    assert (lost, folded) == (-1, -3)
    penalties = {name: pgx.make(name)._illegal_action_penalty for name in ("backgammon", "chess")}
    assert penalties == {"backgammon": -3, "chess": -1}


@pytest.mark.rare
def test_an_illegal_action_of_pgx_s_mahjong_pays_the_others_two():
    pgx = pytest.importorskip("pgx")
    game = pgx.make("sparrow_mahjong")
    state = game.init(KEY)
    mover = int(state.current_player)
    state = quick_jit(game.step)(state, int((~state.legal_action_mask).argmax()))
    np.testing.assert_array_equal(state.rewards, np.where(np.arange(3) == mover, -1, 2))


# ---- Who moves, and masks of those who wait ------------------------------------------------------


def openspiel_plays(name, moves):
    """The movers of a game of OpenSpiel, and the state after some moves."""
    pyspiel = pytest.importorskip("pyspiel")
    state, movers = pyspiel.load_game(name).new_initial_state(), []
    for move in moves:
        movers.append(state.current_player())
        state.apply_action(move)
    return movers, state


def test_players_of_openspiel_move_again_after_a_box_or_a_rejected_move():
    # Edges of a box of two by two: its top, left and bottom, then its right closes it.
    assert openspiel_plays("dots_and_boxes", [0, 6, 2, 7, 11])[0] == [0, 1, 0, 1, 1]
    assert openspiel_plays("phantom_ttt", [4, 4, 0])[0] == [0, 1, 1]
    state, movers = openspiel_plays("amazons", [])[1], []
    for _ in range(6):  # a queen, where to, and an arrow
        movers.append(state.current_player())
        state.apply_action(state.legal_actions()[0])
    assert movers == [0, 0, 0, 1, 1, 1]


def test_who_waits_in_openspiel_has_no_legal_action_and_nobody_has_one_at_the_end():
    _, state = openspiel_plays("tic_tac_toe", [0, 3, 1, 4])
    assert (state.legal_actions(0) != [], state.legal_actions(1)) == (True, [])
    state.apply_action(2)
    assert [state.legal_actions(player) for player in (0, 1)] == [[], []]
    assert state.current_player() < 0
    _, state = openspiel_plays("tic_tac_toe", [0])
    with pytest.raises(pytest.importorskip("pyspiel").SpielError):
        state.apply_action(0)


def test_tensors_of_openspiel_are_flat_whatever_their_shape():
    pyspiel = pytest.importorskip("pyspiel")
    game = pyspiel.load_game("phantom_ttt")
    assert game.information_state_tensor_shape() == [1, 108]
    assert len(game.new_initial_state().information_state_tensor(0)) == 108


def test_games_of_openspiel_that_draw_themselves_begin_alike_only_in_new_objects():
    pyspiel = pytest.importorskip("pyspiel")
    games = [pyspiel.load_game("negotiation", {"rng_seed": 5}) for _ in range(2)]

    def begin(game):
        state = game.new_initial_state()
        state.apply_action(state.legal_actions()[0])  # it draws what there is to share
        return str(state)

    first, other = map(begin, games)
    assert first == other != begin(games[0])


def test_who_waits_in_pettingzoo_s_classic_games_has_a_mask_of_zeros():
    game = pytest.importorskip("pettingzoo.classic.tictactoe_v3").env()
    game.reset(seed=0)
    masks = {agent: game.observe(agent)["action_mask"].sum() for agent in game.agents}
    assert masks == {"player_1": 9, "player_2": 0}


@pytest.mark.rare
def test_who_waits_in_jaxmarl_s_hanabi_may_do_nothing_and_a_bomb_takes_all_points_back():
    game = jaxmarl_game("hanabi")
    reset, step, legal_moves = map(quick_jit, (game.reset, game.step_env, game.get_legal_moves))
    rng, mixed = np.random.default_rng(0), False
    for seed in range(8):
        (_, state), rewards, done = reset(jax.random.key(seed)), [], False
        while not done:
            legal = legal_moves(state)
            waits = [agent for agent in game.agents if legal[agent][-1]]
            assert len(waits) == 1
            assert legal[waits[0]].sum() == 1
            moves = {a: (rng.random(21) * np.asarray(legal[a])).argmax() for a in game.agents}
            _, state, reward, dones, _ = step(KEY, state, moves)
            assert reward["agent_0"] == reward["agent_1"] == reward["__all__"]
            rewards.append(float(reward["agent_0"]))
            done = bool(dones["__all__"])
        assert sum(rewards) == 0  # at random all lives are lost
        mixed |= min(rewards) < 0
    assert mixed
