"""JaxMARL's environments through the adapter, against JaxMARL's own, step for step."""

import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_envs import Box, Discrete, MultiDiscrete, check_env, make
from jaxmarl_envs.adapters.incoming.jaxmarl import JaxMARL

UP, DOWN, RIGHT, LEFT, STAY, INTERACT = range(6)  # Overcooked
EAST, STOP, FIRST_TARGET = 1, 4, 5  # SMAX
NOTHING, SWITCH, TELL = range(3)  # switch riddle

# Options of the environments that are played at random beside JaxMARL's own, and the most steps.
GAMES = {
    "MPE_simple_spread_v3": ({}, 26),
    "MPE_simple_speaker_listener_v4": ({}, 26),
    "HeuristicEnemySMAX": ({"scenario": "3m"}, 101),
    "overcooked": ({"layout": "coord_ring", "max_steps": 30}, 30),
    "hanabi": ({"num_agents": 3, "shuffle_player_order": True}, 80),
    "switch_riddle": ({"num_agents": 4}, 10),
    "coin_game": ({"num_inner_steps": 4, "num_outer_steps": 3}, 12),
    "MPE_simple_world_comm_v3": ({"max_steps": 5}, 6),
    "SMAX": ({"scenario": "5m_vs_6m", "max_steps": 20}, 21),
    "storm_2p": ({"num_inner_steps": 20}, 20),
}


class Played:
    """An episode through the adapter; what it showed and gave, step by step."""

    def __init__(self, env, params, choose, max_steps, seed=0):
        self.env, self.params = env, params
        self.reset, self.step = quick_jit(env.reset_env), quick_jit(env.step_env)
        self.replay(choose, max_steps, seed)

    def replay(self, choose, max_steps, seed=0):
        """Play another one with what is compiled already."""
        key, *self.keys = jax.random.split(jax.random.key(seed), 1 + max_steps)
        self.reset_key = key
        obs, state = self.reset(key, self.params)
        self.observations, self.states, self.actions, results = [obs], [state], [], []
        rng = np.random.default_rng(seed)
        while obs.alive.any():
            time = len(self.actions)
            self.actions.append(choose(obs, time, rng))
            obs, state, *result, info = self.step(
                self.keys[time], state, self.actions[-1], self.params
            )
            self.observations.append(obs)
            self.states.append(state)
            results.append((*result, info["metrics"]))
        self.alive = np.stack([obs.alive for obs in self.observations])  # [T + 1, A]
        self.acts = np.stack([obs.agent_mask for obs in self.observations])  # [T + 1, A]
        self.masks = np.stack([obs.action_mask for obs in self.observations])  # [T + 1, A, N]
        *values, metrics = zip(*results, strict=True)
        self.reward, self.terminated, self.truncated = map(np.stack, values)  # [T, A]
        self.metrics = {name: np.stack([m[name] for m in metrics]) for name in metrics[0]}
        return self

    @property
    def length(self):
        return len(self.actions)


def at_random(env):
    """Uniform over what is legal, or within [0, 1]; anything for those who wait."""
    layout = env.action_layout(env.default_params)

    def choose(obs, time, rng):
        noise = rng.random(obs.action_mask.shape)
        if layout.is_numbers:
            return noise.astype(np.float32)
        legal = np.asarray(layout.pick(noise, obs.action_mask))
        return np.where(obs.agent_mask, legal, noise.argmax(-1)).astype(np.int32)

    return choose


def attack(obs, time, rng):
    """Shoot at the first target in range, else go east."""
    targets = np.asarray(obs.action_mask)[:, FIRST_TARGET:]
    return np.where(targets.any(1), FIRST_TARGET + targets.argmax(1), EAST).astype(np.int32)


def fight(obs, time, rng):
    """The same by those who live; anything by those who do not."""
    return np.where(obs.agent_mask, attack(obs, time, rng), rng.integers(0, 8, 3)).astype(np.int32)


@pytest.fixture(scope="module")
def played():
    """`played(env_id)`: one episode at random of each of `GAMES`, played once."""
    episodes = {}

    def play(env_id):
        if env_id not in episodes:
            options, max_steps = GAMES[env_id]
            env, params = make("jaxmarl", env_id=env_id, **options)
            choose = fight if env_id == "HeuristicEnemySMAX" else at_random(env)
            # With seed 3 the players' order is not its own inverse.
            seed = 3 if env_id == "hanabi" else 0
            episodes[env_id] = Played(env, params, choose, max_steps, seed)
        return episodes[env_id]

    return play


