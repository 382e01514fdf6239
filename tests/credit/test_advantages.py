"""Advantages on each agent's own timeline against textbook GAE."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from jaxmarl_ppo.credit.advantages import (
    CreditParams,
    TimelineEntry,
    estimate_credit,
    own_timeline_gae,
    rollout_end,
)
from jaxmarl_ppo.credit.decision_table import tabulate
from jaxmarl_ppo.credit.pending import open_decisions
from jaxmarl_ppo.credit.reward_scaling import discounted_returns
from jaxmarl_ppo.ppo.advantage_stats import standardise_own
from jaxmarl_ppo.types import Decisions, Outcomes, Pending


@functools.partial(jax.jit, static_argnums=3)
def gae(timeline, bootstrap_value, acts_next, by_step):
    """Credit of all entries of whole timelines, `[T, ...]` fields."""

    def back(successor, entry):
        return own_timeline_gae(successor, entry, by_step)

    return jax.lax.scan(back, rollout_end(bootstrap_value, acts_next), timeline, reverse=True)[1]


def target(credit, timeline):
    return credit.advantage + timeline.value


def make(rewards, acted, values, **fields):
    """A timeline from lists; what is not given is as plain as possible."""
    n = len(rewards)
    defaults = {
        "reward_sum": rewards,
        "reward_scale": np.ones(n),
        "steps": np.ones(n, np.int32),
        "terminated": np.zeros(n, bool),
        "truncated": np.zeros(n, bool),
        "final_value": np.zeros(n),
        "gamma": np.full(n, 0.9),
        "gae_lambda": np.full(n, 0.8),
    }
    fields = {**defaults, "reward": rewards, "acted": acted, "value": values, **fields}
    fields["gamma_held"] = fields["gamma"]
    kinds = {"steps": np.int32, "acted": bool, "terminated": bool, "truncated": bool}
    return TimelineEntry(**{k: jnp.array(v, kinds.get(k, np.float32)) for k, v in fields.items()})


def reference(t: TimelineEntry, bootstrap_value, acts_next, by_step):
    """Compress the agent's own decisions, then textbook GAE over them, in float64."""
    num = len(t.acted)
    where = [i for i in range(num) if t.acted[i]]
    rows = {}
    for position, i in enumerate(where):
        following = where[position + 1] if position + 1 < len(where) else num
        total = plain = 0.0
        steps, link, link_value = 0, "next", None
        for j in range(i, following):
            factor = t.gamma[i] ** steps if by_step else 1.0
            total += factor * t.reward[j]
            plain += t.reward_sum[j]
            steps += int(t.steps[j])
            if t.terminated[j]:
                link, link_value = "end", 0.0
                break
            if t.truncated[j]:
                link, link_value = "end", t.final_value[j]
                break
        if link == "next":
            if following < num:
                link_value = t.value[following]
            elif acts_next:
                link, link_value = "cut", bootstrap_value
            else:
                link, link_value = "open", np.nan
        rows[i] = (link, following, total, plain, steps, link_value)
    out = {}
    for i in reversed(where):
        link, following, total, plain, steps, link_value = rows[i]
        factor = t.gamma[i] ** steps if by_step else t.gamma[i]
        delta = np.clip(t.reward_scale[i] * total, -10.0, 10.0) + factor * link_value - t.value[i]
        behind = 0.0
        if link == "next" and out[following]["closed"]:
            behind = out[following]["advantage"]
        out[i] = {
            "advantage": delta + factor * t.gae_lambda[i] * behind,
            "reward": total,
            "reward_sum": plain,
            "steps": steps,
            "closed": link != "open",
        }
    return out


def random_timelines(seed, count, num=12):
    """`count` random slots whose lives start, end, restart and wait; entry 0 is carried or not."""
    rng = np.random.default_rng(seed)
    shape = (count, num)
    density = rng.uniform(0.05, 1.0, (count, 1))
    deaths = rng.choice([0.0, 0.1, 0.4], (count, 1))
    acted = rng.random(shape) < density
    terminated = rng.random(shape) < deaths
    truncated = rng.random(shape) < deaths
    carried = rng.random(count) < 0.5
    acted[:, 0] = carried
    terminated[:, 0] = truncated[:, 0] = False
    reward = rng.normal(size=shape)
    reward_sum = reward.copy()
    reward[:, 0] *= carried
    reward_sum[:, 0] = rng.normal(size=count) * carried
    steps = np.ones(shape, np.int32)
    steps[:, 0] = rng.integers(1, 6, count) * carried
    gamma = np.broadcast_to(rng.choice([0.0, 0.5, 0.99, 1.0], (count, 1)), shape)
    timeline = TimelineEntry(
        reward=reward,
        reward_sum=reward_sum,
        reward_scale=np.broadcast_to(rng.uniform(0.2, 2.0, (count, 1)), shape),
        steps=steps,
        acted=acted,
        value=rng.normal(size=shape),
        terminated=terminated,
        truncated=truncated,
        final_value=rng.normal(size=shape),
        gamma=gamma,
        gamma_held=gamma,
        gae_lambda=np.broadcast_to(rng.choice([0.0, 0.7, 0.95, 1.0], (count, 1)), shape),
    )
    return timeline, rng.normal(size=count), rng.random(count) < 0.5


