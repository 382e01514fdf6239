"""Jumanji's environments through the adapter, against Jumanji's own, step for step."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import status_of
from jumanji_games import GAMES, GRID
from probe_envs import quick_jit

from jaxmarl_envs import Box, Discrete, MultiDiscrete, check_env, from_jumanji, make
from jaxmarl_envs.permission import NotPermitted, importing_only
from jaxmarl_ppo import load_run

jumanji = pytest.importorskip("jumanji")

TEAMS = (*GAMES,)[:5]


class Played:
    """Episodes through the adapter, compiled once, beside the game's own functions."""

    def __init__(self, env_id, at_time_limit=None, **options):
        self.env, self.params = make(
            "jumanji", env_id=env_id, at_time_limit=at_time_limit, **options
        )
        self.layout = self.env.action_layout(self.params)
        self.reset, self.step = quick_jit(self.env.reset_env), quick_jit(self.env.step_env)

    def replay(self, choose=None, seed=0):
        """Play an episode by `choose(obs, rng)`, by default at random among what is legal."""
        rng = np.random.default_rng(seed)
        key = jax.random.key(seed)
        obs, state = self.reset(key, self.params)
        self.reset_key, self.observations, self.states = key, [obs], [state]
        self.actions, results = [], []
        while obs.alive.any():
            action = self.at_random(obs, rng) if choose is None else choose(obs, rng)
            obs, state, *result, info = self.step(key, state, action, self.params)
            self.actions.append(action)
            self.observations.append(obs)
            self.states.append(state)
            results.append((*result, info["metrics"]))
        *values, self.metrics = zip(*results, strict=True)
        self.reward, self.terminated, self.truncated = map(np.stack, values)  # [T, A]
        self.acts = np.stack([obs.agent_mask for obs in self.observations])  # [T + 1, A]
        self.length = len(self.actions)
        return self

    def at_random(self, obs, rng):
        return self.layout.pick(rng.random(obs.action_mask.shape), np.asarray(obs.action_mask))


@pytest.fixture(scope="module")
def played():
    """`played(env_id, **options)`: each built and compiled once, those of `GAMES` by default."""
    known = {}

    def build(env_id, **options):
        name = json.dumps([env_id, options])
        if name not in known:
            known[name] = Played(env_id, **{**GAMES.get(env_id, {}), **options})
        return known[name]

    return build


def still(obs, rng):
    """Action 0 of everybody: nothing, but for Cleaner."""
    return np.zeros(len(obs.alive), np.int32)


def own_game(env_id):
    """Jumanji's environment, without the adapter."""
    options = dict(GAMES[env_id])
    if "generator" in options:
        default = jumanji.make(env_id)
        kind = type(getattr(default, "generator", None) or default._generator)
        options["generator"] = kind(**options["generator"])
    return jumanji.make(env_id, **options)


# ---- Metrics -------------------------------------------------------------------------------------


def test_metrics_are_jumanji_s_extras_at_the_end(played):
    game, episode = own_game("Connector-v3"), played("Connector-v3").replay()
    step = quick_jit(game.step)
    state, timestep = quick_jit(game.reset)(episode.reset_key)
    for action, metrics in zip(episode.actions, episode.metrics, strict=True):
        state, timestep = step(state, jnp.asarray(action))
        assert set(metrics) == {n for n, value in timestep.extras.items() if jnp.ndim(value) == 0}
        for name, found in metrics.items():
            expected = float(timestep.extras[name]) if timestep.last() else 0.0
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert timestep.last()


# ---- Ends ----------------------------------------------------------------------------------------

# Whether an end by time alone is a truncation by Jumanji's own discount.
CUT_OFF = {
    "RobotWarehouse-v0": False,
    "LevelBasedForaging-v0": True,
    "Connector-v3": True,
    "SearchAndRescue-v0": False,
    "MMST-v0": False,
    "Maze-v0": False,
    "PacMan-v1": False,
    "RubiksCube-partly-scrambled-v0": False,
    "SlidingTilePuzzle-v0": False,
    "Snake-v1": False,
    "Tetris-v0": False,
}


