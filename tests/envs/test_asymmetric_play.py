"""`asymmetric_play`: hand-played episodes, a plain-Python game as oracle, the tables of `Rooms`."""

from collections import deque
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_envs import Discrete, check_env
from jaxmarl_envs.asymmetric_play import (
    ALICE,
    BOB,
    DOWN,
    LEFT,
    MODES,
    RIGHT,
    STOP,
    TOGGLE,
    UP,
    AsymmetricPlay,
    Rooms,
    shortest_paths,
)

# The default rooms; `+` door, `d` and `l` switches of doors and lamps.
#
#     d . # d . # . .
#     . l + . l + . l
SIZES = (3, 2, 2)
DARK = (False,) * 5
LAMP_0 = (False, False, True, False, False)
DOOR_0 = (True, False, False, False, False)
NUM_EPISODES = 96


# ---- The rooms again, in plain Python ------------------------------------------------------------


class PlainRooms:
    """A world is `(row, col, switched)`, doors before lamps."""

    def __init__(self, num_rooms, rows, cols):
        self.num_bits = 2 * num_rooms - 1
        self.home = (0, 0, (False,) * self.num_bits)
        self.doors, self.switches, self.floor = {}, {}, set()
        for room in range(num_rooms):
            left = room * (cols + 1)
            self.floor |= {(row, left + col) for row in range(rows) for col in range(cols)}
            self.switches[rows - 1, left + cols - 1] = num_rooms - 1 + room
            if room < num_rooms - 1:
                self.doors[rows // 2, left + cols] = room
                self.switches[0, left] = room
        self.floor |= set(self.doors)

    def act(self, world, action):
        row, col, switched = world
        if action in (UP, DOWN, LEFT, RIGHT):
            row += {UP: -1, DOWN: 1}.get(action, 0)
            col += {LEFT: -1, RIGHT: 1}.get(action, 0)
            shut = (row, col) in self.doors and not switched[self.doors[row, col]]
            return world if shut or (row, col) not in self.floor else (row, col, switched)
        if action == TOGGLE and (row, col) in self.switches:
            bit = self.switches[row, col]
            return row, col, (*switched[:bit], not switched[bit], *switched[bit + 1 :])
        return world

    def distances(self, start):
        """Breadth-first search."""
        distance, queue = {start: 0}, deque([start])
        while queue:
            world = queue.popleft()
            for action in range(6):
                after = self.act(world, action)
                if after not in distance:
                    distance[after] = distance[world] + 1
                    queue.append(after)
        return distance

    def picture(self, world):
        row, col, switched = world
        places = sorted(self.floor)
        return [*(float((row, col) == place) for place in places), *map(float, switched)]


@dataclass
class PlainGame:
    """One episode by the rules of the paper, with `gamma` as `scale`."""

    rooms: PlainRooms
    mode: str
    start: tuple
    max_alice_steps: int
    max_steps: int
    scale: float
    world: tuple = None
    goal: tuple = None
    turn: int = ALICE
    times: list = field(default_factory=lambda: [0, 0])
    over: bool = False

    def __post_init__(self):
        self.world = self.goal = self.start

    def legal(self):
        legal = np.zeros((2, 6), bool)
        legal[:, :5] = [self.rooms.act(self.world, action) != self.world for action in range(5)]
        legal[ALICE, STOP] = self.world != self.start
        return legal

    def features(self):
        times = [
            self.times[ALICE] / self.max_alice_steps,
            self.times[BOB] / self.max_steps,
            (self.max_steps - sum(self.times)) / self.max_steps,
        ]
        return [
            [*self.rooms.picture(self.world), *self.rooms.picture(other), *times]
            for other in (self.start, self.goal)
        ]

    def step(self, actions):
        """The rewards, success, task length and shortest solution that this step brings."""
        action = actions[self.turn]
        self.world = self.rooms.act(self.world, action)
        self.times[self.turn] += 1
        shortest = 0
        if self.turn == ALICE:
            if self.mode == "repeat":
                self.goal = self.world
            limit = min(self.max_alice_steps, self.max_steps)
            if action == STOP or self.times[ALICE] == limit:
                self.turn = BOB
                if self.mode == "repeat":
                    self.world = self.start
                shortest = self.rooms.distances(self.world)[self.goal]
        solved = self.turn == BOB and self.world == self.goal
        self.over = solved or sum(self.times) == self.max_steps
        if not self.over:
            return [0, 0], 0, 0, shortest
        t_alice, t_bob = self.times
        rewards = [self.scale * max(0, t_bob - t_alice), -self.scale * t_bob]
        return rewards, float(solved), t_alice, shortest


# ---- Playing the environment ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def games():
    """`games[mode]`: the environment, and its compiled reset and step."""
    built = {}
    for mode in MODES:
        env = AsymmetricPlay(mode)
        built[mode] = (env, quick_jit(env.reset_env), quick_jit(env.step_env))
    return built


@dataclass
class Record:
    """What happened at each step, and the state after it."""

    actors: list = field(default_factory=list)  # who acted
    worlds: list = field(default_factory=list)  # where the world went, as `(row, col, switched)`
    rewards: list = field(default_factory=list)
    terminated: list = field(default_factory=list)
    metrics: list = field(default_factory=list)
    obs: object = None
    state: object = None


def begin(game, params, world):
    """An episode that begins in the given world."""
    env, reset, _ = game
    _, state = reset(jax.random.key(0), params)
    number = jnp.int32(env.rooms.world(*world))
    return state.replace(world=number, start=number, goal=number)


def numbered(env, state):
    rooms, world = env.rooms, int(state.world)
    row, col = rooms.positions[rooms.place[world]].tolist()
    return row, col, tuple(rooms.switched[world].tolist())


def play(game, params, world, actions, waiting=STOP):
    """Feed actions one per step to whoever's turn it is; the other slot gets `waiting`."""
    env, _, step = game
    state = begin(game, params, world)
    record = Record()
    for action in actions:
        actor = int(state.bobs_turn)
        both = jnp.full(2, waiting).at[actor].set(action)
        obs, state, reward, terminated, truncated, info = step(
            jax.random.key(0), state, both, params
        )
        assert not truncated.any()
        record.actors.append("AB"[actor])
        record.worlds.append(numbered(env, state))
        record.rewards.append(np.asarray(reward).tolist())
        record.terminated.append(np.asarray(terminated).tolist())
        record.metrics.append({name: v.tolist() for name, v in info["metrics"].items()})
        record.obs, record.state = obs, state
    return record


def totals(record):
    names = ("success", "task_length", "shortest")
    return {name: np.sum([m[name] for m in record.metrics], axis=0).tolist() for name in names}


def limits(game, max_alice_steps, max_steps, reward_scale=0.25):
    return game[0].default_params.replace(
        max_alice_steps=max_alice_steps, max_steps=max_steps, reward_scale=reward_scale
    )


def ends_on_its_last_step(record):
    num = len(record.actors)
    assert record.terminated == [[False, False]] * (num - 1) + [[True, True]]
    assert record.rewards[:-1] == [[0.0, 0.0]] * (num - 1)
    assert not record.obs.alive.any()
    assert not record.obs.agent_mask.any()


# ---- Hand-played episodes ------------------------------------------------------------------------


def test_bob_undoes_what_alice_did_before_she_stopped(games):
    game = games["reverse"]
    record = play(game, limits(game, 9, 20), (0, 1, DARK), [DOWN, TOGGLE, STOP, TOGGLE, UP])
    assert "".join(record.actors) == "AAABB"
    assert record.worlds == [
        (1, 1, DARK),
        (1, 1, LAMP_0),
        (1, 1, LAMP_0),
        (1, 1, DARK),
        (0, 1, DARK),
    ]
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.0, -0.5]  # 2 steps against 3
    assert totals(record) == {"success": [1, 1], "task_length": [3, 3], "shortest": [2, 2]}