@pytest.mark.parametrize("by_step", [False, True])
def test_equals_compressed_textbook_gae_on_random_masks(by_step):
    timelines, bootstrap, acts_next = random_timelines(int(by_step), 1200)
    to32 = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == float else x, timelines)
    by_entry = jax.tree.map(np.transpose, to32)
    result = jax.device_get(gae(by_entry, bootstrap.astype(np.float32), acts_next, by_step))
    result = jax.tree.map(np.transpose, result)
    seen = {"open": 0, "carried": 0, "truncated": 0}
    for n in range(len(bootstrap)):
        timeline = jax.tree.map(lambda x, n=n: x[n], timelines)
        truth = reference(timeline, bootstrap[n], acts_next[n], by_step)
        for i, row in truth.items():
            assert result.closed[n, i] == row["closed"]
            assert result.steps[n, i] == row["steps"]
            for name in ("reward", "reward_sum"):
                assert getattr(result, name)[n, i] == pytest.approx(row[name], abs=1e-4)
            if row["closed"]:
                assert result.advantage[n, i] == pytest.approx(row["advantage"], abs=1e-4)
            seen["open"] += not row["closed"]
            seen["carried"] += i == 0
            seen["truncated"] += bool(timeline.truncated[i])
    assert min(seen.values()) > 100


@pytest.mark.parametrize("by_step", [False, True])
def test_everyone_acting_is_textbook_gae(by_step):
    rng = np.random.default_rng(0)
    num = 20
    reward, value = rng.normal(size=num), rng.normal(size=num + 1)
    terminated = rng.random(num) < 0.2
    lambda_ = rng.uniform(0.5, 1.0, num)
    timeline = make(
        reward, np.ones(num, bool), value[:-1], terminated=terminated, gae_lambda=lambda_
    )
    ours = gae(timeline, jnp.float32(value[-1]), jnp.array(True), by_step)
    theirs = rlax.truncated_generalized_advantage_estimation(
        timeline.reward,
        0.9 * ~timeline.terminated,
        timeline.gae_lambda,
        jnp.array(value, jnp.float32),
    )
    np.testing.assert_allclose(ours.advantage, theirs, atol=1e-5)
    assert ours.closed.all()


def test_hand_table_loss_on_the_opponents_move():
    # I move at steps 0 and 2; the opponent's move at step 3 loses the game for me.
    timeline = make(
        [0.0, 0.5, 0.0, -1.0],
        [1, 0, 1, 0],
        [0.2, 9.0, 0.4, 9.0],
        terminated=[0, 0, 0, 1],
    )
    result = gae(timeline, jnp.float32(7.0), jnp.array(True), False)
    # A2 = -1 - .4 = -1.4;  A0 = .5 + .9 * .4 - .2 + .9 * .8 * -1.4 = .66 - 1.008
    np.testing.assert_allclose(result.advantage[jnp.array([0, 2])], [-0.348, -1.4], atol=1e-6)
    np.testing.assert_allclose(result.reward[jnp.array([0, 2])], [0.5, -1.0])
    np.testing.assert_array_equal(result.steps[jnp.array([0, 2])], [2, 2])


def test_hand_table_by_step():
    # Decisions at steps 0 and 3; waiting afterwards, then truncated with V(final) = 2 at step 4.
    timeline = make(
        [1.0, 2.0, 4.0, 1.0, 1.0],
        [1, 0, 0, 1, 0],
        [1.0, 9.0, 9.0, 3.0, 9.0],
        truncated=[0, 0, 0, 0, 1],
        final_value=[0, 0, 0, 0, 2.0],
        gamma=np.full(5, 0.5),
    )
    result = gae(timeline, jnp.float32(7.0), jnp.array(True), True)
    # A3 = 1 + .5 + .25 * 2 - 3 = -1;  A0 = 1 + 1 + 1 + .125 * 3 - 1 + .125 * .8 * -1 = 2.275
    np.testing.assert_allclose(result.advantage[jnp.array([0, 3])], [2.275, -1.0], atol=1e-6)
    np.testing.assert_allclose(result.reward_sum[jnp.array([0, 3])], [7.0, 2.0])