@pytest.mark.rare_cases(*(name for name in CUT_OFF if name != "Connector-v3"))
@pytest.mark.parametrize("env_id", CUT_OFF)
def test_an_end_by_time_is_read_from_the_discount(played, env_id):
    is_short = env_id in GAMES and env_id != "Tetris-v0"
    episode = played(env_id, **({} if is_short else {"time_limit": 3}))
    episode.replay(still if env_id in TEAMS[:3] else None)
    assert episode.length == episode.env.horizon(())
    assert not (episode.terminated | episode.truncated)[:-1].any()
    np.testing.assert_array_equal(episode.truncated[-1], CUT_OFF[env_id])
    np.testing.assert_array_equal(episode.terminated[-1], not CUT_OFF[env_id])


# Whether an illegal action ends the episode.
ENDS_BY_ILLEGAL = {
    "RobotWarehouse-v0": False,
    "LevelBasedForaging-v0": False,
    "Connector-v3": False,
    "Cleaner-v0": True,
    "BinPack-v2": True,
    "CVRP-v1": True,
    "FlatPack-v0": False,
    "Game2048-v1": False,
    "GraphColoring-v1": True,
    "JobShop-v0": True,
    "Knapsack-v1": True,
    "MMST-v0": False,
    "Maze-v0": False,
    "Minesweeper-v0": True,
    "MultiCVRP-v0": False,
    "PacMan-v1": False,
    "SlidingTilePuzzle-v0": False,
    "Snake-v1": True,
    "Sudoku-v0": True,
    "TSP-v1": True,
    "Tetris-v0": True,
}


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
@pytest.mark.rare_cases(
    *(name for name in ENDS_BY_ILLEGAL if name not in ("Connector-v3", "Cleaner-v0"))
)
@pytest.mark.parametrize("env_id", ENDS_BY_ILLEGAL)
def test_what_an_illegal_action_does(played, env_id):
    episode = played(env_id)
    exists, limit = episode.layout.exists, episode.env.horizon(()) or 1000

    def illegal(obs):
        """Somebody who acts and an option that is not legal, as `[A, W]` bool."""
        return exists & ~np.asarray(obs.action_mask) & np.asarray(obs.agent_mask)[:, None]

    for seed in range(60):
        rng, key = np.random.default_rng(seed), jax.random.key(seed)
        obs, state = episode.reset(key, ())
        num_steps = 0
        while obs.alive.any() and not illegal(obs).any():
            obs, state, *_ = episode.step(key, state, episode.at_random(obs, rng), ())
            num_steps += 1
        if obs.alive.any() and num_steps + 1 < limit:
            slot, option = np.argwhere(illegal(obs))[0]
            mask = np.array(obs.action_mask)
            start, end = next(
                pair
                for pair in zip(episode.layout.starts[:-1], episode.layout.starts[1:], strict=True)
                if option < pair[1]
            )
            mask[slot, start:end] = np.arange(start, end) == option
            action = episode.layout.pick(rng.random(mask.shape), mask)
            obs, *_ = episode.step(key, state, action, ())
            assert obs.alive.any() != ENDS_BY_ILLEGAL[env_id]
            return
    raise AssertionError("nothing was illegal")


def ends_early(episode, choose=None):
    """Play until an episode ends before its time limit."""
    limit = episode.env.horizon(())
    return next(seed for seed in range(60) if episode.replay(choose, seed=seed).length < limit)


@pytest.mark.rare
def test_robots_that_collide_terminate_and_a_time_limit_can_be_read_as_a_truncation(played):
    episode = played("RobotWarehouse-v0")
    seed = ends_early(episode)
    length = episode.length
    assert episode.terminated[-1].all()
    cut = played("RobotWarehouse-v0", at_time_limit="truncates")
    cut.replay(still)
    assert (cut.length, cut.truncated[-1].all(), cut.terminated.any()) == (20, True, False)
    assert cut.replay(seed=seed).terminated[-1].all()
    # Also where the time is up at that very step.
    late = played("RobotWarehouse-v0", at_time_limit="truncates", time_limit=length)
    late.replay(seed=seed)
    assert (late.length, late.terminated[-1].all(), late.truncated.any()) == (length, True, False)


def test_cleaners_finish_or_run_out_of_time_or_make_an_illegal_move(played):
    episode = played("Cleaner-v0", at_time_limit="truncates")
    ends_early(episode)
    assert episode.terminated[-1].all()
    assert all(float(m) == 0 for m in episode.metrics[-1]["num_dirty_tiles"])

    def to_and_fro(obs, rng):
        """Everybody goes to the first free tile."""
        return np.asarray(obs.action_mask).argmax(1).astype(np.int32)

    episode.replay(to_and_fro)
    assert (episode.length, episode.truncated[-1].all()) == (30, True)
    assert not episode.terminated.any()
    own = played("Cleaner-v0").replay(to_and_fro)
    assert (own.length, own.terminated[-1].all(), own.truncated.any()) == (30, True, False)
    # Up, out of the maze.
    assert own.replay(still).length == 1
    assert own.terminated[-1].all()


