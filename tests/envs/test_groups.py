"""Groups that share rewards: hand-made tables, a NumPy oracle, and nothing else changed."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hybrid_envs import Hybrid
from probe_envs import Duel, RandomLives, quick_jit

import jaxmarl_envs
from jaxmarl_envs import check_env
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.shuttle_grid import ShuttleGrid
from jaxmarl_envs.wrappers import Grouped

NUM_ENVS, NUM_STEPS = 8, 60
PAIR = {"pair": ("a", "c")}
TEAMS = {
    "pair": (PAIR, [[0, 2], [1], [0, 2]]),
    "all": ({"all": ["c", "a", "b"]}, [[0, 1, 2]] * 3),
}  # the groups, and with whom each slot shares


@pytest.fixture(scope="module")
def random_play():
    """`random_play(env)`: what `step` gives at every step of eight runs, `[T, E, ...]`."""

    def run(env):
        def time_step(carry, key):
            obs, state = carry
            key_action, key_step = jax.random.split(key)
            action = jax.random.randint(key_action, (env.num_agents,), 0, 2)
            alive = obs.alive
            obs, state, *result = env.step(key_step, state, action, env.default_params)
            return (obs, state), (alive, obs, *result)

        def play(key):
            key_reset, key = jax.random.split(key)
            return jax.lax.scan(time_step, env.reset(key_reset), jax.random.split(key, NUM_STEPS))[
                1
            ]

        keys = jax.random.split(jax.random.key(0), NUM_ENVS)
        return jax.tree.map(np.asarray, quick_jit(jax.vmap(play, out_axes=1))(keys))

    return run


@pytest.fixture(scope="module")
def plain(random_play):
    """The random lives without groups."""
    return random_play(RandomLives())


@pytest.fixture(scope="module")
def grouped_play(random_play):
    """`grouped_play(teams, how)`: the random lives with groups, each played once."""
    return functools.cache(
        lambda teams, how: random_play(Grouped(RandomLives(), TEAMS[teams][0], how))
    )


def shared(own, alive, partners, how):
    """One step's rewards by the definition, slot by slot, `[A]`."""
    paid = np.zeros(3)
    for slot in range(3):
        living = [other for other in partners[slot] if alive[other]]
        if alive[slot]:
            paid[slot] = sum(own[other] for other in living) / (len(living) if how == "mean" else 1)
    return paid


# ---- Tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "how", "expected"),
    [
        ({"good": ("bob_0", "alice_0")}, "sum", [-2, 4, 4]),
        ({"good": ("bob_0", "alice_0")}, "mean", [-2, 2, 2]),
        ({"odd": ("eve_0", "bob_0")}, "sum", [0, 0, 2]),
        ({"odd": ("alice_0", "eve_0")}, "mean", [0, 2, 0]),
        ({"all": ("eve_0", "bob_0", "alice_0")}, "sum", [2, 2, 2]),
        ({"all": ("eve_0", "bob_0", "alice_0")}, "mean", [2 / 3, 2 / 3, 2 / 3]),
        ({"one": ("eve_0",), "two": ("bob_0",)}, "mean", [-2, 2, 2]),
    ],
)
def test_crypto_where_eve_is_wrong_and_bob_is_right(groups, how, expected):
    env = Grouped(Crypto(), groups, how)
    _, state = env.reset(jax.random.key(0))
    goal = int(state.inner.goal.argmax())
    action = jnp.array([1 - goal, goal, 0])  # own rewards -2, 2, 2
    _, _, reward, _, _, info = env.step_env(jax.random.key(0), state, action, env.default_params)
    np.testing.assert_allclose(reward, expected, rtol=1e-6)
    np.testing.assert_array_equal(info["metrics"]["own_reward"], [-2, 2, 2])
    assert set(info["metrics"]) == {"accuracy", "own_reward"}