def test_hand_table_rebirth_and_open_decision():
    # Dies at step 1, earns 5 in a new life before deciding at step 3, then waits as the rollout
    # ends.
    timeline = make(
        [1.0, 1.0, 5.0, 2.0, 3.0], [1, 0, 0, 1, 0], [0.5] * 5, terminated=[0, 1, 0, 0, 0]
    )
    result = gae(timeline, jnp.float32(7.0), jnp.array(False), False)
    np.testing.assert_array_equal(result.closed[jnp.array([0, 3])], [True, False])
    np.testing.assert_allclose(result.reward[jnp.array([0, 3])], [2.0, 5.0])
    assert result.advantage[0] == pytest.approx(1.5)


def test_terminated_wins_over_truncated_and_neither_is_the_other():
    for terminated, truncated, value in [(1, 0, 0.0), (0, 1, 4.0), (1, 1, 0.0)]:
        timeline = make(
            [1.0], [1], [0.0], terminated=[terminated], truncated=[truncated], final_value=[4.0]
        )
        result = gae(timeline, jnp.float32(100.0), jnp.array(True), False)
        assert target(result, timeline)[0] == pytest.approx(1.0 + 0.9 * value)


# A long timeline cut into rollouts.

E, A, TOTAL = 3, 4, 42


def long_run(seed):
    rng = np.random.default_rng(seed)
    shape = (TOTAL, E, A)
    decisions = Decisions(
        inputs=np.arange(TOTAL * E * A, dtype=np.float32).reshape(*shape, 1),
        action_mask=np.ones((*shape, 2), bool),
        action=rng.integers(0, 2, shape),
        log_prob=rng.normal(size=shape).astype(np.float32),
        value=rng.normal(size=shape).astype(np.float32),
        hidden=(rng.normal(size=(*shape, 2)).astype(np.float32),),
        is_first=rng.random(shape) < 0.2,
        acted=rng.random(shape) < 0.3,
        policy_index=rng.integers(0, 3, shape),
    )
    terminated = rng.random(shape) < 0.08
    outcomes = Outcomes(
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=(rng.random(shape) < 0.08) & ~terminated,
        final_value=rng.normal(size=shape).astype(np.float32),
        alive=np.ones(shape, bool),
        acted=np.ones(shape, bool),
        player=np.zeros(shape, np.int32),
        has_decided=np.ones(shape, bool),
        episode_over=np.zeros((TOTAL, E), bool),
        metrics={},
    )
    return decisions, outcomes