@pytest.mark.rare
def test_food_that_is_eaten_terminates_and_truncations_can_be_read_as_ends(played):
    episode = played("LevelBasedForaging-v0", at_time_limit="terminates")
    episode.replay(still)
    assert (episode.length, episode.terminated[-1].all(), episode.truncated.any()) == (
        *(30, True),
        False,
    )
    own = played("LevelBasedForaging-v0")
    ends_early(own)
    assert own.terminated[-1].all()
    assert (own.reward[-1] > 0).any()
    np.testing.assert_allclose(own.reward.sum(), 1, rtol=1e-5)


@pytest.mark.parametrize("at_time_limit", [None, "truncates"])
def test_an_agent_of_connector_that_is_done_waits_and_terminates(played, at_time_limit):
    episode = played("Connector-v3", at_time_limit=at_time_limit)

    def only_the_first(obs, rng):
        action = episode.at_random(obs, rng)
        # Those who wait send what is illegal, which must not matter.
        return np.where(obs.agent_mask, [action[0], 0, 0], 3).astype(np.int32)

    def is_done_early():
        return not episode.acts[-3, 0] and episode.acts[-2, 1:].all()

    next(seed for seed in range(60) if episode.replay(only_the_first, seed) and is_done_early())
    np.testing.assert_array_equal(episode.terminated[-1], [True, False, False])
    np.testing.assert_array_equal(episode.truncated[-1], [False, True, True])
    assert not (episode.terminated | episode.truncated)[:-1].any()
    masks = np.stack([obs.action_mask for obs in episode.observations[:-1]])
    only_nothing = np.arange(5) == 0
    assert (masks[~episode.acts[:-1]] == only_nothing).all()
    np.testing.assert_array_equal(episode.reward[-1, 1:], np.float32([-0.03] * 2))


@pytest.mark.parametrize("at_time_limit", [None, "terminates", "truncates"])
def test_connected_or_blocked_agents_terminate_whatever_is_said_of_time(played, at_time_limit):
    episode = played("Connector-v3", at_time_limit=at_time_limit)
    ends_early(episode)
    assert episode.terminated[-1].all()
    assert not episode.truncated.any()


def test_nothing_is_earned_after_the_end(played):
    episode = played("Connector-v3").replay(still)
    assert (episode.reward[-1] < 0).all()
    key, action = jax.random.key(0), np.ones(3, np.int32)
    obs, state, reward, terminated, truncated, info = episode.step(
        key, episode.states[-1], action, ()
    )
    assert not reward.any()
    assert not any(value.any() for value in info["metrics"].values())
    assert not (obs.alive | obs.agent_mask | terminated | truncated).any()
    assert state.over


# ---- Spaces and views ----------------------------------------------------------------------------

SPACES = {
    "RobotWarehouse-v0": Discrete(5),
    "Connector-v3": Discrete(5),
    "JobShop-v0": MultiDiscrete([5, 5, 5]),
    "MMST-v0": MultiDiscrete([36, 36, 36]),
    "RubiksCube-partly-scrambled-v0": MultiDiscrete([6, 1, 3]),
    "Tetris-v0": Discrete(4 * 5),
    "Game2048-v1": Discrete(4),
}


def test_action_spaces_are_the_agents_own(played):
    for env_id, space in SPACES.items():
        env = played(env_id).env
        assert env.action_spaces(()) == dict.fromkeys(env.agents, space)
    assert played("JobShop-v0").env.agents == ("agent",)
    env = played("Connector-v3").env
    assert (env.name, env.agents) == ("Connector-v3", ("agent_0", "agent_1", "agent_2"))
    assert env.observation_space("agent_1", ()).shape == (5 * 5 * 6 + 1,)
    for declared in (env.observation_space, env.action_space):
        with pytest.raises(ValueError, match=r"unknown agent 'x'.*agent_0, agent_1, agent_2"):
            declared("x", ())