def test_alice_who_uses_all_her_steps_acts_on_the_last_one_too(games):
    game = games["reverse"]
    actions = [DOWN, TOGGLE, LEFT, RIGHT, TOGGLE, LEFT, UP, RIGHT]
    record = play(game, limits(game, 2, 20), (0, 1, DARK), actions)
    assert "".join(record.actors) == "AABBBBBB"
    assert record.worlds[1] == (1, 1, LAMP_0)
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [1.0, -1.5]  # 6 steps against 2
    assert totals(record) == {"success": [1, 1], "task_length": [2, 2], "shortest": [2, 2]}


def test_bob_who_runs_out_of_time_has_used_all_that_alice_left(games):
    game = games["reverse"]
    actions = [DOWN, TOGGLE, STOP, UP, DOWN, UP, DOWN, UP]
    record = play(game, limits(game, 9, 8), (0, 1, DARK), actions)
    assert "".join(record.actors) == "AAABBBBB"
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.5, -1.25]  # t_bob = 8 - 3, so 5 against 3
    assert totals(record) == {"success": [0, 0], "task_length": [3, 3], "shortest": [2, 2]}


def test_bob_may_finish_on_the_last_step(games):
    game = games["reverse"]
    record = play(game, limits(game, 2, 4), (0, 1, DARK), [DOWN, TOGGLE, TOGGLE, UP])
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.0, -0.5]
    assert totals(record)["success"] == [1, 1]