# ---- Ends and lives ------------------------------------------------------------------------------


@pytest.mark.rare_cases("overcooked", "MPE_simple_spread_v3")
@pytest.mark.parametrize("env_id", ["MPE_simple_spread_v3", "overcooked"])
def test_what_ends_by_time_alone_is_truncated_at_the_horizon(played, env_id):
    episode = played(env_id)
    assert episode.env.horizon(episode.params) == episode.length
    assert episode.truncated[-1].all()
    assert not episode.truncated[:-1].any()
    assert not episode.terminated.any()


@pytest.mark.rare
def test_hanabi_terminates_and_one_player_acts_at_a_step(played):
    episode = played("hanabi")
    assert episode.env.max_actors == 1
    assert episode.env.horizon(episode.params) is None
    np.testing.assert_array_equal(episode.acts[:-1].sum(1), np.ones(episode.length))
    turns = np.resize(episode.states[0].game.seat_order, episode.length)
    np.testing.assert_array_equal(turns[:3], [1, 2, 0])
    np.testing.assert_array_equal(episode.acts[:-1].argmax(1), turns)
    for t in range(episode.length):
        only_wait = episode.masks[t, :, -1]
        np.testing.assert_array_equal(only_wait, ~episode.acts[t])
        np.testing.assert_array_equal(episode.masks[t].sum(1)[only_wait], [1, 1])
    assert episode.terminated[-1].all()
    assert not episode.truncated.any()


def test_hanabi_of_a_version_without_seats_asks_who_is_marked():
    rules = make("jaxmarl", env_id="hanabi", num_agents=3)[0].rules
    state = types.SimpleNamespace(cur_player_idx=jnp.array([0, 0, 1]))
    np.testing.assert_array_equal(rules.acting(state), [False, False, True])
    state.seat_order = jnp.array([1, 2, 0])  # the last seat is player 0's
    np.testing.assert_array_equal(rules.acting(state), [True, False, False])


@pytest.mark.rare
def test_a_dead_unit_waits_and_earns_with_its_team(played):
    episode = played("HeuristicEnemySMAX")
    units = np.stack([state.game.state.unit_alive[:3] for state in episode.states])  # [T + 1, A]
    waits = ~units[:-1]
    assert waits.any()
    np.testing.assert_array_equal(episode.acts[:-1], units[:-1])
    np.testing.assert_array_equal(episode.masks[:-1][waits], [np.arange(8) == STOP] * waits.sum())
    assert (episode.reward[waits] > 0).any()
    assert episode.alive[:-1].all()
    assert not (episode.terminated | episode.truncated)[:-1].any()


@pytest.fixture(scope="module")
def battle():
    """Three marines against three that do not shoot, of at most 40 + 1 steps."""
    options = {"scenario": "3m", "enemy_shoots": False, "max_steps": 40}
    env, params = make("jaxmarl", env_id="HeuristicEnemySMAX", **options)
    return Played(env, params, attack, 41)


@pytest.mark.rare
def test_a_battle_that_is_won_terminates_and_is_counted(battle):
    battle.replay(attack, 41)
    assert battle.length < 41
    assert battle.terminated[-1].all()
    assert not battle.truncated.any()
    np.testing.assert_array_equal(battle.metrics["won"].sum(0), [1, 1, 1])
    np.testing.assert_array_equal(battle.metrics["won"][-1], [1, 1, 1])
    assert (battle.reward[-1] >= 1).all()
    np.testing.assert_allclose(battle.reward.sum(0), [2, 2, 2], rtol=1e-5)


def test_a_battle_out_of_time_is_truncated_and_not_won(battle):
    battle.replay(lambda obs, time, rng: np.full(3, STOP, np.int32), 41)
    assert battle.length == battle.env.horizon(battle.params) == 41
    assert battle.truncated[-1].all()
    assert not battle.terminated.any()
    assert not battle.metrics["won"].any()


