"""Groups that decide as one, against the wrapped environment played by hand."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import Duel, RandomLives, quick_jit

from jaxmarl_envs import check_env, make
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
            "14,641 combinations of actions, more than the 10,000",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(make_env, message):
    with pytest.raises(ValueError, match=message):
        make_env()