def test_bob_repeats_what_alice_did_from_where_she_began(games):
    game = games["repeat"]
    record = play(game, limits(game, 9, 20), (0, 0, DARK), [DOWN, UP, TOGGLE, STOP, TOGGLE])
    assert "".join(record.actors) == "AAAAB"
    assert record.worlds[2:] == [(0, 0, DOOR_0), (0, 0, DARK), (0, 0, DOOR_0)]
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.0, -0.25]
    assert totals(record) == {"success": [1, 1], "task_length": [4, 4], "shortest": [1, 1]}


def test_the_limit_ends_alices_turn_in_repeat_mode_too(games):
    game = games["repeat"]
    record = play(game, limits(game, 1, 5), (0, 0, DARK), [TOGGLE, DOWN, UP, DOWN, UP])
    assert "".join(record.actors) == "ABBBB"
    assert record.worlds[0] == (0, 0, DARK)
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.75, -1.0]  # t_bob = 5 - 1, so 4 against 1
    assert totals(record) == {"success": [0, 0], "task_length": [1, 1], "shortest": [1, 1]}


@pytest.mark.parametrize("mode", MODES)
def test_where_there_is_nothing_to_do_the_episode_ends_with_alices_turn(games, mode):
    game = games[mode]
    at_once = play(game, limits(game, 9, 20), (0, 1, DARK), [STOP])
    back_again = play(game, limits(game, 2, 20), (0, 1, DARK), [DOWN, UP])
    for record, num_steps in ((at_once, 1), (back_again, 2)):
        assert "".join(record.actors) == "A" * num_steps
        ends_on_its_last_step(record)
        assert record.rewards[-1] == [0.0, 0.0]
        expected = {"success": [1, 1], "task_length": [num_steps] * 2, "shortest": [0, 0]}
        assert totals(record) == expected


@pytest.mark.parametrize("mode", MODES)
def test_alice_may_use_up_the_time_of_both(games, mode):
    game = games[mode]
    record = play(game, limits(game, 9, 2), (0, 1, DARK), [DOWN, TOGGLE])
    ends_on_its_last_step(record)
    assert record.rewards[-1] == [0.0, 0.0]
    assert totals(record) == {"success": [0, 0], "task_length": [2, 2], "shortest": [2, 2]}


@pytest.mark.parametrize("mode", MODES)
def test_an_action_that_changes_nothing_costs_a_step(games, mode):
    game = games[mode]
    actions = [UP, TOGGLE, RIGHT, DOWN, STOP]  # a wall, no switch, a wall, a move
    record = play(game, limits(game, 9, 20), (0, 1, DARK), actions, waiting=DOWN)
    assert [world[:2] for world in record.worlds[:4]] == [(0, 1), (0, 1), (0, 1), (1, 1)]
    after = (1, 1, DARK) if mode == "reverse" else (0, 1, DARK)
    assert record.worlds[4] == after
    record = play(game, limits(game, 9, 20), (0, 1, DARK), [*actions, STOP, STOP], waiting=DOWN)
    assert record.worlds[5:] == [after, after]  # Bob has no such action
    assert (int(record.state.alice_time), int(record.state.bob_time)) == (5, 2)