def test_the_world_state_is_for_a_centralised_critic(battle, played):
    obs, state = battle.observations[1], battle.states[1]
    world_state = quick_jit(battle.env.game.get_world_state)(state.game)
    np.testing.assert_allclose(obs.state, world_state, rtol=1e-6)
    assert played("overcooked").observations[0].state is None


def test_who_tells_ends_the_riddle_and_the_last_day_cuts_it_off(played):
    episode = played("switch_riddle")
    limit = episode.env.horizon(episode.params)
    assert limit == 4 * 4 - 6
    episode.replay(lambda obs, time, rng: np.full(4, SWITCH, np.int32), limit)
    assert (episode.length, episode.truncated[-1].all()) == (limit, True)
    assert not episode.terminated.any()

    def tell(obs, time, rng):
        """Who is in the room tells on day 2, the others on all days, which nobody hears."""
        inside = np.asarray(obs.action_mask)[:, TELL]
        return np.where(inside & (time < 2), NOTHING, TELL).astype(np.int32)

    episode.replay(tell, limit)
    assert (episode.length, episode.terminated[-1].all()) == (3, True)
    assert not episode.truncated.any()
    inside = episode.masks[:, :, TELL]
    np.testing.assert_array_equal(inside.sum(1), np.ones(4))
    assert episode.masks[:, :, NOTHING].all()
    assert episode.acts[:-1].all()  # those outside count the days


def test_nothing_is_earned_after_the_end(battle):
    battle.replay(attack, 41)
    key, stop = jax.random.key(0), np.full(3, STOP, np.int32)
    obs, state, reward, terminated, truncated, info = battle.step(
        key, battle.states[-1], stop, battle.params
    )
    assert not reward.any()
    assert not info["metrics"]["won"].any()
    assert not obs.alive.any()
    assert not (terminated | truncated).any()
    assert state.over


# ---- Shaped rewards ------------------------------------------------------------------------------

# One cook of the cramped room fetches three onions, a plate and the soup, and delivers it.
_FETCH = [LEFT, INTERACT, RIGHT, UP, INTERACT]
_PLATE = [LEFT, DOWN, DOWN, INTERACT, UP, RIGHT, UP]
_SERVE = [INTERACT, DOWN, RIGHT, DOWN, INTERACT]
RECIPE = 3 * _FETCH + _PLATE + 20 * [STAY] + _SERVE


def cook(obs, time, rng):
    return np.array([RECIPE[time], STAY], np.int32)


@pytest.fixture(scope="module")
def kitchen():
    options = {"layout": "cramped_room", "max_steps": len(RECIPE)}
    env, params = make("jaxmarl", env_id="overcooked", shaped_reward=True, **options)
    params = params.replace(shaped_reward=jnp.float32(params.shaped_reward))
    return Played(env, params, cook, len(RECIPE))


def test_shaped_rewards_are_added_by_their_coefficient(kitchen):
    cook_s_shaped_return = 3 * 3 + 3 + 5  # onions, plate, soup
    for coefficient in (1.0, 0.5, 0.0):
        kitchen.params = kitchen.params.replace(shaped_reward=jnp.float32(coefficient))
        kitchen.replay(cook, len(RECIPE))
        np.testing.assert_allclose(
            kitchen.reward.sum(0), [20 + coefficient * cook_s_shaped_return, 20]
        )
        np.testing.assert_array_equal(kitchen.reward[-1], [20, 20])
        np.testing.assert_array_equal(kitchen.metrics["deliveries"].sum(0), [1, 1])
    assert kitchen.step._cache_size() == 1


def test_the_coefficient_is_a_parameter_only_where_it_counts(kitchen, played):
    assert kitchen.env.default_params.shaped_reward == 1
    assert jax.tree.leaves(played("hanabi").params) == []
    assert played("overcooked").params.shaped_reward == 0
    with pytest.raises(ValueError, match=r"shaped_reward=True has no effect: 'coin_game'"):
        JaxMARL("coin_game", shaped_reward=True)


# ---- Spaces --------------------------------------------------------------------------------------


def test_spaces_are_the_agents_own():
    env, params = make("jaxmarl", env_id="MPE_simple_speaker_listener_v4")
    assert env.agents == ("speaker_0", "listener_0")
    assert [env.observation_space(a, params).shape for a in env.agents] == [(3,), (11,)]
    assert env.action_spaces(params) == {"speaker_0": Discrete(3), "listener_0": Discrete(5)}
    with pytest.raises(ValueError, match=r"unknown agent 'x'.*speaker_0, listener_0"):
        env.observation_space("x", params)


