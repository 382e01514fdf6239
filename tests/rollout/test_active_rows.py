"""Rows of the agents that act, against tables of all slots."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import FewAct, quick_jit, tiny_learner

from jaxmarl_ppo import MLP, Matchups, PolicySpec, PPOConfig
from jaxmarl_ppo.credit.decision_table import tabulate
from jaxmarl_ppo.machine import tuning
from jaxmarl_ppo.ops.active_rows import assign_rows, put, take
from jaxmarl_ppo.rollout import faults
from jaxmarl_ppo.types import Decisions

E, S, T = 4, 5, 6
EVERYTHING = {
    "prev_action": True,
    "append_agent_id": True,
    "normalise_observations": True,
    "normalise_rewards": True,
}


@pytest.mark.parametrize("num_active_rows", [1, 2, 4])
def test_rows_hold_those_who_act_in_the_order_of_slots(num_active_rows):
    rng = np.random.default_rng(num_active_rows)
    acting = np.zeros((30, S), bool)
    for row in acting:
        row[rng.choice(S, rng.integers(0, num_active_rows + 1), replace=False)] = True
    slot = np.asarray(assign_rows(jnp.array(acting), num_active_rows))
    assert slot.shape == (30, num_active_rows)
    for active_rows, row in zip(slot, acting, strict=True):
        assert len(set(active_rows)) == num_active_rows
        actors = np.nonzero(row)[0]
        np.testing.assert_array_equal(active_rows[: len(actors)], actors)


def test_where_all_may_act_every_slot_has_a_row_of_its_own():
    x, y = jnp.zeros((E, S)), jnp.ones((E, S))
    slot = assign_rows(x > 0, S)
    assert slot is None
    assert take(x, slot) is x
    assert put(x, slot, y) is x


@pytest.mark.parametrize("num_active_rows", [1, 2])
@pytest.mark.parametrize("kind", ["numbers", "flags", "rows"])
def test_what_is_put_into_rows_is_taken_from_them(kind, num_active_rows):
    rng = np.random.default_rng(0)
    slot = np.stack([rng.permutation(S)[:num_active_rows] for _ in range(E)])
    width = (3,) if kind == "rows" else ()
    others, x = (rng.normal(size=(E, n, *width)).astype(np.float32) for n in (S, num_active_rows))
    others, x = (others > 0, x > 0) if kind == "flags" else (others, x)
    for where in (None, rng.random(slot.shape) < 0.5):
        expected = others.copy()
        for e, active_row in np.ndindex(slot.shape):
            if where is None or where[e, active_row]:
                expected[e, slot[e, active_row]] = x[e, active_row]
        whole = put(*map(jnp.array, (x, slot, others)), None if where is None else jnp.array(where))
        np.testing.assert_array_equal(whole, expected)
        if where is None:
            np.testing.assert_array_equal(take(whole, jnp.array(slot)), x)


def numbered(shape, first):
    """Decisions that can be told apart."""
    number = first + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    no = np.zeros(shape, bool)
    return Decisions(
        inputs=number[..., None], action_mask=no[..., None], action=number.astype(int),
        log_prob=number, value=number, hidden=(), is_first=number % 3 == 0, acted=no,
        policy_index=number.astype(int),
    )  # fmt: skip


@pytest.mark.parametrize("rows_last", [False, True])
@pytest.mark.parametrize("num_active_rows", [1, 2, S])
def test_rows_and_tables_are_each_others_inverse(monkeypatch, num_active_rows, rows_last):
    monkeypatch.setattr(tuning, "CPU", dataclasses.replace(tuning.CPU, rows_last=rows_last))
    rng = np.random.default_rng(1)
    slot = np.stack([np.sort(rng.permutation(S)[:num_active_rows]) for _ in range(T * E)])
    slot = slot.reshape(T, E, num_active_rows)
    active_rows = None if num_active_rows == S else jnp.array(slot)
    pending, decisions = numbered((E, S), 1), numbered((T, E, num_active_rows), 1000)
    decisions = decisions.replace(slot=active_rows)
    table = tabulate(*jax.tree.map(jnp.array, (pending, decisions)))
    expected = np.zeros((1 + T, E, S), np.float32)
    expected[0] = pending.value
    for t, e in np.ndindex(T, E):
        expected[1 + t, e, slot[t, e]] = decisions.value[t, e]
    value, inputs = table.column("value"), table.column("inputs")
    grid = table.to_grid(value)
    np.testing.assert_array_equal(grid, expected)
    np.testing.assert_array_equal(table.from_grid(grid), value)
    np.testing.assert_array_equal(inputs[:, 0], value)
    index = rng.integers(0, len(inputs), (7, 3))
    np.testing.assert_array_equal(table.take(jnp.array(index)).inputs, inputs[index])
    np.testing.assert_allclose(table.total_by_slot(value), expected.sum((0, 1)), rtol=1e-6)
    # Of each slot the latest that it decided, or else what was open.
    row = table.to_grid(jnp.arange(len(value))).max(0)
    assert (row >= E * S).any()
    np.testing.assert_array_equal(table.numbers_of_slots(value, row), value[row])
    latest = table.decisions_of_slots(row)
    np.testing.assert_array_equal(latest.inputs, inputs[row])
    np.testing.assert_array_equal(latest.is_first, table.column("is_first")[row])


def discounts(gamma):
    """A policy that discounts by its own factor."""
    ppo = PPOConfig(num_epochs=1, num_minibatches=1, discount_by="step", gamma=gamma)
    return PolicySpec(network=MLP(hidden_sizes=(8,)), ppo=ppo, **EVERYTHING)


class Undeclared(FewAct):
    """The same environment, which does not say that few act."""

    max_actors = 3


def in_active_rows(record):
    """A record with a row for every slot, as one with active rows."""
    (decisions,) = record.decisions
    slot = jax.vmap(lambda acted: assign_rows(acted, FewAct.max_actors))(decisions.acted)
    compact = jax.vmap(take)(decisions, slot)
    return record._replace(decisions=(compact.replace(slot=slot),))


@pytest.mark.rare_cases("own discounts", "plain")
@pytest.mark.parametrize("case", ["plain", "memory", "own discounts"])
def test_what_is_learnt_from_rows_is_what_is_learnt_from_all_slots(case):
    env, twin = FewAct(), Undeclared()
    memory = case == "memory"
    options = {
        "memory": memory, "spec": EVERYTHING, "num_steps": 8, "num_envs": 5,
        "discount_by": "step", "bptt_length": 3 if memory else None,
    }  # fmt: skip
    if case == "own discounts":
        # Tables, of which one is drawn for each episode.
        options["mapping"] = Matchups(({"*": "near"}, {"*": "far"}))
        options["config"] = {"policies": {"near": discounts(0.4), "far": discounts(0.9)}}
    few, many = (tiny_learner(e, e.default_params, **options) for e in (env, twin))
    assert [learner.players.policy_groups[0].num_active_rows for learner in (few, many)] == [2, 3]
    state = quick_jit(many.init)(jax.random.key(0))
    play = quick_jit(many.play)

    def learn(learner):
        return quick_jit(
            lambda state, slots, record: learner.learn(
                state, slots, record, jnp.ones((), bool), jax.random.split(jax.random.key(1), 1)
            )
        )

    learn_few, learn_many = learn(few), learn(many)
    for key in jax.random.split(jax.random.key(2), 3):
        slots, record = play(state, key)
        compact = in_active_rows(record)
        assert record.decisions[0].acted.sum() == compact.decisions[0].acted.sum() > 0
        expected = jax.device_get(learn_many(state, slots, record))
        found = jax.device_get(learn_few(state, slots, compact))
        acted = carried(expected[0]).acted
        np.testing.assert_array_equal(carried(found[0]).acted, acted)
        assert acted.any()
        for x, y in zip(*(jax.tree.leaves(learnt(*x)) for x in (expected, found)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
        state, _ = learn_many(state, slots, record)
        state = state.replace(per_env=state.per_env.replace(rollout=slots))


class Crowded(FewAct):
    """Two act at a step, and it says that only one does."""

    max_actors = 1


def test_more_actors_than_declared_are_a_fault_and_not_lost():
    learner = tiny_learner(Crowded(), Crowded().default_params, num_steps=8, num_envs=5)
    state = quick_jit(learner.init)(jax.random.key(0))
    _, record = quick_jit(learner.play)(state, jax.random.key(1))
    fault = faults.find_fault(record.faults, record.last_fault, state.iteration)
    acted = np.asarray(record.outcomes.acted)
    (step, env) = (int(x[0]) for x in np.nonzero(acted.sum(-1) > 1))
    agent = np.nonzero(acted[step, env])[0][0]
    assert fault.found
    assert faults.FAULT_FIELDS[int(fault.field)] == "agent_mask"
    assert (int(fault.step), int(fault.env), int(fault.agent)) == (step, env, agent)


def carried(state):
    return state.per_env.policy_groups[0].pending.decisions


def learnt(state, reports):
    """All that is learnt, with what is carried over where something is."""
    (group,), decisions = state.per_env.policy_groups, carried(state)
    rows = jax.tree.map(lambda x: x[decisions.acted], decisions)
    group = group.replace(pending=group.pending.replace(decisions=rows))
    return state.population, state.training, group, reports


def test_a_table_of_rows_is_zero_where_nobody_could_act():
    slot = jnp.array([[[1], [0]]])  # one step, two environments of two slots
    table = tabulate(numbered((2, 2), 1), numbered((1, 2, 1), 5).replace(slot=slot))
    found = table.to_grid(jnp.array([False] * 4 + [True] * 2))
    np.testing.assert_array_equal(found, [[[0, 0], [0, 0]], [[0, 1], [1, 0]]])