def test_a_shut_door_is_a_wall(games):
    game = games["reverse"]
    for switched, col in ((DARK, 1), (DOOR_0, 3)):
        record = play(game, limits(game, 9, 20), (1, 1, switched), [RIGHT, RIGHT])
        assert record.worlds[-1] == (1, col, switched)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_over_stays_as_it_is(games, mode):
    game = games[mode]
    params = limits(game, 9, 3)
    record = play(game, params, (0, 1, DARK), [DOWN, STOP, RIGHT, DOWN, LEFT, STOP])
    assert record.terminated == [[False] * 2] * 2 + [[True] * 2] + [[False] * 2] * 3
    assert record.rewards[3:] == [[0.0, 0.0]] * 3
    assert totals(record)["task_length"] == [2, 2]
    assert record.worlds[3:] == [record.worlds[2]] * 3
    assert not record.obs.alive.any()


# ---- Against the plain game ----------------------------------------------------------------------


def random_episodes(mode, max_alice_steps, max_steps):
    """Legal random play of many episodes, `[T, E, ...]` with the observation and state before."""
    env = AsymmetricPlay(mode)
    params = env.default_params.replace(max_alice_steps=max_alice_steps, max_steps=max_steps)

    def time_step(carry, key):
        obs, state = carry
        logits = jnp.where(obs.action_mask, 0.0, -jnp.inf)
        # Alice seldom stops, so that her tasks are of all lengths.
        logits = logits.at[:, ALICE, STOP].add(-2.0)
        action = jax.random.categorical(key, logits)
        step = jax.vmap(env.step_env, in_axes=(None, 0, 0, None))
        stepped = step(key, state, action, params)
        return stepped[:2], (obs, state, action, stepped)

    def run(key):
        key_reset, key_play = jax.random.split(key)
        keys = jax.random.split(key_reset, NUM_EPISODES)
        begun = jax.vmap(env.reset_env, in_axes=(0, None))(keys, params)
        return jax.lax.scan(time_step, begun, jax.random.split(key_play, max_steps))[1]

    return env, params, jax.device_get(quick_jit(run)(jax.random.key(0)))


@pytest.fixture(scope="module", params=MODES)
def episodes(request):
    return request.param, *random_episodes(request.param, max_alice_steps=14, max_steps=30)


@pytest.mark.rare_cases("reverse")
def test_random_episodes_equal_the_plain_game(episodes):
    mode, env, params, (obs, state, action, stepped) = episodes
    rooms = PlainRooms(*SIZES)
    seen, successes = set(), set()
    for e in range(NUM_EPISODES):
        start = numbered(env, jax.tree.map(lambda x, e=e: x[0, e], state))
        game = PlainGame(rooms, mode, start, 14, 30, params.reward_scale)
        for t in range(30):
            at = (t, e)
            np.testing.assert_allclose(obs.features[at], game.features(), rtol=1e-6, atol=1e-7)
            np.testing.assert_array_equal(obs.action_mask[at], game.legal())
            np.testing.assert_array_equal(obs.alive[at], [not game.over] * 2)
            acts = [not game.over and game.turn == agent for agent in (ALICE, BOB)]
            np.testing.assert_array_equal(obs.agent_mask[at], acts)
            reward, terminated = stepped[2][at], stepped[3][at]
            metrics = {name: value[at] for name, value in stepped[5]["metrics"].items()}
            expected = ([0, 0], 0, 0, 0) if game.over else game.step(action[at])
            ended = game.over and acts != [False, False]
            np.testing.assert_allclose(reward, expected[0], rtol=1e-6)
            np.testing.assert_array_equal(terminated, [ended] * 2)
            for name, value in zip(
                ("success", "task_length", "shortest"), expected[1:], strict=True
            ):
                np.testing.assert_array_equal(metrics[name], [value] * 2)
            if ended:
                successes.add(expected[1])
        seen.add(game.times[ALICE])
    assert len(seen) > 8  # turns of many lengths, up to the limit
    assert max(seen) == 14
    assert successes == {0.0, 1.0}


