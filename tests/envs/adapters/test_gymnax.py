"""Lifted gymnax environments against gymnax's own games, each stepped alone."""

import functools
import json
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from gymnax.environments.classic_control.cartpole import CartPole
from probe_envs import quick_jit

import jaxmarl_envs
from jaxmarl_envs import Box, Discrete, check_env, from_gymnax
from jaxmarl_envs.adapters.incoming.gymnax import Lifted, make_multi_agent
from jaxmarl_envs.adapters.outgoing.gymnasium import to_gymnasium
from jaxmarl_envs.adapters.outgoing.one_agent import random_script
from jaxmarl_envs.check import quick_check
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, Trainer

TIME_LIMIT = 40


def balance(features, time, rng):
    """Agent 0 pushes to one side until it falls, agent 1 at random, agent 2 keeps the pole up."""
    return np.array([0, rng.integers(2), features[2, 2] + 0.5 * features[2, 3] > 0], np.int32)


def swing(features, time, rng):
    return rng.uniform(-2, 2, (2, 1)).astype(np.float32)


def slide(features, time, rng):
    return rng.integers(0, 4, 4, np.int32)


def swim(features, time, rng):
    return rng.uniform(-1, 1, (2, 2)).astype(np.float32)


# How to build it, its time limit, and actions [A] or [A, N] for it.
GAMES = {
    "CartPole-v1": ({"num_agents": 3}, TIME_LIMIT, balance),
    "Pendulum-v1": ({"num_agents": 2}, 12, swing),
    "FrozenLake-misc": ({"num_agents": 4}, 12, slide),
    "Swimmer-misc": ({"num_agents": 2, "num_urchins": 1}, 5, swim),
}


@functools.cache
def compiled(env):
    return quick_jit(env.reset_env), quick_jit(env.step_env)


class Played:
    """An episode of the lifted environment; what it showed and gave, step by step."""

    def __init__(self, env, params, choose, seed=0):
        self.env, self.params = env, params
        reset, step = compiled(env)
        self.reset_key, *self.keys = jax.random.split(jax.random.key(seed), 1 + TIME_LIMIT)
        obs, state = reset(self.reset_key, params)
        self.observations, self.states, self.actions, results = [obs], [state], [], []
        self.infos = []
        rng = np.random.default_rng(seed)
        while obs.alive.any():
            time = len(self.actions)
            self.actions.append(choose(np.asarray(obs.features), time, rng))
            obs, state, *result, info = step(self.keys[time], state, self.actions[-1], params)
            self.infos.append(info)
            self.observations.append(obs)
            self.states.append(state)
            results.append(result)
        self.features = np.stack([obs.features for obs in self.observations])  # [T + 1, A, D]
        self.alive = np.stack([obs.alive for obs in self.observations])  # [T + 1, A]
        self.reward, self.terminated, self.truncated = (
            np.stack(values) for values in zip(*results, strict=True)
        )  # [T, A]
        self.length = self.alive.sum(0)  # [A]


@pytest.fixture(scope="module")
def played():
    """`played(env_id)`: one episode of each of `GAMES`, played once."""
    episodes = {}

    def play(env_id):
        if env_id not in episodes:
            options, limit, choose = GAMES[env_id]
            env, params = make_multi_agent(env_id, **options)
            params = params.replace(max_steps_in_episode=limit)
            episodes[env_id] = Played(env, params, choose)
        return episodes[env_id]

    return play


@pytest.fixture(scope="module")
def register():
    """Names for gymnax environments of ours, forgotten afterwards."""
    from gymnax import registration

    added = []

    def add(env_id, factory):
        registration.register(env_id, factory)
        added.append(env_id)

    yield add
    for env_id in added:
        del registration._registry[env_id]
        registration.registered_envs.remove(env_id)