@pytest.mark.parametrize(
    ("how", "table"),
    [
        ("sum", [[1, 1, 1, 5, 2, 5], [1, 1, 0, 1, 2, 0], [0, 1, 1, 0, 2, 4], [0, 0, 0, 0, 0, 0]]),
        ("mean", [[1, 1, 1, 2.5, 2, 2.5], [1, 0, 0, 1, 0, 0], [0, 1, 1, 0, 2, 4], [0] * 6]),
    ],
)
def test_only_the_living_share(how, table):
    """By hand: a and c share; a earns 1, b 2 and c 4 while they live. Who lives, what is paid."""

    class Fixed(RandomLives):
        def step_env(self, key, state, action, params):
            _, *rest = super().step_env(key, state, action, params)
            obs, reward = self.reset_env(key, params)[0], jnp.array([1.0, 2.0, 4.0])
            return obs, rest[0], jnp.where(state.alive, reward, 0.0), *rest[2:]

    alive, expected = np.split(np.array(table), 2, axis=1)
    env = Grouped(Fixed(), PAIR, how)
    _, state = env.reset(jax.random.key(0))

    def pay(alive):
        living = state.replace(inner=state.inner.replace(alive=alive), alive=alive)
        return env.step_env(jax.random.key(1), living, jnp.zeros(3, int), env.default_params)[2]

    np.testing.assert_array_equal(quick_jit(jax.vmap(pay))(alive.astype(bool)), expected)


# ---- Random lives: waits, deaths, rebirths, late joins -------------------------------------------


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("teams", TEAMS)
def test_random_lives_share_as_defined_and_nothing_else_changes(grouped_play, plain, teams, how):
    _, partners = TEAMS[teams]
    alive, obs, reward, terminated, truncated, info = grouped_play(teams, how)
    own_alive, own_obs, own, *flags, own_info = plain
    others = {k: v for k, v in info["metrics"].items() if k != "own_reward"}
    jax.tree.map(
        np.testing.assert_array_equal,
        (alive, obs, terminated, truncated, {**info, "metrics": others}),
        (own_alive, own_obs, *flags, own_info),
    )
    np.testing.assert_allclose(info["metrics"]["own_reward"], own, rtol=1e-6, atol=1e-6)
    expected = [
        [shared(own[t, e], alive[t, e], partners, how) for e in range(NUM_ENVS)]
        for t in range(NUM_STEPS)
    ]
    np.testing.assert_allclose(reward, expected, rtol=1e-6, atol=1e-6)
    assert reward.dtype == np.float32
    assert not reward[~alive].any()


def test_the_lives_of_the_runs_are_varied(plain):
    alive, obs, _, terminated, truncated, info = plain
    final = info["final_observation"]
    ended = terminated | truncated
    assert set(alive.sum(-1).ravel()) == {1, 2, 3}
    assert (ended & final.alive).any()  # reborn at once
    assert (~alive & final.alive).any()  # joined
    assert info["episode_over"].any()
    assert (obs.agent_mask != obs.alive).any()


@pytest.mark.parametrize("teams", TEAMS)
def test_a_mean_pays_exactly_what_was_earned(grouped_play, teams):
    groups, _ = TEAMS[teams]
    _, _, reward, _, _, info = grouped_play(teams, "mean")
    own = info["metrics"]["own_reward"]
    assert np.abs(reward - own).max() > 0.5
    for members in groups.values():
        slots = [RandomLives.agents.index(agent) for agent in members]
        np.testing.assert_allclose(
            reward[..., slots].sum(-1), own[..., slots].sum(-1), rtol=1e-5, atol=1e-5
        )


def test_the_contract_is_kept():
    class Deaf(RandomLives):
        """Random lives pay for the actions of those who wait too, which the contract forbids."""

        def step_env(self, key, state, action, params):
            return super().step_env(key, state, jnp.zeros_like(action), params)

    report = check_env(Grouped(Deaf(), PAIR, "mean"), num_steps=24)
    assert min(report.num_lives.values()) > 0


# ---- The wrapped environment's own ---------------------------------------------------------------


def test_actions_of_every_kind_are_passed_on():
    inner = Hybrid()
    env = Grouped(inner, {"two": ("moves", "nest")})
    assert env.action_spaces(()) == inner.action_spaces(())
    layout, rng = env.action_layout(()), np.random.default_rng(0)
    obs, state = env.reset_env(jax.random.key(0), ())
    action = layout.pick(rng.random(layout.exists.shape), np.asarray(obs.action_mask))
    _, _, reward, *_ = env.step_env(jax.random.key(1), state, action, ())
    _, _, own, *_ = inner.step_env(jax.random.key(1), state.inner, action, ())
    both = own[1] + own[4]
    np.testing.assert_allclose(reward, [own[0], both, own[2], own[3], both], rtol=1e-6)
    assert own[1] != own[4]


