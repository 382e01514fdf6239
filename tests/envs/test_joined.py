"""Groups that decide as one, against the wrapped environment played by hand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hybrid_envs import SPACES, Hybrid
from probe_envs import Duel, RandomLives, quick_jit

from jaxmarl_envs import check_env, make
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple
from jaxmarl_envs.toy import MultiSpaces, TwoStep
from jaxmarl_envs.wrappers import Joined
from jaxmarl_ppo import PPOConfig, TrainConfig, Trainer
from jaxmarl_ppo.evaluation import evaluate_policies

NUM_STEPS = 60
WRAPPED = {
    "crypto": {"good": ["bob_0", "alice_0"]},
    "round_robin": {"some": ["agent_3", "agent_1"]},
    "flex_agents": {"some": ["agent_0", "agent_2"]},
    "relay": {"both": ["a", "b"]},
    "tic_tac_toe": {"both": ["o", "x"]},
    "shuttle_grid": {"left": ["shuttle_0", "shuttle_1"], "right": ["shuttle_5"]},
}


@pytest.mark.parametrize("name", WRAPPED)
def test_the_contract_is_kept(name):
    env, params = make("joined", env=name, groups=WRAPPED[name])
    report = check_env(env, params)
    assert report.num_episodes >= 1


@pytest.fixture(scope="module")
def walks():
    """`walks(env)`: the same random lives, stepped inside and outside the wrapper."""

    def walk(groups, seed):
        inner = RandomLives()
        env = Joined(inner, groups)
        step, step_inner = quick_jit(env.step_env), quick_jit(inner.step_env)
        key, rng = jax.random.key(seed), np.random.default_rng(seed)
        obs, state = env.reset_env(key, env.default_params)
        own_obs, own_state = inner.reset_env(key, inner.default_params)
        for time_step in range(NUM_STEPS):
            joint = [int(rng.choice(np.flatnonzero(mask))) for mask in obs.action_mask]
            before = (obs, own_obs, joint)
            key = jax.random.key(1000 * seed + time_step)
            obs, state, *result = step(key, state, jnp.array(joint), env.default_params)
            own = members_actions(env, inner, joint)
            own_obs, own_state, *own_result = step_inner(
                key, own_state, jnp.array(own), inner.default_params
            )
            found = jax.tree.map(np.asarray, ((obs, *result), (own_obs, *own_result)))
            yield env, inner, before, *found
            if not obs.alive.any():
                return

    return walk


def members_actions(env, inner, joint):
    """What every member does: the combinations, taken apart by hand."""
    own = [0] * inner.num_agents
    for slot, name in enumerate(env.agents):
        members = env.groups.get(name, (name,))
        counts = [inner.action_space(agent, None).n for agent in members]
        index = list(np.ndindex(*counts))[joint[slot]]
        for agent, action in zip(members, index, strict=True):
            own[inner.agent_index(agent)] = action
    return own


def test_a_group_lives_acts_sees_and_earns_what_its_members_do(walks):
    ends = 0
    for seed in range(12):
        for env, inner, before, found, own in walks({"pair": ("c", "a")}, seed):
            assert env.agents == ("pair", "b")
            slots = [[inner.agent_index(a) for a in env.groups.get(g, (g,))] for g in env.agents]
            (obs, reward, terminated, truncated, info) = found
            own_obs, own_reward, own_terminated, own_truncated, own_info = own
            for slot, members in enumerate(slots):
                assert obs.alive[slot] == own_obs.alive[members].any()
                assert obs.agent_mask[slot] == own_obs.agent_mask[members].any()
                assert reward[slot] == pytest.approx(float(own_reward[members].sum()))
                over = bool(before[0].alive[slot]) and not bool(obs.alive[slot])
                cut = bool((own_truncated & ~own_terminated)[members].any())
                assert (bool(terminated[slot]), bool(truncated[slot])) == (
                    over and not cut,
                    over and cut,
                )
                ends += over
                for name in own_info.get("metrics", {}):
                    total = float(own_info["metrics"][name][members].sum())
                    assert info["metrics"][name][slot] == pytest.approx(total)
            pair = slots[0]
            expected = [own_obs.features[i].ravel() for i in pair]
            flags = [float(x[i]) for i in pair for x in (own_obs.alive, own_obs.agent_mask)]
            np.testing.assert_array_equal(obs.features[0], [*np.concatenate(expected), *flags])
            width = own_obs.features[slots[1][0]].size
            np.testing.assert_array_equal(
                obs.features[1, :width], own_obs.features[slots[1][0]].ravel()
            )
            assert not obs.features[1, width:].any()
    assert ends > 5


def test_a_combination_is_legal_where_every_part_is(walks):
    for env, inner, _, found, own in walks({"all": ("a", "b", "c")}, 0):
        obs, own_obs = found[0], own[0]
        counts = [inner.action_space(agent, None).n for agent in inner.agents]
        for number, index in enumerate(np.ndindex(*counts)):
            legal = all(
                own_obs.action_mask[i, action] if own_obs.agent_mask[i] else action == 0
                for i, action in enumerate(index)
            )
            assert bool(obs.action_mask[0, number]) == legal
        assert env.agents == ("all",)


def test_vectors_are_put_side_by_side():
    env, params = make("gymnax", env_id="Pendulum-v1", num_agents=3)
    pair = Joined(env, {"pair": (env.agents[2], env.agents[0])})
    assert pair.action_space("pair", params).shape == (2,)
    action = jnp.array([[0.5, -1.0], [2.0, 9.0]])  # of the pair, and of the one between them
    own = pair._part_actions(action, params)
    np.testing.assert_array_equal(own, [[-1.0], [2.0], [0.5]])
    joint = pair._join_actions(own, jnp.ones(3, bool), params)
    np.testing.assert_array_equal(joint, [[0.5, -1.0], [2.0, 0.0]])


# ---- Factors side by side ------------------------------------------------------------------------


class Scripted(Hybrid):
    @property
    def baselines(self):
        def legal(state, obs, params, key):
            layout = self.action_layout(params)
            return layout.pick(jax.random.uniform(key, layout.exists.shape), obs.action_mask)

        return {"legal": legal}


HYBRID_GROUPS = {
    "two": {"all": ("nest", "picks"), "numbers": ("moves",)},
    "one": {"all": tuple(reversed(SPACES))},
    "choices": {"choosers": ("pair", "picks")},
}


def test_a_group_has_the_product_of_its_members_spaces():
    joined = Joined(Hybrid(), HYBRID_GROUPS["two"])
    assert joined.agents == ("all", "numbers", "both", "pair")
    spaces = joined.action_spaces(())
    assert spaces["all"] == Tuple((SPACES["nest"], SPACES["picks"]))
    assert isinstance(spaces["numbers"], Box)
    assert (spaces["both"], spaces["pair"]) == (SPACES["both"], SPACES["pair"])
    choosers = Joined(Hybrid(), HYBRID_GROUPS["choices"])
    assert choosers.action_space("choosers", ()) == MultiDiscrete([2, 3, 4])


def taken_apart(space, action):
    """Choices and numbers in order, by hand."""
    if isinstance(space, Tuple):
        parts = [taken_apart(*pair) for pair in zip(space.spaces, action, strict=True)]
        return [x for xs, _ in parts for x in xs], [y for _, ys in parts for y in ys]
    row = np.ravel(action).tolist()
    return ([], row) if isinstance(space, Box) else (row, [])


def options_by_choice(layout, slot, mask):
    """The legal options of each choice of a slot."""
    starts = np.cumsum([0, *layout.counts])
    counts = layout.factors[slot].counts
    return [
        np.asarray(mask)[slot, start : start + n].tolist()
        for start, n in zip(starts, counts, strict=False)
    ]


@pytest.mark.parametrize("groups", HYBRID_GROUPS.values(), ids=HYBRID_GROUPS)
def test_factors_of_members_stand_side_by_side(groups):
    inner = Scripted()
    env = Joined(inner, groups)
    layout = env.action_layout(())
    members = [env.groups.get(name, (name,)) for name in env.agents]
    step, step_inner = quick_jit(env.step_env), quick_jit(inner.step_env)
    rng, waited = np.random.default_rng(0), 0
    for seed in range(4):
        obs, state = env.reset_env(jax.random.key(seed), ())
        own_obs, own_state = inner.reset_env(jax.random.key(seed), ())
        while obs.alive.any():
            np.testing.assert_array_equal(obs.action_mask & ~layout.exists, False)
            waited += expect_masks(env, inner, members, obs, own_obs)
            scripted = env.baselines["legal"](state, obs, (), jax.random.key(0))
            own_scripted = inner.baselines["legal"](own_state, own_obs, (), jax.random.key(0))
            expect_same_actions(env, inner, members, scripted, own_scripted, own_obs.agent_mask)
            action = layout.pick(rng.random(layout.exists.shape), np.asarray(obs.action_mask))
            own = env._part_actions(action, ())
            expect_same_actions(env, inner, members, action, own)
            key = jax.random.key(100 * seed + int(own_state.time))
            obs, state, reward, terminated, truncated, _ = step(key, state, action, ())
            own_obs, own_state, own_reward, *_ = step_inner(key, own_state, own, ())
            for slot, names in enumerate(members):
                total = sum(float(own_reward[inner.agent_index(name)]) for name in names)
                np.testing.assert_allclose(reward[slot], total, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(state.inner.alive, own_state.alive)
        assert (terminated | truncated).any()
    assert waited > 5
    check_env(env, (), num_steps=10, num_envs=2)


def expect_masks(env, inner, members, obs, own_obs):
    """What is legal for a slot is what is for its members; return how many of a group wait."""
    layout, own_layout, waited = env.action_layout(()), inner.action_layout(()), 0
    for slot, names in enumerate(members):
        expected = []
        for name in names:
            row = inner.agent_index(name)
            legal = options_by_choice(own_layout, row, own_obs.action_mask)
            if env.agents[slot] in env.groups and not own_obs.agent_mask[row]:
                waited += 1
                legal = [[i == 0 for i in range(len(options))] for options in legal]
            expected += legal
        assert options_by_choice(layout, slot, obs.action_mask) == expected
    assert layout.all_legal(obs.action_mask).all()
    return waited


def expect_same_actions(env, inner, members, joint, own, acts=None):
    """A slot's action is that of its members; of who does not act, if told, choices are 0."""
    layout, own_layout = env.action_layout(()), inner.action_layout(())
    for slot, names in enumerate(members):
        choices, numbers = [], []
        for name in names:
            row = inner.agent_index(name)
            found, vector = taken_apart(inner.spaces[name], own_layout.own(own, row))
            choices += found if acts is None or acts[row] else [0] * len(found)
            numbers += vector
        space = env.action_space(env.agents[slot], ())
        assert taken_apart(space, layout.own(joint, slot)) == (choices, numbers)