# ---- Each agent's game is gymnax's own -----------------------------------------------------------


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-misc"])
def test_a_finished_agent_is_frozen(played, env_id):
    episode = played(env_id)
    assert len(set(episode.length)) > 1
    for agent, length in enumerate(episode.length):
        leaves = jax.tree.leaves([s.replace(alive=()) for s in episode.states[length:]])
        rows = np.array([np.asarray(leaf[agent]).tobytes() for leaf in leaves], object)
        rows = rows.reshape(1 + episode.length.max() - length, -1)
        assert (rows == rows[0]).all()
        assert not episode.alive[length:, agent].any()
        assert not episode.reward[length:, agent].any()
        assert not episode.terminated[length:, agent].any()
        assert not episode.truncated[length:, agent].any()


def test_all_who_live_act_and_may_do_anything(played):
    for env_id in GAMES:
        for obs in played(env_id).observations:
            np.testing.assert_array_equal(obs.agent_mask, obs.alive)
            assert obs.action_mask.all()


def test_numbers_in_infos_are_metrics_of_those_that_play(played):
    assert played("CartPole-v1").infos == [{}] * len(played("CartPole-v1").infos)
    episode = played("FrozenLake-misc")  # on its ice a move goes one of three ways
    probability = np.stack([info["metrics"]["p"] for info in episode.infos])
    np.testing.assert_allclose(probability, episode.alive[:-1] / 3)


def test_what_is_no_number_in_infos_is_no_metric():
    infos = {
        "discount": jnp.float32(1), "return_mean": jnp.float32(9), 3: 4.0, "": 1.0,
        "name": "cart", "nested": {"x": jnp.ones(())}, "many": jnp.ones(2),
        "key": jax.random.key(0), "wave": jnp.complex64(1j), "none": None,
        "hit": jnp.array(True), "count": 2, "speed": np.float64(0.5),
    }  # fmt: skip

    class Talkative(CartPole):
        knows_time = infos

        def step_env(self, *arguments):
            return *super().step_env(*arguments)[:4], self.knows_time

    game = Talkative()
    env = from_gymnax(game)
    key = jax.random.key(0)
    _, state = env.reset(key)
    info = env.step_env(key, state, jnp.zeros(1, jnp.int32), env.default_params)[5]
    metrics = {name: value.tolist() for name, value in info["metrics"].items()}
    assert metrics == {"hit": [1.0], "count": [2.0], "speed": [0.5]}
    game.knows_time = None
    assert env.step_env(key, state, jnp.zeros(1, jnp.int32), env.default_params)[5] == {}


# ---- Ends ----------------------------------------------------------------------------------------


def test_a_fall_terminates_and_the_time_limit_truncates(played):
    episode = played("CartPole-v1")
    assert max(episode.length[:2]) < episode.length[2] == TIME_LIMIT
    np.testing.assert_array_equal(episode.terminated.any(0), [True, True, False])
    np.testing.assert_array_equal(episode.truncated.any(0), [False, False, True])
    assert episode.truncated[-1, 2]
    np.testing.assert_array_equal(episode.reward.sum(0), episode.length)


def test_a_fall_on_the_last_step_is_a_fall(played):
    episode = played("CartPole-v1")
    limit = int(episode.length[0])
    again = Played(episode.env, episode.params.replace(max_steps_in_episode=limit), balance)
    assert again.length.max() == limit
    np.testing.assert_array_equal(again.terminated[-1], [True, False, False])
    np.testing.assert_array_equal(again.truncated[-1], [False, True, True])


def test_the_episode_is_over_when_the_last_game_ends(played):
    episode = played("CartPole-v1")
    env, params = episode.env, episode.params
    step = quick_jit(env.step)
    obs, state = episode.observations[0], episode.states[0]
    # No step of CartPole uses its key, so the same actions lead to the same end.
    for t, action in enumerate(episode.actions):
        before = obs
        obs, state, _, _, _, info = step(episode.keys[t], state, action, params)
        last = t + 1 == episode.length.max()
        assert info["episode_over"] == last
        assert before.alive.any()
        np.testing.assert_allclose(
            info["final_observation"].features, episode.features[t + 1], rtol=1e-6, atol=1e-6
        )
    assert obs.alive.all()
    assert (np.abs(obs.features) <= 0.05).all()
    np.testing.assert_array_equal(state.games.time, [0, 0, 0])


