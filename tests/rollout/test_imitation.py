"""Policies that imitate scripts: what is recorded of them, and that it is learnt."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import FewAct, Reach, quick_jit

from jaxmarl_ppo import (
    MLP,
    Linear,
    PolicySpec,
    PPOConfig,
    Scripted,
    TrainConfig,
    make_learner,
    summarise,
)
from jaxmarl_ppo.networks.numbers import FARTHEST
from jaxmarl_ppo.rollout.act import act
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.rollout import rollout

STEPS = 16
# Of the narrow agent, whose second dimension does not exist, and of the wide one.
POINT = np.array([[0.0, 99.0], [0.8, 5.0]], np.float32)


def by_sign(state, obs, params, key):
    return (obs.features[:, 0] > 0).astype(jnp.int32)


def against_sign(state, obs, params, key):
    return (obs.features[:, 0] <= 0).astype(jnp.int32)


def to_point(state, obs, params, key):
    return jnp.array(POINT)


def learner_of(env, policies, **config):
    return make_learner(
        env,
        env.default_params,
        TrainConfig(
            mapping={"*": list(policies)},
            policies=policies,
            num_steps=STEPS,
            stagger_starts=False,
            **config,
        ),
    )


def imitator(script, coef=1.0):
    ppo = PPOConfig(learning_rate=0.01, num_epochs=2, num_minibatches=2)
    return PolicySpec(network=MLP((8,)), imitate=script, imitate_coef=coef, ppo=ppo)


@pytest.fixture(scope="module")
def pair():
    """Two policies in a group, each with a script of its own; three slots in two active rows."""
    policies = {"one": imitator(by_sign), "two": imitator(against_sign, Linear(2.0, 1.0))}
    learner = learner_of(FewAct(), policies, num_envs=16)
    assert len(learner.players.policy_groups) == 1
    return learner


def play(learner):
    """The record of one rollout, and of what came before it."""

    @quick_jit
    def run(key):
        state = learner.init(key)
        args = (learner.env, state.env_params, learner.players, state.population)
        return rollout(*args, state.per_env.rollout, state.per_env.running, key, STEPS)[1]

    return jax.device_get(run(jax.random.key(5)))


def expected(decisions):
    """What the scripts say to the features that a decision was made by."""
    positive = decisions.inputs[..., 0] > 0
    action = np.where(decisions.policy_index == 0, positive, ~positive).astype(int)
    legal = np.take_along_axis(decisions.action_mask, action[..., None], -1)[..., 0]
    return np.where(legal, action, -1)


def test_each_decision_keeps_what_its_script_would_have_done(pair):
    (decisions,) = play(pair).decisions
    made = decisions.acted
    assert decisions.imitated.dtype == np.int32
    np.testing.assert_array_equal(decisions.imitated[made], expected(decisions)[made])
    for policy_index in (0, 1):
        seen = decisions.imitated[made & (decisions.policy_index == policy_index)]
        assert set(seen) == {-1, 0, 1}


def test_nothing_else_in_a_rollout_depends_on_it(pair):
    plain = dataclasses.replace(imitator(by_sign), imitate=None, imitate_coef=None)
    without = play(learner_of(FewAct(), {"one": plain, "two": plain}, num_envs=16))
    record = play(pair)
    assert without.decisions[0].imitated is None
    record = record._replace(decisions=(record.decisions[0].replace(imitated=None),))
    # Up to rounding, since XLA fuses other operations.
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), record, without)


def test_imitated_scripts_draw_other_numbers_than_those_that_play():
    policies = {"one": imitator(by_sign), "script": Scripted(by_sign)}
    players = learner_of(FewAct(), policies, num_envs=2).players
    noise = draw_noise(players, (STEPS, 2), jax.random.key(5))
    assert noise.scripts is not None
    assert noise.imitated is not None
    # Each script of a step gets a key that is folded from the step's.
    folded = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(
        noise.scripts, jnp.arange(STEPS)
    )
    made = [jax.random.key_data(keys).reshape(-1, 2) for keys in (noise.scripts, folded)]
    own = jax.random.key_data(noise.imitated).tolist()
    assert not [key for key in own if key in np.concatenate(made).tolist()]


def test_policies_learn_what_their_scripts_do(pair):
    step = quick_jit(pair.train_step)
    state = quick_jit(pair.init)(jax.random.key(1))
    losses = []
    for _ in range(60):
        state, metrics = step(state)
        policies = summarise(pair, metrics)["policies"]
        losses.append([policies[name]["imitation_loss"] for name in ("one", "two")])
        # An open decision keeps its own, too.
        (carry,) = jax.device_get(state.per_env.policy_groups)
        held = carry.pending.decisions
        assert held.acted.any()
        np.testing.assert_array_equal(held.imitated[held.acted], expected(held)[held.acted])
    assert min(losses[0]) > 0.3
    assert max(losses[-1]) < 0.1


def test_points_between_bounds_are_learnt_and_those_beyond_come_near():
    learner = learner_of(Reach(), {"all": imitator(to_point, 30.0)}, num_envs=32)
    (decisions,) = play(learner).decisions
    shown = decisions.imitated[decisions.acted].reshape(-1, 2, 2)
    # 0 lies at a quarter of what the narrow one can reach, .8 at four fifths; 5 beyond the bound.
    point = [[np.arctanh(-0.5), 0.0], [np.arctanh(0.6), FARTHEST]]
    np.testing.assert_allclose(shown, np.broadcast_to(point, shown.shape), rtol=1e-4)
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    for _ in range(60):
        state, _ = step(state)

    @quick_jit
    def most_likely(state):
        slots = state.per_env.rollout
        noise = draw_noise(learner.players, (32,), jax.random.key(1))
        return act(learner.players, state.population, slots, None, noise, greedy=True).env_action

    done = np.asarray(most_likely(state))
    # Where rewards lead is (2, -) and (.2, -1).
    assert np.abs(done[:, 0, 0] - 0.0).max() < 0.2
    assert np.abs(done[:, 1] - [0.8, 2.0]).max() < 0.2


def test_a_script_that_is_not_there_is_refused_by_its_name():
    with pytest.raises(ValueError, match=r"unknown scripted policy 'best'.*has random"):
        learner_of(FewAct(), {"all": imitator("best")}, num_envs=16)


def test_a_schedule_that_begins_after_the_end_has_no_effect():
    coef = ((1e9, 1.0), (2e9, 0.0))
    with pytest.raises(ValueError, match=r"imitate_coef of policies\['all'\] begins to change"):
        learner_of(FewAct(), {"all": imitator(by_sign, coef)}, num_envs=16)