def test_without_a_joint_choice_every_member_has_its_own():
    inner = RandomLives()
    env = Joined(inner, {"pair": ("c", "a")}, joint=False)
    assert env.action_spaces(None) == {"pair": MultiDiscrete([4, 3]), "b": Discrete(3)}
    layout, rng = env.action_layout(None), np.random.default_rng(0)
    step, step_inner = quick_jit(env.step_env), quick_jit(inner.step_env)
    obs, state = env.reset_env(jax.random.key(1), env.default_params)
    own_obs, own_state = inner.reset_env(jax.random.key(1), env.default_params)
    for time_step in range(30):
        expected = [
            options if own_obs.agent_mask[i] else np.arange(n) == 0
            for i, n, options in (
                (2, 4, own_obs.action_mask[2]),
                (0, 3, own_obs.action_mask[0, :3]),
            )
        ]
        np.testing.assert_array_equal(obs.action_mask[0], np.concatenate(expected))
        b_only = [*own_obs.action_mask[1], True, False, False]
        np.testing.assert_array_equal(obs.action_mask[1], b_only)
        action = layout.pick(rng.random(layout.exists.shape), np.asarray(obs.action_mask))
        own = np.array([action.choices[0, 1], action.choices[1, 0], action.choices[0, 0]])
        key = jax.random.key(time_step)
        obs, state, reward, *_ = step(key, state, action, env.default_params)
        own_obs, own_state, own_reward, *_ = step_inner(key, own_state, own, env.default_params)
        np.testing.assert_allclose(reward, [own_reward[2] + own_reward[0], own_reward[1]])
        if not obs.alive.any():
            break
    assert time_step > 2
    check_env(*make("joined", env="relay", groups={"both": ["a", "b"]}, joint=False))