def test_bounds_that_depend_on_parameters_hold_in_every_view():
    env, params = make_multi_agent("Pendulum-v1", num_agents=2)
    weak = params.replace(max_torque=0.5)
    view = to_gymnasium(env, weak, agent="agent_0", others="random")
    view.reset(seed=0)
    assert view.action_space.high.tolist() == [0.5]
    view.step(np.array([0.25], np.float32))
    joined, _ = jaxmarl_envs.make(
        "joined",
        env="gymnax",
        groups={"pair": env.agents},
        env_kwargs={"env_id": "Pendulum-v1", "num_agents": 2},
    )
    quick_check(joined, weak)
    drawn = compiled_script(joined)(weak)
    assert 0.3 < np.abs(drawn).max() <= 0.5
    assert 1.0 < np.abs(compiled_script(joined)(params)).max() <= 2.0


def compiled_script(env):
    """Random actions of 50 environments, whose parameters are traced."""

    @jax.jit
    def draw(params):
        obs, state = env.reset_env(jax.random.key(0), params)
        script = random_script(env)
        keys = jax.random.split(jax.random.key(1), 50)
        return jax.vmap(lambda key: script(state, obs, params, key))(keys)

    return draw


def test_the_time_limit_is_a_leaf_that_needs_no_second_compilation(played):
    env, params = played("Pendulum-v1").env, played("Pendulum-v1").params
    reset, step = compiled(env)
    for limit in (1, 3):
        changed = params.replace(max_steps_in_episode=limit)
        assert env.horizon(changed) == limit
        _, state = reset(jax.random.key(0), changed)
        for time_step in range(1, limit + 1):
            obs, state, _, terminated, truncated, _ = step(
                jax.random.key(1), state, np.zeros((2, 1), np.float32), changed
            )
            np.testing.assert_array_equal(truncated, [time_step == limit] * 2)
            np.testing.assert_array_equal(obs.alive, [time_step < limit] * 2)
            assert not terminated.any()
    assert step._cache_size() == 1


# ---- What is seen --------------------------------------------------------------------------------


def test_stateless_cart_pole_hides_the_velocities_and_nothing_else(played):
    full = played("CartPole-v1")
    env, params = make_multi_agent("StatelessCartPole", num_agents=3)
    assert (env.name, params) == ("StatelessCartPole", full.env.default_params)
    actions = iter(full.actions)
    partial = Played(env, full.params, lambda *_: next(actions))
    np.testing.assert_array_equal(partial.features, full.features[:, :, [0, 2]])
    for name in ("reward", "terminated", "truncated", "alive"):
        np.testing.assert_array_equal(getattr(partial, name), getattr(full, name))
    space = env.observation_space("agent_0", params)
    whole = full.env.observation_space("agent_0", params)
    np.testing.assert_array_equal([space.low, space.high], [whole.low[[0, 2]], whole.high[[0, 2]]])
    assert space.shape == (2,)


def test_observed_picks_and_orders_the_features(played):
    whole = played("Pendulum-v1")
    env, params = make_multi_agent("Pendulum-v1", num_agents=2, observed=[2, 0])
    some = compiled(env)[0](whole.reset_key, params)[0].features
    np.testing.assert_array_equal(some, whole.features[0][:, [2, 0]])
    np.testing.assert_array_equal(env.observation_space("agent_0", params).high, [8, 1])


def test_planes_are_flattened():
    env, params = make_multi_agent("Catch-bsuite", num_agents=2)
    obs, state = quick_jit(env.reset_env)(jax.random.key(0), params)
    board = np.zeros((2, 10, 5))
    board[:, 9, 2] = 1  # the paddle
    board[np.arange(2), 0, np.asarray(state.games.ball_x)] = 1
    np.testing.assert_array_equal(obs.features, board.reshape(2, 50))


# ---- Spaces and parameters -----------------------------------------------------------------------


