"""The record of a rollout against the environment's own log, and the update's replay of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import (
    FewAct,
    Ledger,
    RandomLives,
    group_of,
    of_slot,
    params_of,
    quick_jit,
    tiny_learner,
    with_spy,
)

import jaxmarl_envs
from jaxmarl_ppo.rollout.rollout import rollout

STEPS = 16
AT_ONCE = 2  # environments whose final observations are valued at once, where there are many


@pytest.fixture(
    scope="module",
    params=[("shared", 3), ("per_agent", 3), ("per_agent", 9)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def played(request):
    """A learner with memory, and one rollout."""
    mapping, num_envs = request.param
    env = Ledger(RandomLives(), STEPS)
    learner = tiny_learner(env, env.default_params, memory=True, mapping=mapping, num_envs=num_envs)

    @quick_jit
    def play(key):
        state = learner.init(key)
        args = (env, state.env_params, learner.players, state.population)
        return state, *rollout(*args, state.per_env.rollout, state.per_env.running, key, STEPS)

    with pytest.MonkeyPatch.context() as patch:
        if num_envs > 3:
            patch.setattr("jaxmarl_ppo.policies.tile_sizes.MIN_ENVS_VALUED", AT_ONCE)
        state, slots, record = jax.device_get(play(jax.random.key(5)))
    return learner, state, slots, record


@pytest.mark.rare_cases("per_agent-9", "shared-3")
def test_record_is_the_environments_log(played):
    learner, _, slots, record = played
    log = jax.tree.map(lambda x: np.moveaxis(x, 0, 1), slots.env_state.log)
    for a in range(learner.env.num_agents):
        acted = of_slot(learner, record.decisions, a, 2).acted
        np.testing.assert_array_equal(acted, log.acted[..., a])
    np.testing.assert_array_equal(record.outcomes.acted, log.acted)
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
    if learner.num_envs > 3:
        assert (record.outcomes.truncated.any(-1).sum(-1) > AT_ONCE).any()


@pytest.mark.rare_cases("per_agent-9")
def test_memory_and_values_equal_an_explicit_loop(played):
    learner, state, slots, record = played
    final = np.moveaxis(slots.env_state.log.final_features, 0, 1)
    outcomes = record.outcomes
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    networks = [group.network for group in learner.players.policy_groups]
    applies = [
        quick_jit(lambda params, *args, net=net: net.module.apply({"params": params}, *args))
        for net in networks
    ]
    for e, a in np.ndindex(learner.num_envs, learner.env.num_agents):
        index, _ = group_of(learner, a)
        apply, params = applies[index], params_of(learner, state.population.policy_groups, a)
        zeros = jax.tree.map(lambda h: np.array(h)[0], networks[index].initial_hidden((1,)))
        d = jax.tree.map(lambda x, e=e: x[:, e], of_slot(learner, record.decisions, a, 2))
        o = jax.tree.map(lambda x, e=e, a=a: x[:, e, a] if x.ndim > 2 else x[:, e], outcomes)
        held, new_life, decided = zeros, True, False
        for t in range(STEPS):
            if d.acted[t]:
                held = zeros if new_life else held
                assert bool(d.is_first[t]) == new_life
                jax.tree.map(lambda x, y, t=t: close(x[t], y), d.hidden, held)
                held, logits, value = apply(params, held, d.inputs[t])
                legal = d.action_mask[t]
                log_probs = np.array(logits)[legal] - np.log(np.exp(np.array(logits)[legal]).sum())
                chosen = np.nonzero(legal)[0].tolist().index(d.action[t])
                close(d.log_prob[t], log_probs[chosen])
                close(d.value[t], value)
                new_life, decided = False, True
            assert bool(o.has_decided[t]) == decided
            if o.truncated[t]:
                expected = apply(params, held if decided else zeros, final[t, e, a])[2]
                close(o.final_value[t], expected)
            else:
                assert o.final_value[t] == 0.0
            if o.terminated[t] or o.truncated[t]:
                held, new_life, decided = zeros, True, False
        assert bool(slots.is_first[e, a]) == new_life
        value = record.bootstrap_value[e, a]
        if slots.obs.agent_mask[e, a]:
            close(value, apply(params, held, slots.obs.features[e, a])[2])
        else:
            assert value == 0.0
        if not new_life:
            own = of_slot(learner, slots.hidden, a, 1)
            jax.tree.map(lambda x, y, e=e: close(x[e], y), own, held)


EVERYTHING = {
    "prev_action": True,
    "prev_reward": True,
    "append_agent_id": True,
    "normalise_observations": True,
    "normalise_rewards": True,
}
REPLAYS = {
    "mlp-shared": {"mapping": "shared"},
    "mlp-everything": {"mapping": "per_agent", "spec": EVERYTHING},
    "lstm-shared": {"memory": True, "num_steps": 9},
    "lstm-everything": {
        "memory": True,
        "mapping": "per_agent",
        "spec": EVERYTHING,
        "network": {"separate_critic": True},
    },
    "lstm-few-act": {"env": "few_act", "memory": True, "num_steps": 9, "spec": EVERYTHING},
    "gru-everything": {"memory": "gru", "num_steps": 9, "spec": EVERYTHING},
    "min-gru-everything": {
        "memory": "min_gru",
        "mapping": "per_agent",
        "spec": EVERYTHING,
        "network": {"separate_critic": True},
    },
    "min-gru-few-act": {"env": "few_act", "memory": "min_gru", "num_steps": 9},
    "mlp-bfloat16": {"mapping": "per_agent", "config": {"matmul_precision": "bfloat16"}},
    "lstm-bfloat16": {
        "memory": True,
        "num_steps": 9,
        "config": {"matmul_precision": "bfloat16"},
    },
    "lstm-one-actor": {"env": "tic_tac_toe", "memory": True, "spec": {"prev_reward": True}},
}


@pytest.mark.rare_cases(
    "mlp-everything",
    "lstm-everything",
    "mlp-shared",
    "lstm-shared",
    "lstm-one-actor",
    "lstm-few-act",
    "gru-everything",
    "min-gru-everything",
)
@pytest.mark.parametrize("name", REPLAYS)
def test_ratio_is_one_before_the_first_step(name):
    """What the update computes for a decision is what the rollout had, carried rows excepted."""
    options = dict(REPLAYS[name])
    env_name = options.pop("env", None)
    probes = {None: RandomLives, "few_act": FewAct}
    env = probes[env_name]() if env_name in probes else jaxmarl_envs.make(env_name)[0]
    recurrent = "memory" in options
    learner = tiny_learner(
        env,
        env.default_params,
        num_envs=6,
        bptt_length=4 if recurrent else None,
        learning_rate=0.02,
        num_minibatches=2,
        **{"num_steps": 7, **options},
    )
    packed = []

    def on_pack(pack, table, *args):
        num_entries, num_envs, num_slots = table.decisions.grid_shape
        entry = jnp.repeat(jnp.arange(num_entries, dtype=jnp.float32), num_envs * num_slots)
        packed.append(pack(table._replace(target=table.decisions.from_grid(entry)), *args))

    learner = with_spy(learner, on_pack)

    @quick_jit
    def iterate(state):
        packed.clear()
        after, metrics = learner.train_step(state)
        found = []
        groups = zip(
            learner.players.policy_groups, state.population.policy_groups, packed, strict=True
        )
        for group, stack, blocks in groups:
            stop = jnp.cumsum(blocks.num_blocks)
            owner = jnp.searchsorted(stop, jnp.arange(blocks.target.shape[0]), side="right")
            decisions, network = blocks.decisions, group.network

            def compare(
                k, blocks=blocks, network=network, decisions=decisions, owner=owner, stack=stack
            ):
                policy = network.select(stack, k)
                log_prob, _, value = network.evaluate(
                    policy, decisions, blocks.resume, blocks.resume_hidden
                )
                mine = decisions.acted & (owner == k)[:, None]
                return mine, jnp.exp(log_prob - decisions.log_prob), value - decisions.value

            pairs = jax.lax.map(compare, jnp.arange(network.num_members))
            found.append((blocks.target == 0, *pairs))
        seen = {
            "ended": metrics.agents.sums.lives.sum(),
            "held": metrics.agents.sums.lengths.sum() - metrics.sums.decisions.sum(),
            "trained": metrics.sums.trained.sum(),
        }
        return after, found, seen

    state = quick_jit(learner.init)(jax.random.key(1))
    carried_differ, totals = False, {"ended": 0, "held": 0, "trained": 0}
    for _ in range(4):
        state, groups, seen = jax.device_get(iterate(state))
        assert sum(mine.sum() for _, mine, _, _ in groups) == seen["trained"]
        for carried, *found in groups:
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