def test_without_a_joint_choice_there_is_no_bound_and_a_record_makes_it_again():
    options = {"env": "tic_tac_toe", "groups": {"both": ["x", "o"]}}
    large = {"size": 11, "k": 5}
    env, params = make("joined", **options, env_kwargs=large, joint=False)
    assert env.action_space("both", params) == MultiDiscrete([121, 121])
    name, kwargs = json.loads(json.dumps(env.made_as))
    assert kwargs["joint"] is False
    again, params = make(name, **kwargs)
    assert again.action_space("both", params) == MultiDiscrete([121, 121])
    assert "joint" not in make("joined", **options)[0].made_as[1]


def test_scripts_decide_for_every_member():
    env, params = make("joined", env="tic_tac_toe", groups={"both": ["x", "o"]})
    obs, state = env.reset(jax.random.key(0), params)
    for _ in range(3):
        acting = int(np.argmax(state.seen.agent_mask))
        action = env.baselines["minimax"](state, obs, params, jax.random.key(1))
        own = np.unravel_index(int(action[0]), (9, 9))
        assert own[1 - acting] == 0
        assert obs.action_mask[0, action[0]]
        obs, state, *_ = env.step_env(jax.random.key(2), state, action, params)


def test_only_together_is_the_best_reached(tmp_path):
    env = Joined(TwoStep(), {"both": TwoStep.agents})
    config = TrainConfig(
        total_env_steps=20_000,
        num_envs=32,
        num_steps=8,
        default_ppo=PPOConfig(learning_rate=3e-3, entropy_coef=0.1),
    )
    trainer = Trainer(env, None, config, tmp_path / "run", progress=False)
    report = evaluate_policies(trainer.learner, trainer.train().population, 4, greedy=True)
    assert report["agents"]["both"]["return_mean"] == report["all"]["return_mean"] == 8