@pytest.mark.rare
def test_searchers_have_bounded_numbers(played):
    space = played("SearchAndRescue-v0").env.action_space("agent_1", ())
    assert isinstance(space, Box)
    np.testing.assert_array_equal([space.low, space.high], [[-1, -1], [1, 1]])


def test_vehicles_have_as_many_choices_as_their_masks():
    env, params = make("jumanji", env_id="MultiCVRP-v0")
    assert env.action_space("agent", params) == MultiDiscrete([21, 21])
    assert int(env.game.action_spec.maximum) == 21  # which makes 22 by Jumanji


@pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning")
def test_planes_are_the_flat_numbers_in_their_places(played):
    flat = played("Connector-v3").replay(still, seed=1)
    env, params = make("jumanji", env_id="Connector-v3", planes=True, **GAMES["Connector-v3"])
    obs, _ = env.reset_env(flat.reset_key, params)
    assert env.observation_space("agent_0", params).shape == obs.features.shape[1:] == (5, 5, 7)
    own = np.asarray(flat.observations[0].features)
    np.testing.assert_array_equal(obs.features[..., :6].reshape(3, -1), own[:, :-1])
    assert not obs.features[..., 6].any()
    snake, params = make("jumanji", env_id="Snake-v1", planes=True)
    assert snake.observation_space("agent", params).shape == (12, 12, 6)
    forage, params = make(
        "jumanji", env_id="LevelBasedForaging-v0", planes=True, grid_observation=True
    )
    assert forage.observation_space("agent_0", params).shape == (17, 17, 4)


def test_planes_of_what_is_no_grid_are_refused():
    with pytest.raises(ValueError, match=r"planes=True.*'Tetris-v0'.*\(10, 10\), \(4, 4\), \(\)"):
        make("jumanji", env_id="Tetris-v0", planes=True)
    with pytest.raises(ValueError, match="planes='yes': planes must be True or False"):
        make("jumanji", env_id="Snake-v1", planes="yes")


# ---- Objects, building, and building again -------------------------------------------------------


def test_an_object_is_the_same_as_what_its_id_makes(played):
    named = played("Cleaner-v0").replay()
    env = from_jumanji(own_game("Cleaner-v0"))
    assert (env.name, env.made_as, env.default_params) == ("Cleaner", None, ())
    obs, state = env.reset_env(named.reset_key, ())
    step = quick_jit(env.step_env)
    for t, action in enumerate(named.actions[:3]):
        obs, state, reward, *_ = step(named.reset_key, state, action, ())
        np.testing.assert_array_equal(obs.features, named.observations[t + 1].features)
        np.testing.assert_array_equal(reward, named.reward[t])