@pytest.mark.rare_cases("True")
@pytest.mark.parametrize("by_step", [False, True])
def test_cutting_a_run_into_rollouts_trains_every_decision_once(by_step):
    decisions, outcomes = long_run(3)
    ones = np.ones((TOTAL, E, A), np.float32)
    timeline = TimelineEntry(
        reward=outcomes.reward, reward_sum=outcomes.reward, reward_scale=ones,
        steps=ones.astype(np.int32), acted=decisions.acted, value=decisions.value,
        terminated=outcomes.terminated, truncated=outcomes.truncated,
        final_value=outcomes.final_value, gamma=0.9 * ones, gae_lambda=0 * ones,
        gamma_held=0.9 * ones,
    )  # fmt: skip
    zeros = jnp.zeros((E, A))
    uncut = jax.device_get(gae(timeline, zeros, zeros > 0, by_step))
    closed = np.asarray(uncut.closed) & decisions.acted
    params = CreditParams(gamma=jnp.full(3, 0.9), gae_lambda=jnp.zeros(3), reward_scale=jnp.ones(3))
    group = SimpleNamespace(
        interface=SimpleNamespace(own=lambda x: x), members=lambda player: (player, player >= 0)
    )

    @jax.jit
    def one_rollout(pending, part, part_outcomes, value, acts_next):
        table = tabulate(pending.decisions, part)
        end = rollout_end(value, acts_next)
        credit, opened = estimate_credit(group, pending, part, part_outcomes, params, end, by_step)
        every = jnp.arange(closed[0].size * (1 + len(part.acted))).reshape(table.grid_shape)
        rows = table.take(every).replace(hidden=table.gather_hidden(every))
        by_row = jax.tree.map(lambda x: x[every], credit)
        return rows, by_row, open_decisions(table, credit, opened)

    for length in (1, 2, 3, 7):
        first = jax.tree.map(lambda x: jnp.zeros_like(x[0]), decisions)
        pending = Pending(first, zeros, zeros, zeros.astype(jnp.int32))
        count = np.zeros(TOTAL * E * A, int)
        for start in range(0, TOTAL, length):
            part, part_outcomes = jax.tree.map(
                lambda x, at=slice(start, start + length): x[at], (decisions, outcomes)
            )
            stop = start + length
            last = stop >= TOTAL
            acts_next = np.zeros((E, A), bool) if last else decisions.acted[stop]
            value = np.zeros((E, A), np.float32) if last else decisions.value[stop]
            # A decision that is due in a slot whose life has just ended closes nothing.
            rows, credit, pending = jax.device_get(
                one_rollout(pending, part, part_outcomes, value, acts_next)
            )
            for t, e, a in zip(*np.nonzero(rows.acted & credit.closed), strict=True):
                row = int(rows.inputs[t, e, a, 0])
                count[row] += 1
                at = np.unravel_index(row, (TOTAL, E, A))
                for name in ("reward", "reward_sum", "steps", "advantage"):
                    expected = getattr(uncut, name)[at]
                    assert getattr(credit, name)[t, e, a] == pytest.approx(expected, abs=1e-4)
                for name in ("log_prob", "value", "action", "policy_index", "is_first"):
                    assert getattr(rows, name)[t, e, a] == getattr(decisions, name)[at]
                np.testing.assert_array_equal(rows.hidden[0][t, e, a], decisions.hidden[0][at])
        np.testing.assert_array_equal(count.reshape(TOTAL, E, A), closed.astype(int))
        still_open = decisions.acted & ~closed
        assert pending.decisions.acted.sum() == still_open.sum() > 0


def test_standardise_own_counts_trainable_rows_only():
    rng = np.random.default_rng(0)
    shape = (60,)
    policy = rng.integers(0, 3, shape)
    trainable = (rng.random(shape) < 0.6) & (policy != 2)
    advantage = np.where(trainable, rng.normal(3.0, 2.0, shape), np.nan).astype(np.float32)
    result = np.asarray(standardise_own(advantage, jnp.array(trainable), jnp.array(policy), 3))
    for k in (0, 1):
        own = trainable & (policy == k)
        expected = (advantage[own] - advantage[own].mean()) / advantage[own].std()
        np.testing.assert_allclose(result[own], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_rows", [100, 4096, 100_000])
def test_advantages_that_differ_by_rounding_alone_stay_small(num_rows):
    advantage = jnp.full(num_rows, 3.7)
    own = jnp.ones(num_rows, bool)
    result = standardise_own(advantage, own, jnp.zeros(num_rows, int), 1)
    assert np.abs(result).max() < 0.1
    # What does differ is told from it, however large the mean.
    spread = 1.0 * (jnp.arange(num_rows) % 2) + 1000.0
    result = standardise_own(spread, own, jnp.zeros(num_rows, int), 1)
    np.testing.assert_allclose(np.abs(result), 1.0, rtol=1e-2)


def test_scaled_rewards_are_clipped_and_others_are_not():
    fields = {"gamma": [0.5], "gae_lambda": [1.0], "terminated": [True]}
    for reward, scale, expected in (
        (3.0, 2.0, 6.0), (30.0, 2.0, 10.0), (-30.0, 2.0, -10.0), (30.0, None, 30.0),
    ):  # fmt: skip
        scale = None if scale is None else np.array([scale])
        timeline = make([reward], [True], [1.0], **fields).replace(reward_scale=scale)
        credit = gae(timeline, jnp.zeros(()), jnp.ones((), bool), False)
        assert float(credit.advantage[0]) == pytest.approx(expected - 1.0)


def test_discounted_returns_restart_with_lives_and_skip_rows_that_train_nothing():
    reward = np.array([1.0, 2.0, 100.0, 3.0, 4.0])[:, None, None]
    is_first = np.array([0, 0, 1, 1, 0], bool)[:, None, None]
    trained = np.array([1, 1, 0, 1, 1], bool)[:, None, None]
    last, trace = discounted_returns(
        jnp.full((1, 1), 10.0), is_first, trained, reward, np.full((5, 1, 1), 0.5)
    )
    np.testing.assert_allclose(np.asarray(trace).ravel()[[0, 1, 3, 4]], [11.0, 7.5, 3.0, 5.5])
    assert last[0, 0] == 2.75