def test_a_joined_environment_is_made_again_by_its_record():
    env, _ = make("joined", env="crypto", groups={"good": ["bob_0", "alice_0"]})
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, _ = make(name, **kwargs)
    assert (again.name, again.agents) == ("crypto_joined", ("eve_0", "good"))


@pytest.mark.parametrize(
    ("make_env", "message"),
    [
        (lambda: Joined(Duel(), {}), "name at least one group of the agents first, second"),
        (lambda: Joined(Duel(), {"g": []}), "give a list of at least one of the agents"),
        (lambda: Joined(Duel(), {"g": ["third"]}), "unknown agent 'third' in group 'g'"),
        (lambda: Joined(Duel(), {"second": ["first"]}), "is called as an agent that is not in it"),
        (
            lambda: Joined(MultiSpaces(), {"g": MultiSpaces.agents * 2}),
            "is in group 'g' and again in 'g'",
        ),
        (
            lambda: make(
                "joined",
                env="tic_tac_toe",
                groups={"both": ["x", "o"]},
                env_kwargs={"size": 11, "k": 5},
            )[0].action_space("both", None),
            "14,641 combinations of actions, more than the 10,000.* or give joint=False",
        ),
        (
            lambda: make("joined", env="crypto", groups={"g": ["bob_0"]}, joint="no"),
            "joint='no': joint must be True or False",
        ),
        (
            lambda: Joined(Hybrid(), {"g": ["pair", "picks"]}, joint=False),
            "joint=False has no effect: not every agent of 'hybrid' has one choice",
        ),
        (
            lambda: Joined(RandomLives(), {"g": ["a"], "h": ["b"]}, joint=False),
            "joint=False has no effect: no group has two members",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(make_env, message):
    with pytest.raises(ValueError, match=message):
        make_env()