def test_what_resets_itself_is_refused():
    from jumanji import wrappers

    game = jumanji.make("Game2048-v1")
    for wrapper in (wrappers.AutoResetWrapper, wrappers.VmapWrapper, wrappers.VmapAutoResetWrapper):
        with pytest.raises(ValueError, match=f"{wrapper.__name__} resets or batches"):
            from_jumanji(wrappers.Wrapper(wrapper(game)))
    assert from_jumanji(wrappers.Wrapper(game)).name == "Game2048"
    with pytest.raises(ValueError, match="'Game2048' has no time limit of its own"):
        from_jumanji(game, at_time_limit="truncates")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"env_id": "Connector-v2"}, "unknown env_id 'Connector-v2'; did you mean 'Connector-v3'"),
        ({"env_id": ["Snake-v1"]}, "unknown env_id .*valid ids: BinPack-v2, CVRP-v1, "),
        ({"env_id": "Snake-v1", "rows": 3}, "no option 'rows'; valid options: num_rows, num_cols"),
        ({"env_id": "Connector-v3", "generator": {"size": 3}}, "cannot be built.*'size'"),
        ({"env_id": "RubiksCube-v0", "time_limit": 0}, "cannot be built.*must be positive"),
        (
            {"env_id": "Snake-v1", "at_time_limit": "cuts"},
            "at_time_limit='cuts': valid choices are truncates, terminates",
        ),
    ],
)
def test_wrong_options_are_named(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        make("jumanji", **options)


def test_a_run_can_build_it_again():
    env, _ = make(
        "jumanji", env_id="Connector-v3", at_time_limit="terminates", **GAMES["Connector-v3"]
    )
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, params = make(name, **kwargs)
    assert (again.name, again.agents, again.horizon(params)) == (env.name, env.agents, 12)


@pytest.mark.rare_cases("RobotWarehouse-v0", "SearchAndRescue-v0", "JobShop-v0", "Tetris-v0")
@pytest.mark.parametrize(
    "env_id", ["Connector-v3", "RobotWarehouse-v0", "SearchAndRescue-v0", "JobShop-v0", "Tetris-v0"]
)
def test_the_contract_is_kept(env_id):
    env, params = make("jumanji", env_id=env_id, **GAMES[env_id])
    report = check_env(env, params, num_steps=40, num_envs=4)
    assert report.num_episodes >= 4
    assert min(report.num_decisions.values()) > 0


def test_a_file_names_jumanji_s_own_classes_and_no_others(tmp_path, monkeypatch):
    with importing_only():
        assert make("jumanji", env_id="Game2048-v1")[0].imports == ()
    mark = tmp_path / "imported"
    (tmp_path / "tracer_of_jumanji.py").write_text(f"open({str(mark)!r}, 'w').close()\nEnv = None")
    monkeypatch.syspath_prepend(tmp_path)
    registered = dict(jumanji.registration._REGISTRY)
    monkeypatch.setattr(jumanji.registration, "_REGISTRY", registered)
    jumanji.register("Traced-v0", "tracer_of_jumanji:Env")
    with importing_only(), pytest.raises(NotPermitted):
        make("jumanji", env_id="Traced-v0")
    assert not mark.exists()
    with importing_only("Traced-v0"), pytest.raises(TypeError, match="not a callable"):
        make("jumanji", env_id="Traced-v0")
    assert mark.exists()


# ---- Training and random play --------------------------------------------------------------------


def test_a_run_trains_from_the_command_line_and_is_read_without_naming_it(tmp_path):
    options = ["env_id=Connector-v3", "time_limit=12", f"generator={json.dumps(GRID)}"]
    sizes = "--num-envs 4 --num-steps 8 --total-env-steps 96 --hidden-sizes 8 --no-progress"
    run_dir = ["--run-dir", str(tmp_path / "run")]
    assert status_of("train", "jumanji", "--env-kwargs", *options, *sizes.split(), *run_dir) == 0
    run = load_run(tmp_path / "run")
    assert run.env.horizon(()) == 12
    assert run.env.agents == ("agent_0", "agent_1", "agent_2")


@pytest.mark.slow
@pytest.mark.parametrize("env_id", TEAMS[:4])
def test_random_play_earns_and_lasts_as_in_jumanji(env_id):
    """Means over 512 episodes of either, with other keys, differ by less than 4 errors."""
    game = own_game(env_id)
    env, params = make("jumanji", env_id=env_id, **GAMES[env_id])
    layout, limit = env.action_layout(params), env.horizon(params)

    def by_adapter(key):
        def time_step(carry, key):
            obs, state = carry
            action = layout.pick(jax.random.uniform(key, obs.action_mask.shape), obs.action_mask)
            after, state, reward, *_ = env.step_env(key, state, action, params)
            return (after, state), (reward.sum(), obs.alive.any())

        steps = jax.random.split(key, limit)
        return jax.lax.scan(time_step, env.reset_env(key, params), steps)[1]

    def by_jumanji(key):
        def time_step(carry, key):
            state, mask, is_over = carry
            action = jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))
            state, timestep = game.step(state, action)
            earned = jnp.broadcast_to(timestep.reward, (env.num_agents,)).sum()
            carry = state, timestep.observation.action_mask, is_over | timestep.last()
            return carry, (jnp.where(is_over, 0.0, earned), ~is_over)

        state, timestep = game.reset(key)
        first = state, timestep.observation.action_mask, jnp.bool_(False)
        return jax.lax.scan(time_step, first, jax.random.split(key, limit))[1]

    keys = jax.random.split(jax.random.key(0), 1024)
    ours, theirs = (
        np.stack([np.asarray(x, float).sum(1) for x in quick_jit(jax.vmap(play))(part)])
        for play, part in ((by_adapter, keys[:512]), (by_jumanji, keys[512:]))
    )  # returns and lengths, [2, 512]
    error = np.sqrt((ours.var(1) + theirs.var(1)) / 512)
    assert error[1] > 0  # random robots deliver nothing
    assert (abs(ours.mean(1) - theirs.mean(1)) <= 4 * error).all(), (ours.mean(1), theirs.mean(1))