def test_bob_begins_where_alice_ended_or_where_she_began(episodes):
    mode, _, _, (_, state, action, stepped) = episodes
    after = stepped[1]
    handed_over = ~state.bobs_turn & after.bobs_turn  # [T, E]
    assert (handed_over.sum(axis=0) == 1).all()
    begun = after.world[handed_over]
    # What Alice saw before her last action, and what that action made of it.
    last = Rooms(*SIZES).next_world[state.world[handed_over], action[..., ALICE][handed_over]]
    start = state.start[handed_over]
    if mode == "reverse":
        np.testing.assert_array_equal(begun, last)
        np.testing.assert_array_equal(after.goal[handed_over], start)
    else:
        np.testing.assert_array_equal(begun, start)
        np.testing.assert_array_equal(after.goal[handed_over], last)
    assert (last != start).mean() > 0.8


@pytest.mark.parametrize("mode", MODES)
def test_a_bob_who_takes_shortest_paths_leaves_alice_nothing(mode):
    env, params = AsymmetricPlay(mode), AsymmetricPlay(mode).default_params
    distance, next_world = jnp.asarray(env.rooms.distance), jnp.asarray(env.rooms.next_world)

    def time_step(carry, key):
        obs, state = carry
        random = jax.random.categorical(key, jnp.where(obs.action_mask[ALICE], 0.0, -jnp.inf))
        best = distance[next_world[state.world, :STOP], state.goal].argmin()
        stepped = env.step_env(key, state, jnp.stack([random, best]), params)
        return stepped[:2], (stepped[2], stepped[5]["metrics"], stepped[1])

    def run(key):
        key_reset, key_play = jax.random.split(key)
        keys = jax.random.split(key_play, params.max_steps)
        return jax.lax.scan(time_step, env.reset_env(key_reset, params), keys)[1]

    run = quick_jit(jax.vmap(run))
    reward, metrics, state = jax.device_get(run(jax.random.split(jax.random.key(1), 256)))
    np.testing.assert_array_equal(reward[..., ALICE], 0.0)
    total = {name: value.sum(axis=1)[:, BOB] for name, value in metrics.items()}
    np.testing.assert_array_equal(total["success"], 1.0)
    np.testing.assert_array_equal(state.bob_time[:, -1], total["shortest"])
    np.testing.assert_allclose(
        reward[..., BOB].sum(1), -params.reward_scale * total["shortest"], rtol=1e-6
    )
    assert (total["shortest"] <= total["task_length"]).all()
    assert total["shortest"].max() > 5


