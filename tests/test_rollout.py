"""The record of a rollout against the environment's own log, and the update's replay of it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import Ledger, RandomLives, quick_jit, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.rollout import rollout

TICKS, ENVS = 16, 3


@pytest.fixture(scope="module", params=["shared", "per_agent"])
def played(request):
    """A learner with memory, and one rollout."""
    env = Ledger(RandomLives(), TICKS)
    learner = tiny_learner(
        env, env.default_params, memory=True, policies=request.param, num_envs=ENVS
    )

    @quick_jit
    def play(key):
        state = learner.init(key)
        args = (env, state.env_params, learner.bank, learner.encoder)
        return state, *rollout(*args, state.policies, state.slots, key, TICKS)

    state, slots, record = jax.device_get(play(jax.random.key(5)))
    return learner, state, slots, record


def test_record_is_the_environments_log(played):
    _, _, slots, record = played
    log = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), slots.env_state.log)
    np.testing.assert_array_equal(record.decisions.acted, log.acted)
    np.testing.assert_array_equal(record.outcomes.reward, log.reward)
    np.testing.assert_array_equal(record.outcomes.alive, log.alive)
    np.testing.assert_array_equal(record.outcomes.terminated, log.terminated)
    np.testing.assert_array_equal(record.outcomes.truncated, log.truncated & ~log.terminated)
    # The rollout has all that makes it hard.
    acted, ended = log.acted, log.terminated | log.truncated
    reborn = ended[:-1] & log.alive[1:]
    joined = ~log.alive[:-1] & log.alive[1:] & ~ended[:-1]
    assert acted.any()
    assert (log.alive & ~acted).any()
    assert (log.terminated & log.truncated).any() or reborn.any()
    assert joined.any()
    assert (~acted.any(-1)).any()
    assert (record.outcomes.episode_over).any()


def test_memory_and_values_equal_an_explicit_loop(played):
    learner, state, slots, record = played
    network = learner.bank.network
    apply = quick_jit(lambda params, hidden, x: network.apply({"params": params}, hidden, x))
    d, o = record.decisions, record.outcomes
    final = np.moveaxis(slots.env_state.log.final_features, 0, 1)
    hidden = network.initial_hidden((ENVS, learner.env.num_agents))
    hidden = jax.tree.map(np.array, hidden)
    zeros = jax.tree.map(lambda h: np.zeros_like(h[0, 0]), hidden)
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    for e, a in np.ndindex(ENVS, learner.env.num_agents):
        k = learner.bank.mapping.slot_policy[a]
        params = jax.tree.map(lambda x, k=k: x[k], state.policies.params)
        held, new_life, decided = zeros, True, False
        for t in range(TICKS):
            if d.acted[t, e, a]:
                held = zeros if new_life else held
                assert bool(d.life_start[t, e, a]) == new_life
                jax.tree.map(lambda x, y, at=(t, e, a): close(x[at], y), d.hidden, held)
                held, logits, value = apply(params, held, d.inputs[t, e, a])
                legal = d.action_mask[t, e, a]
                log_probs = np.array(logits)[legal] - np.log(np.exp(np.array(logits)[legal]).sum())
                chosen = np.nonzero(legal)[0].tolist().index(d.action[t, e, a])
                close(d.log_prob[t, e, a], log_probs[chosen])
                close(d.value[t, e, a], value)
                new_life, decided = False, True
            assert bool(o.credited[t, e, a]) == decided
            if o.truncated[t, e, a]:
                expected = apply(params, held if decided else zeros, final[t, e, a])[2]
                close(o.final_value[t, e, a], expected)
            else:
                assert o.final_value[t, e, a] == 0.0
            if o.terminated[t, e, a] or o.truncated[t, e, a]:
                held, new_life, decided = zeros, True, False
        assert bool(slots.fresh[e, a]) == new_life
        features = slots.obs.features[e, a]
        close(record.bootstrap_value[e, a], apply(params, held, features)[2])
        if not new_life:
            jax.tree.map(lambda x, y, at=(e, a): close(x[at], y), slots.hidden, held)


EVERYTHING = {
    "prev_action": True,
    "prev_reward": True,
    "append_agent_id": True,
    "normalise_observations": True,
    "normalise_rewards": True,
}
REPLAYS = {
    "mlp-shared": {"policies": "shared"},
    "mlp-everything": {"policies": "per_agent", "spec": EVERYTHING},
    "lstm-shared": {"memory": True, "num_steps": 9},
    "lstm-everything": {
        "memory": True,
        "policies": "per_agent",
        "spec": EVERYTHING,
        "network": {"separate_critic": True},
    },
    "lstm-one-actor": {"env": "tic_tac_toe", "memory": True, "spec": {"prev_reward": True}},
}


@pytest.mark.parametrize("name", REPLAYS)
def test_ratio_is_one_before_the_first_step(name):
    """What the update computes for a decision is what the rollout had, carried rows excepted."""
    options = dict(REPLAYS[name])
    env_name = options.pop("env", None)
    env = RandomLives() if env_name is None else jaxmarl_envs.make(env_name)[0]
    recurrent = options.get("memory", False)
    learner = tiny_learner(
        env,
        env.default_params,
        num_envs=6,
        bptt_length=4 if recurrent else None,
        learning_rate=0.02,
        num_minibatches=2,
        **{"num_steps": 7, **options},
    )
    bank, packed, records = learner.bank, [], []

    class Spy(Learner):
        """Hands out what a step computes on the way."""

        def _estimate(self, state, record, *args):
            records.append(record)
            return super()._estimate(state, record, *args)

        def _pack(self, rows, estimates, *args):
            entry = jnp.arange(rows.acted.shape[0], dtype=jnp.float32)[:, None, None]
            entry = jnp.broadcast_to(entry, rows.acted.shape)
            packed.append(super()._pack(rows, estimates.replace(target=entry), *args))
            return super()._pack(rows, estimates, *args)

    spy = Spy(**{field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)})

    @quick_jit
    def iterate(state):
        after, metrics = spy.train_step(state)
        blocks, record = packed.pop(), records.pop()
        stop = jnp.cumsum(blocks.num_blocks)
        owner = jnp.searchsorted(stop, jnp.arange(blocks.resume.shape[0]), side="right")
        decisions = blocks.rows.decisions

        def compare(k):
            policy = bank.select(state.policies, k)
            log_prob, _, value = bank.evaluate(
                policy, decisions, blocks.resume, blocks.resume_hidden
            )
            mine = decisions.acted & (owner == k)[:, None]
            return mine, jnp.exp(log_prob - decisions.log_prob), value - decisions.value

        found = jax.lax.map(compare, jnp.arange(bank.num_policies))
        seen = {
            "ended": (record.outcomes.terminated | record.outcomes.truncated).sum(),
            "held": (record.outcomes.alive & ~record.decisions.acted).sum(),
            "trained": metrics.sums.trained.sum(),
        }
        return after, blocks.rows.target == 0, found, seen

    state = quick_jit(learner.init)(jax.random.key(1))
    carried_differ, totals = False, {"ended": 0, "held": 0, "trained": 0}
    for _ in range(4):
        state, carried, found, seen = jax.device_get(iterate(state))
        assert found[0].sum() == seen["trained"]
        for mine, ratio, error in zip(*found, strict=True):
            now = mine & ~carried
            assert now.any()
            np.testing.assert_allclose(ratio[now], 1.0, atol=1e-5)
            np.testing.assert_allclose(error[now], 0.0, atol=1e-5)
            old = mine & carried
            carried_differ |= bool((abs(ratio[old] - 1.0) > 1e-4).any())
        totals = {name: totals[name] + int(seen[name]) for name in totals}
    # Older parameters acted on the carried rows: had none of them moved, nothing would be tested.
    assert carried_differ
    assert min(totals.values()) > 10