def test_declarations_are_the_wrapped_environment_s():
    inner = Crypto(continuous_actions=True)
    env = Grouped(inner, {"good": ("bob_0", "alice_0")})
    params = env.default_params
    assert params == inner.default_params
    assert (env.name, env.agents, env.reward) == ("crypto_grouped", inner.agents, "sum")
    assert env.horizon(params.replace(max_steps=7)) == 7
    assert env.action_spaces(params) == inner.action_spaces(params)
    for agent in env.agents:
        assert env.observation_space(agent, params) == inner.observation_space(agent, params)
        assert env.observation_parts(agent, params) == inner.observation_parts(agent, params)
    assert Grouped(Duel(), {"both": ["second", "first"]}).max_actors == 1


def test_scripted_policies_see_the_wrapped_environment_s_state():
    class Scripted(RandomLives):
        baselines = {  # noqa: RUF012
            "later": lambda state, obs, params, key: state.time + obs.alive,
            "never": lambda state, obs, params, key: params.p_act,
        }

    env = Grouped(Scripted(), PAIR)
    obs, state = env.reset(jax.random.key(0))
    state = state.replace(inner=state.inner.replace(time=5))
    args = (state, obs, env.default_params, jax.random.key(0))
    np.testing.assert_array_equal(env.baselines["later"](*args), 5 + np.asarray(obs.alive))
    assert env.baselines["never"](*args) == 0.5


# ---- Building, and building again ----------------------------------------------------------------


def test_make_groups_an_environment_by_name():
    env, params = jaxmarl_envs.make(
        "grouped",
        env="shuttle_grid",
        env_kwargs={"num_shuttles": 2},
        groups={"both": ["shuttle_0", "shuttle_1"]},
        reward="mean",
    )
    assert isinstance(env, Grouped)
    assert (env.env.num_agents, env.reward) == (2, "mean")
    assert jax.tree.structure(params) == jax.tree.structure(ShuttleGrid(2).default_params)


def test_a_run_can_build_it_again():
    inner, _ = jaxmarl_envs.make("crypto", continuous_actions=True)
    env = Grouped(inner, {"good": ("bob_0", "alice_0")}, "mean")
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, _ = jaxmarl_envs.make(name, **kwargs)
    assert isinstance(again, Grouped)
    assert (again.groups, again.reward) == (env.groups, "mean")
    assert again.env.continuous_actions
    assert Grouped(Crypto(), {"good": ("bob_0",)}).made_as is None


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        ({"x": ("a", "z")}, r"unknown agent 'z' in group 'x': the agents are a, b, c"),
        ({"x": ("a",), "y": ("b", "a")}, r"agent 'a' is in group 'x' and again in 'y'"),
        ({"x": ("a", "b", "a")}, r"agent 'a' is in group 'x' and again in 'x'"),
        ({"x": ("a",), "y": ()}, r"group 'y' is \(\): .*at least one of the agents a, b, c"),
        ({"x": "abc"}, r"group 'x' is 'abc': give a list"),
        ({}, r"groups=\{\}: name at least one group of the agents a, b, c"),
    ],
)
def test_bad_groups_are_refused(groups, complaint):
    with pytest.raises(ValueError, match=complaint):
        Grouped(RandomLives(), groups)


def test_an_unknown_reward_names_the_valid_ones():
    with pytest.raises(ValueError, match="reward='max': valid choices are sum, mean"):
        Grouped(RandomLives(), PAIR, "max")


def test_groups_of_groups_are_refused():
    env = Grouped(Grouped(RandomLives(), PAIR), PAIR)
    _, state = env.reset(jax.random.key(0))
    with pytest.raises(ValueError, match="'random_lives_grouped' reports a metric 'own_reward'"):
        jax.eval_shape(
            env.step_env, jax.random.key(0), state, jnp.zeros(3, int), env.default_params
        )