def test_spaces_are_gymnax_s_flattened():
    env, params = make_multi_agent("CartPole-v1", num_agents=2)
    assert env.agents == ("agent_0", "agent_1")
    assert env.horizon(params) == 500
    assert env.action_spaces(params) == dict.fromkeys(env.agents, Discrete(2))
    space = env.observation_space("agent_1", params)
    huge, angle = np.finfo(np.float32).max, 24 * 2 * np.pi / 360
    np.testing.assert_allclose(space.high, [4.8, huge, angle, huge], rtol=1e-6)
    np.testing.assert_array_equal(space.low, -np.asarray(space.high))
    for declared in (env.observation_space, env.action_space):
        with pytest.raises(ValueError, match=r"unknown agent 'x'.*agent_0, agent_1"):
            declared("x", params)


def test_bounds_follow_the_parameters():
    env, params = make_multi_agent("Pendulum-v1")
    space = env.action_space("agent_0", params.replace(max_torque=0.5))
    assert isinstance(space, Box)
    assert (space.low, space.high, space.shape) == (-0.5, 0.5, (1,))


def test_seeds_train_side_by_side_where_bounds_are_parameters(tmp_path):
    env, params = make_multi_agent("Pendulum-v1", 1)
    config = TrainConfig(
        total_env_steps=32,
        num_envs=2,
        num_steps=8,
        num_seeds=2,
        num_devices=1,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=2),
    )
    result = Trainer(env, params, config, tmp_path / "run", progress=False).train()
    assert [one.env_steps for one in result.members] == [32, 32]


def test_a_time_limit_that_is_no_integer_is_rounded_up():
    env, params = make_multi_agent("BernoulliBandit-misc")
    assert isinstance(params.max_steps_in_episode, float)
    for limit, steps in ((100.0, 100), (7.5, 8), (jnp.float32(7.0), 7)):
        horizon = env.horizon(params.replace(max_steps_in_episode=limit))
        assert (horizon, horizon.dtype) == (steps, jnp.int32)


def test_parameters_without_a_time_limit_have_no_horizon():
    env, _ = make_multi_agent("CartPole-v1")
    assert env.horizon(types.SimpleNamespace()) is None


@pytest.mark.parametrize(
    ("env_id", "num_agents", "limit"),
    [("CartPole-v1", 3, 25), ("Pendulum-v1", 2, 8), ("StatelessCartPole", 1, 25)],
)
def test_the_contract_is_kept(env_id, num_agents, limit):
    env, params = make_multi_agent(env_id, num_agents)
    report = check_env(env, params.replace(max_steps_in_episode=limit))
    assert report.num_episodes >= 4
    assert min(report.num_lives.values()) >= 4


# ---- Building, and building again ----------------------------------------------------------------


def test_a_run_can_build_it_again():
    env, _ = make_multi_agent("Swimmer-misc", num_agents=2, observed=(0, 1, 9), num_urchins=3)
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, params = jaxmarl_envs.make(name, **kwargs)
    assert (again.name, again.agents) == (env.name, env.agents)
    assert again.game.num_urchins == 3
    assert again.observation_space("agent_0", params).shape == (3,)


@pytest.mark.parametrize("num_agents", [0, -1, 2.0, "3"])
def test_the_number_of_agents_must_be_positive(num_agents):
    with pytest.raises(ValueError, match=rf"num_agents={num_agents!r}: .* at least 1"):
        Lifted("CartPole-v1", num_agents=num_agents)


def test_an_unknown_id_names_the_closest_and_all_valid_ids():
    with pytest.raises(ValueError, match="unknown env_id 'CartPole-v0'") as error:
        Lifted("CartPole-v0")
    for part in ("did you mean 'CartPole-v1'?", "Pendulum-v1, ", "StatelessCartPole"):
        assert part in str(error.value)


@pytest.mark.parametrize("env_id", ["", ":", "gymnax:", None, ["CartPole-v1"]])
def test_what_cannot_be_an_id_is_unknown(env_id):
    with pytest.raises(ValueError, match=rf"unknown env_id {re.escape(repr(env_id))}; .*Pendulum"):
        Lifted(env_id)