# ---- The tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1, 2), (1, 3, 3), (2, 2, 1), (2, 3, 2), (3, 1, 3), SIZES])
def test_tables_equal_the_plain_rooms(sizes):
    rooms, plain = Rooms(*sizes), PlainRooms(*sizes)
    reached = plain.distances(plain.home)
    places = rooms.positions[rooms.place]
    worlds = [
        (*place, tuple(bits))
        for place, bits in zip(places.tolist(), rooms.switched.tolist(), strict=True)
    ]
    assert worlds[0] == plain.home
    assert set(worlds) == set(reached)
    assert len(worlds) == len(reached) == rooms.num_worlds
    number = {world: i for i, world in enumerate(worlds)}
    expected = [[number[plain.act(world, action)] for action in range(6)] for world in worlds]
    np.testing.assert_array_equal(rooms.next_world, expected)
    for world in worlds[:: max(1, len(worlds) // 40)]:
        distance = plain.distances(world)
        row = rooms.distance[number[world]]
        np.testing.assert_array_equal(row, [distance[other] for other in worlds])
    np.testing.assert_array_equal(rooms.distance, rooms.distance.T)
    assert [rooms.world(*world) for world in worlds] == list(range(len(worlds)))


def test_shortest_paths_of_a_one_way_ring_and_an_island():
    next_state = np.array([[1, 0], [2, 1], [0, 2], [3, 3]])
    expected = [[0, 1, 2, -1], [2, 0, 1, -1], [1, 2, 0, -1], [-1, -1, -1, 0]]
    np.testing.assert_array_equal(shortest_paths(next_state), expected)


def test_a_world_that_cannot_come_about_has_no_number():
    rooms = Rooms(*SIZES)
    for row, col, switched in ((0, 2, DARK), (1, 3, DARK), (0, 0, (*DARK, True))):
        with pytest.raises(ValueError, match=rf"row={row}, col={col}.*no such world"):
            rooms.world(row, col, switched)


# ---- The environment as a whole ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_it_keeps_the_contract(mode):
    report = check_env(AsymmetricPlay(mode, num_rooms=2, room_rows=1, room_cols=2), num_steps=80)
    assert report.num_episodes > 4
    assert all(report.num_decisions.values())


def test_alice_finds_every_world_equally_often():
    env = AsymmetricPlay(num_rooms=1)
    keys = jax.random.split(jax.random.key(5), 8000)
    _, state = quick_jit(jax.vmap(env.reset_env, in_axes=(0, None)))(keys, env.default_params)
    counts = np.bincount(np.asarray(state.start), minlength=env.rooms.num_worlds)
    mean = 8000 / env.rooms.num_worlds
    assert len(counts) == env.rooms.num_worlds == 8
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


def test_limits_are_leaves_that_need_no_second_compilation():
    env = AsymmetricPlay()
    step = quick_jit(env.step_env)
    game = (env, quick_jit(env.reset_env), step)
    for max_steps in (3, 4):
        params = limits(game, 1, max_steps)
        assert env.horizon(params) == max_steps
        actions = [TOGGLE, DOWN, UP, DOWN][:max_steps]
        ends_on_its_last_step(play(game, params, (0, 0, DARK), actions))
    assert step._cache_size() == 1


def test_declarations():
    env = AsymmetricPlay()
    params = env.default_params
    assert env.agents == ("alice", "bob")
    assert env.max_actors == 1
    assert env.action_spaces(params) == {"alice": Discrete(6), "bob": Discrete(5)}
    for agent in env.agents:
        assert env.observation_space(agent, params).shape == (2 * (14 + 5) + 3,)
    assert params.max_alice_steps == 31
    assert env.horizon(params) == params.max_steps == 93
    for space in (env.observation_space, env.action_space):
        with pytest.raises(ValueError, match=r"unknown agent 'eve'.*alice, bob"):
            space("eve", params)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"mode": "forwards"}, r"mode='forwards'.*reverse, repeat"),
        ({"num_rooms": 0}, r"num_rooms=0: .*at least 1"),
        ({"num_rooms": True}, r"num_rooms=True: .*integer"),
        ({"room_rows": 2.0}, r"room_rows=2.0: .*integer"),
        ({"room_cols": -1}, r"room_cols=-1: .*at least 1"),
        ({"room_rows": 1, "room_cols": 1}, r"room_rows=1, room_cols=1: .*at least 2 places"),
        ({"num_rooms": 4, "room_rows": 3, "room_cols": 3}, r"2,272 worlds.*more than 2,048"),
        ({"num_rooms": 60}, r"num_rooms=60.*more than 2,048"),
    ],
)
def test_what_cannot_be_built_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        AsymmetricPlay(**kwargs)


@pytest.mark.parametrize("sizes", [(1, 1, 2), (2, 3, 2), (3, 2, 3), (4, 1, 2)])
def test_the_refusal_counts_the_worlds_right(monkeypatch, sizes):
    num_worlds = Rooms(*sizes).num_worlds
    monkeypatch.setattr("jaxmarl_envs.asymmetric_play.env.MAX_WORLDS", num_worlds)
    assert AsymmetricPlay("reverse", *sizes).rooms.num_worlds == num_worlds
    monkeypatch.setattr("jaxmarl_envs.asymmetric_play.env.MAX_WORLDS", num_worlds - 1)
    with pytest.raises(ValueError, match=f"make {num_worlds} worlds, more than {num_worlds - 1}"):
        AsymmetricPlay("reverse", *sizes)