def test_boxes_of_unequal_width_are_padded():
    options = {"env_id": "MPE_simple_speaker_listener_v4", "action_type": "Continuous"}
    env, params = make("jaxmarl", **options)
    speaker = env.action_space("speaker_0", params)
    assert isinstance(speaker, Box)
    assert (speaker.shape, env.action_layout(params).width) == ((3,), 5)
    obs, state = quick_jit(env.reset_env)(jax.random.key(0), params)
    np.testing.assert_array_equal(obs.action_mask, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    colours = np.where(np.arange(3) == state.game.goal, 0.65, 0.15)
    np.testing.assert_allclose(obs.features[0], [*colours, *[0] * 8], rtol=1e-6)
    assert obs.features.shape == (2, 11)


class Mixed:
    """A JaxMARL environment whose agents have actions of different kinds, which are what pays."""

    agents = ("picks", "moves", "pair")

    def action_space(self, agent):
        from jaxmarl.environments import spaces

        return {
            "picks": spaces.Discrete(4),
            "moves": spaces.Box(-1.0, 2.0, (2,)),
            "pair": spaces.MultiDiscrete([2, 3]),
        }[agent]

    def observation_space(self, agent):
        from jaxmarl.environments import spaces

        return spaces.Box(0.0, 10.0, (1,))

    def _seen(self, time):
        return {agent: jnp.float32(time)[None] for agent in self.agents}

    def reset(self, key):
        return self._seen(0), jnp.int32(0)

    def step_env(self, key, state, actions):
        time = state + 1
        reward = {
            "picks": actions["picks"],
            "moves": actions["moves"] @ jnp.array([1.0, 10.0]),
            "pair": actions["pair"] @ jnp.array([1, 10]),
        }
        done = dict.fromkeys((*self.agents, "__all__"), time >= 3)
        return self._seen(time), time, reward, done, {}


def test_agents_may_have_several_choices_or_differ_in_kind(monkeypatch):
    jaxmarl = pytest.importorskip("jaxmarl")
    monkeypatch.setattr(jaxmarl, "registered_envs", ["mixed"])
    monkeypatch.setattr(jaxmarl, "make", lambda env_id: Mixed())
    env, params = make("jaxmarl", env_id="mixed")
    assert env.action_space("pair", params) == MultiDiscrete([2, 3])
    layout = env.action_layout(params)
    obs, state = env.reset_env(jax.random.key(0), params)
    np.testing.assert_array_equal(obs.action_mask, layout.exists)
    rng, num_steps = np.random.default_rng(0), 0
    while obs.alive.any():
        action = layout.pick(rng.random(layout.exists.shape), layout.exists)
        obs, state, reward, *_ = env.step_env(jax.random.key(1), state, action, params)
        picks, (x, y), (i, j) = (layout.own(action, slot) for slot in range(3))
        np.testing.assert_allclose(reward, [picks, x + 10 * y, i + 10 * j], rtol=1e-6)
        num_steps += 1
    assert num_steps == 3
    check_env(env, params, num_steps=8, num_envs=2)


def test_other_kinds_of_actions_are_refused(monkeypatch):
    jaxmarl = pytest.importorskip("jaxmarl")

    class Nested(Mixed):
        def action_space(self, agent):
            from jaxmarl.environments import spaces

            return spaces.Tuple([spaces.Discrete(2)])

    monkeypatch.setattr(jaxmarl, "registered_envs", ["nested"])
    monkeypatch.setattr(jaxmarl, "make", lambda env_id: Nested())
    with pytest.raises(ValueError, match="Tuple of JaxMARL: valid kinds are Discrete, Multi"):
        make("jaxmarl", env_id="nested")


def test_what_is_really_seen_counts_where_jaxmarl_declares_another_shape():
    env, params = make("jaxmarl", env_id="MPE_simple_facmac_6a_v1")
    assert env.game.observation_space("agent_0").shape == (16,)
    assert env.observation_space("agent_0", params).shape == (28,)


def test_planes_are_kept_or_flattened(played):
    flat = played("overcooked")
    options = GAMES["overcooked"][0]
    env, params = make("jaxmarl", env_id="overcooked", planes=True, **options)
    obs, _ = quick_jit(env.reset_env)(flat.reset_key, params)
    assert env.observation_space("agent_0", params).shape == obs.features.shape[1:] == (5, 5, 26)
    np.testing.assert_array_equal(obs.features.reshape(2, -1), flat.observations[0].features)


def test_planes_of_what_is_flat_are_refused():
    with pytest.raises(ValueError, match=r"planes=True.*'switch_riddle'.*\(2,\).*rows, cols"):
        JaxMARL("switch_riddle", planes=True)
    with pytest.raises(ValueError, match="planes='yes': planes must be True or False"):
        JaxMARL("switch_riddle", planes="yes")


# ---- The contract --------------------------------------------------------------------------------

CHECKED = {
    "MPE_simple_spread_v3": {},
    "switch_riddle": {},
    "MPE_simple_speaker_listener_v4": {},
    "MPE_simple_tag_v3": {},
    "HeuristicEnemySMAX": {"scenario": "3m"},
    "overcooked": {"max_steps": 50},
    "overcooked_v2": {"max_steps": 50},
    "hanabi": {},
    "coin_game": {},
}


@pytest.mark.parametrize(
    "env_id",
    [
        pytest.param(env_id, marks=pytest.mark.rare) if env_id != "switch_riddle" else env_id
        for env_id in CHECKED
    ],
)
def test_the_contract_is_kept(env_id):
    report = check_env(make("jaxmarl", env_id=env_id, **CHECKED[env_id])[0])
    assert report.num_episodes >= 4
    assert min(report.num_decisions.values()) > 0


# ---- Building, and building again ----------------------------------------------------------------


def test_a_run_can_build_it_again():
    options = {"scenario": "2s3z", "walls_cause_death": False, "planes": False}
    env, params = make("jaxmarl", env_id="HeuristicEnemySMAX", **options)
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, _ = make(name, **kwargs)
    assert (again.name, again.agents) == (env.name, env.agents)
    assert (again.game.num_enemies, again.game.walls_cause_death) == (5, False)
    assert again.observation_space("ally_0", params).shape == (127,)


def test_lists_stand_for_arrays():
    accel = [1.0, 2.0, 3.0]
    assert JaxMARL("MPE_simple_spread_v3", accel=accel).game.accel.tolist() == accel
    payoff = [[1, 2, -3], [1, 1, -2]]
    assert JaxMARL("coin_game", payoff_matrix=payoff).game.payoff_matrix == payoff


def test_an_unknown_id_names_the_closest_and_all_valid_ids():
    with pytest.raises(ValueError, match="unknown env_id 'MPE_simple_spread'") as error:
        JaxMARL("MPE_simple_spread")
    assert "did you mean 'MPE_simple_spread_v3'?" in str(error.value)
    assert "hanabi, overcooked, " in str(error.value)


@pytest.mark.parametrize(
    ("env_id", "options", "complaint"),
    [
        ("MPE_simple_spread_v3", {"mapp": 1}, "no option 'mapp'.* max_steps,.* local_ratio,.* rad"),
        ("HeuristicEnemySMAX", {"mapp": 1}, "no option 'mapp'.* scenario,.* enemy_shoots"),
        ("hanabi", {"mapp": 1}, "no option 'mapp'.* num_colors"),
        ("HeuristicEnemySMAX", {"scenario": "4m"}, "scenario='4m'.*valid names: 3m, 2s3z"),
        ("overcooked", {"layout": "big"}, "layout='big'.*valid names: cramped_room"),
        ("overcooked_v2", {"layout": "big"}, "layout='big'.*valid names: cramped_room"),
        ("switch_riddle", {"num_agents": 2}, "cannot be built.*'num_agents': 2.*minimum number"),
        ("MPE_simple_spread_v3", {"dim_c": 3}, "cannot be built.*dim_c"),
        ("LearnedPolicyEnemySMAX", {}, "needs the options policy, params"),
    ],
)
def test_options_that_jaxmarl_does_not_take_are_named(env_id, options, complaint):
    with pytest.raises(ValueError, match=f"{env_id}.*{complaint}|{complaint}"):
        JaxMARL(env_id, **options)