def test_an_unknown_option_names_the_valid_ones():
    with pytest.raises(ValueError, match=r"'Reacher-misc'.*'joints': 3.*valid options: num_joints"):
        Lifted("Reacher-misc", joints=3)
    with pytest.raises(ValueError, match=r"'CartPole-v1'.*valid options: none"):
        Lifted("CartPole-v1", joints=3)


@pytest.mark.parametrize("observed", [[], [4], [-1], [0, 0], [0.0]])
def test_observed_must_be_different_indices_of_the_observation(observed):
    with pytest.raises(ValueError, match=r"observed=.* different indices from 0 to 3"):
        Lifted("CartPole-v1", observed=observed)


def test_stateless_cart_pole_has_chosen_already():
    with pytest.raises(ValueError, match=r"observed=\[1\].*'CartPole-v1' with observed=\(0, 2\)"):
        Lifted("StatelessCartPole", observed=[1])


def with_actions(kind):
    """A gymnax environment whose action space is of `kind`."""
    from gymnax.environments import CartPole, spaces

    choices = {
        "dict": lambda: spaces.Dict({"x": spaces.Discrete(2)}),
        "infinite": lambda: spaces.Box(-jnp.inf, 1.0, (2,)),
        "integer": lambda: spaces.Box(0, 3, (2,), jnp.int32),
    }

    class Odd(CartPole):
        def action_space(self, params=None):
            return choices[kind]()

    return Odd


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("dict", r"Dict\(.*must be a Discrete or a Box"),
        ("integer", r"Box\(.*must hold floats"),
    ],
)
def test_other_action_spaces_are_refused(register, kind, complaint):
    register(f"Odd-{kind}", with_actions(kind))
    with pytest.raises(ValueError, match=f"'Odd-{kind}'.*{complaint}"):
        Lifted(f"Odd-{kind}")


def test_an_environment_of_ones_own_with_a_key_and_a_grid_of_actions(register):
    from gymnax.environments import environment, spaces

    @struct.dataclass
    class Noisy(environment.EnvState):
        key: jax.Array

    class Mixer(environment.Environment):
        """Adds noise from the key in its state to an action of 2 x 3 numbers."""

        def reset_env(self, key, params):
            return jnp.zeros((2, 3)), Noisy(0, key)

        def step_env(self, key, state, action, params):
            key_now, key_next = jax.random.split(state.key)
            seen = action + jax.random.uniform(key_now, (2, 3))
            return seen, Noisy(state.time + 1, key_next), action[1, 0], jnp.array(False), {}

        def observation_space(self, params):
            return spaces.Box(-2.0, 2.0, (2, 3))

        def action_space(self, params):
            return spaces.Box(jnp.array([[-1.0], [0.0]]), 1.0, (2, 3))

    register("Mixer", Mixer)
    env, params = make_multi_agent("Mixer", num_agents=2)
    low = env.action_space("agent_0", params).low
    np.testing.assert_array_equal(low, [-1, -1, -1, 0, 0, 0])
    key, action = jax.random.key(7), jnp.linspace(0.0, 1.0, 12).reshape(2, 6)
    _, state = quick_jit(env.reset_env)(key, params)
    step = quick_jit(env.step_env)
    obs, state, reward, *_ = step(key, state, action, params)
    noise = [
        jax.random.uniform(jax.random.split(k)[0], (2, 3)).ravel() for k in jax.random.split(key)
    ]
    np.testing.assert_allclose(obs.features, action + jnp.stack(noise), rtol=1e-6)
    np.testing.assert_array_equal(reward, action[:, 3])
    np.testing.assert_array_equal(
        jax.random.key_data(state.games.key),
        [jax.random.key_data(jax.random.split(k)[1]) for k in jax.random.split(key)],
    )
    # A finished game goes on paying in gymnax, here it pays nothing.
    state = state.replace(alive=jnp.array([True, False]))
    after, _, reward, *_ = step(key, state, action, params)
    np.testing.assert_array_equal(reward, [action[0, 3], 0])
    np.testing.assert_array_equal(after.features[1], obs.features[1])
    assert (after.features[0] != obs.features[0]).all()
