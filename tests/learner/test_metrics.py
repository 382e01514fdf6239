"""Statistics against a NumPy replay of the environments' own log."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import FewAct, Ledger, RandomLives, of_slot, quick_jit, read_all, tiny_learner

import jaxmarl_envs
from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.core import MEASURES, Observation
from jaxmarl_envs.spaces import Discrete
from jaxmarl_ppo import Matchups, Scripted
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.summary import full_summary, summarise
from jaxmarl_ppo.ppo import update as ppo
from jaxmarl_ppo.rollout.episode_stats import count_finished, start_tracking, track
from jaxmarl_ppo.rollout.faults import FAULT_FIELDS, check, check_final, check_last, find_fault
from jaxmarl_ppo.types import Outcomes, Running, RunningSums

STEPS, ENVS = 30, 4
PROBES = {"random_lives": RandomLives, "few_act": FewAct}
# Structure that makes episodes end within the test.
SHORT = {"shuttle_grid": {"max_steps": 12}, "asymmetric_play": {"num_rooms": 1}}
SHORT_PARAMS = {
    "crypto": {"max_steps": 7},
    "asymmetric_play": {"max_steps": 8, "max_alice_steps": 4},
}


def no_update(policy_group, shape, policies, opt_state, blocks, coefs, key, axis_name):
    """In place of the optimiser: takes its rows and learns nothing, so that tests compile fast."""
    stats = ppo.no_stats(blocks.num_blocks.shape[0])
    return policies, opt_state, stats.replace(num_steps=blocks.num_blocks * 1.0)


@functools.cache
def scenario(name):
    """An environment with a log, and its parameters."""
    if name in PROBES:
        env = PROBES[name]()
        params = env.default_params
    else:
        env, params = jaxmarl_envs.make(name, **SHORT.get(name, {}))
        params = params.replace(**SHORT_PARAMS.get(name, {}))
    return Ledger(env, STEPS), params


@pytest.mark.rare_cases(
    "few_act-2",
    "asymmetric_play-2",
    "shuttle_grid-1",
    "random_lives-1",
    "random_lives-2",
    "random_lives-5",
    "shuttle_grid-5",
    "tic_tac_toe-5",
    "tic_tac_toe-2",
    "shuttle_grid-2",
    "few_act-1",
    "crypto-5",
    "asymmetric_play-1",
    "crypto-1",
)
@pytest.mark.parametrize(
    ("name", "num_steps"),
    [
        *itertools.product(("random_lives", "tic_tac_toe", "shuttle_grid"), (1, 5)),
        ("random_lives", 2),
        ("few_act", 2),
        ("crypto", 1),
        ("asymmetric_play", 2),
        ("tic_tac_toe", 2),
        ("shuttle_grid", 2),
        ("few_act", 1),
        ("crypto", 5),
        ("asymmetric_play", 1),
    ],
)
def test_every_reward_is_accounted_for(name, num_steps, monkeypatch):
    env, params = scenario(name)
    monkeypatch.setattr(ppo, "update", no_update)
    learner = tiny_learner(
        env, params, mapping="per_agent", num_envs=ENVS, num_steps=num_steps,
        memory=num_steps == 2, normalise_advantages=False,
    )  # fmt: skip
    state = quick_jit(learner.init)(jax.random.key(3))
    step = quick_jit(learner.train_step)
    merged = None
    for done in range(num_steps, STEPS + 1, num_steps):
        state, metrics = step(state)
        merged = metrics if merged is None else metrics_lib.merge(merged, metrics)
        # At every cut while rollouts are short, then at the end.
        if done <= 6 or done + num_steps > STEPS:
            compare(learner, jax.device_get(state), jax.device_get(merged), done)


def compare(learner, state, metrics, done):
    env = learner.env
    truths = read_all(state.per_env.rollout.env_state, done)
    log, sums = state.per_env.rollout.env_state.log, metrics.sums
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3)
    for a in range(env.num_agents):
        slots = [truth[a] for truth in truths]
        lives = [life for slot in slots for life in slot.lives]
        paid = log.reward[:, :done, a].sum()
        trained = sum(row.reward for slot in slots for row in slot.trained)
        open_rows = [slot.pending for slot in slots]
        waiting = sum(row.reward for row in open_rows if row is not None)
        before = sum(slot.uncredited for slot in slots)
        close(trained + waiting + before, paid)  # the replay itself loses nothing
        close(sums.reward[a], paid)
        close(sums.reward_trained[a], trained)
        close(sums.reward_uncredited[a], before)
        pending = of_slot(
            learner, [policy_group.pending for policy_group in state.per_env.policy_groups], a, 1
        )
        close(pending.reward_sum.sum(), waiting)
        np.testing.assert_array_equal(
            pending.decisions.acted, [row is not None for row in open_rows]
        )
        np.testing.assert_array_equal(
            pending.steps, [row.num_steps if row else 0 for row in open_rows]
        )
        assert sums.trained[a] == sum(len(slot.trained) for slot in slots)
        assert sums.decisions[a] == log.acted[:, :done, a].sum()
        close(state.per_env.running.lives.returns[:, a], [slot.running for slot in slots])
        for group in (metrics.agents.sums, metrics.policies.sums):
            assert group.lives[a] == len(lives)
            close(group.returns[a], sum(life[0] for life in lives))
            close(group.lengths[a], sum(life[1] for life in lives))
            if "twice" in group.metrics:
                close(group.metrics["twice"][a], 2 * sum(life[0] for life in lives))
        if lives:
            close(metrics.agents.minimum[a], min(life[0] for life in lives))
            close(metrics.policies.maximum[a], max(life[0] for life in lives))
        else:
            assert metrics.agents.minimum[a] == np.inf
    episodes = [episode for e in range(ENVS) for episode in episodes_of(log, e, done)]
    assert metrics.whole.sums.lives == sums.episodes == len(episodes)
    close(metrics.whole.sums.returns, sum(earned for earned, _ in episodes))
    assert metrics.whole.sums.lengths == sum(steps for _, steps in episodes)
    if episodes:
        close(metrics.whole.minimum, min(episodes)[0])
        close(metrics.whole.maximum, max(episodes)[0])
    assert sums.env_steps == ENVS * done
    if done == STEPS:
        assert metrics.agents.sums.lives.min() > 0
        assert sums.episodes > 0


def episodes_of(log, e, done):
    """What all agents earned together, and steps, of every episode that is over."""
    ends = [0, *(np.flatnonzero(log.over[e, :done]) + 1)]
    return [(log.reward[e, i:j].sum(), j - i) for i, j in itertools.pairwise(ends)]


def outcomes_of(reward, terminated, alive):
    shape = reward.shape
    return Outcomes(
        reward=jnp.array(reward, jnp.float32),
        terminated=jnp.array(terminated),
        truncated=jnp.zeros(shape, bool),
        final_value=jnp.zeros(shape),
        alive=jnp.array(alive),
        acted=jnp.array(alive),
        player=jnp.zeros(shape, jnp.int32),
        has_decided=jnp.ones(shape, bool),
        episode_over=jnp.zeros(shape[:2], bool),
        metrics={},
    )


def test_lives_that_began_before_training_are_not_counted():
    reward = np.arange(1.0, 7.0).reshape(6, 1, 1)
    ends = np.array([0, 1, 0, 0, 1, 0], bool).reshape(6, 1, 1)
    zeros = jnp.zeros((1, 1))
    none = zeros.astype(int)
    lives = RunningSums(zeros, none, none, {}, counted=zeros > 0)
    whole = RunningSums(zeros[0], none[0], none[0], {}, counted=zeros[0] > 0)
    running = Running(lives, whole)
    env, params = jaxmarl_envs.make("basic", num_agents=1)
    players = tiny_learner(env, params).players
    outcomes = outcomes_of(reward, ends, np.ones_like(ends))
    tracker, _ = jax.lax.scan(
        lambda tracker, outcome: (track(players, tracker, outcome), None),
        start_tracking(players, running),
        outcomes,
    )
    running = tracker.running.lives
    for group in count_finished(players, tracker)[:2]:
        assert group.sums.lives.tolist() == [1]
        assert group.sums.returns.tolist() == [3 + 4 + 5]
        assert group.sums.lengths.tolist() == [3]
        assert group.minimum.tolist() == group.maximum.tolist() == [3 + 4 + 5]
    assert running.returns[0, 0] == 6.0
    assert bool(running.counted[0, 0])


def test_lives_and_decisions_count_for_whoever_held_the_slot():
    env = RandomLives()
    tables = ({"*": "left"}, {"*": "right"}, {"*": "script"})
    learner = tiny_learner(
        env, env.default_params, mapping=Matchups(tables), num_envs=ENVS, num_steps=STEPS,
        config={"policies": {"script": Scripted("random")}},
    )  # fmt: skip
    players = learner.players
    assert not players.is_fixed
    assert len(players.scripts) == 1
    state = quick_jit(learner.init)(jax.random.key(0))
    record = quick_jit(lambda state: learner.play(state, jax.random.key(1))[1])(state)
    outcomes = jax.device_get(record.outcomes)
    _, lives, _ = jax.device_get(count_finished(players, record.tracker))
    decisions = metrics_lib._count_decisions(players, record)
    policy_of = np.array(players.policy_of)
    found = {policy: [] for policy in range(3)}
    for e, a in np.ndindex(outcomes.reward.shape[1:]):
        total, began = 0.0, 0
        for t in range(STEPS):
            total += outcomes.reward[t, e, a]
            if outcomes.terminated[t, e, a] or outcomes.truncated[t, e, a]:
                length = outcomes.alive[began : t + 1, e, a].sum()
                found[policy_of[outcomes.player[t, e, a]]].append((total, length))
                total, began = 0.0, t + 1
    for policy, own in found.items():
        assert len(own) > 2, "each of them is to be seen"
        returns, lengths = np.array(own).T
        np.testing.assert_allclose(lives.sums.returns[policy], returns.sum(), rtol=1e-4)
        assert lives.sums.lives[policy] == len(own)
        assert lives.sums.lengths[policy] == lengths.sum()
        assert lives.minimum[policy] == pytest.approx(returns.min(), rel=1e-4)
        assert lives.maximum[policy] == pytest.approx(returns.max(), rel=1e-4)
        mine = policy_of[outcomes.player] == policy
        assert decisions[policy] == (outcomes.acted & mine).sum() > 0


MASKS = ("action_mask", "agent_mask")


def clean(num_steps, num_envs, num_agents):
    """What environments showed and paid, `[T, E, A, ...]`, and what they showed last."""
    shape = (num_steps, num_envs, num_agents)
    yes = np.ones(shape, bool)
    return {
        "features": np.zeros((*shape, 2)),
        "state": np.zeros((*shape[:2], 4)),
        "action_mask": np.ones((*shape, 3), bool),
        "agent_mask": ~yes,
        "reward": np.zeros(shape),
        "final_observation": np.zeros(shape),
        "last_features": np.zeros((*shape[1:], 2)),
        "last_state": np.zeros((num_envs, 4)),
    }


@quick_jit
def find(seen, iteration):
    def observation(features, state, action_mask, agent_mask):
        return Observation(features, action_mask, jnp.ones_like(agent_mask), agent_mask, state)

    def one_step(seen):
        obs = observation(*(seen[name] for name in ("features", "state", *MASKS)))
        layout = ActionLayout(dict.fromkeys(range(3), Discrete(obs.action_mask.shape[-1])))
        return check(obs, seen["reward"], seen["final_observation"], 1, layout)

    last = [seen.pop(name) for name in ("last_features", "last_state")]
    last_fault = check_last(observation(*last, *(seen[name][-1] for name in MASKS)))
    return find_fault(jax.vmap(one_step)(seen), last_fault, iteration)


def test_ends_that_are_valued_after_the_rollout_are_coded_alike():
    rng = np.random.default_rng(0)
    reward, final = rng.choice([0.0, 0.0, np.nan, np.inf], (2, 7, 2, 3)).astype(np.float32)
    yes = jnp.ones((2, 3), bool)
    obs = Observation(jnp.zeros((2, 3, 2)), jnp.ones((2, 3, 3), bool), yes, ~yes)
    layout = ActionLayout(dict.fromkeys(range(3), Discrete(3)))
    at_once = jax.vmap(lambda reward, final: check(obs, reward, final, 1, layout))
    found = check_final(at_once(reward, jnp.zeros_like(final)), final)
    np.testing.assert_array_equal(found, at_once(reward, final))
    assert len(np.unique(found)) == 5


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("field", FAULT_FIELDS)
def test_a_fault_is_named_with_its_place(field, value):
    seen = clean(4, 2, 3)
    assert not find(dict(seen), 0).found
    at = (2, 1, 0)
    if field == "action_mask":
        seen[field][at] = False
    elif field == "agent_mask":
        seen[field][at] = seen[field][2, 1, 2] = True
    else:
        seen[field][at if field != "state" else (2, 1, 3)] = value
    # Neither a later one must hide it, nor one of a later field beside it or in the same slot.
    seen["reward"][3, 0, 0] = seen["final_observation"][2, 0, 0] = np.nan
    if field != "final_observation":
        seen["final_observation"][at] = np.nan
    fault = find(seen, 7)
    if field == "final_observation":
        at = (2, 0, 0)
    assert fault.found
    place = tuple(int(x) for x in (fault.step, fault.env, fault.agent))
    assert (FAULT_FIELDS[fault.field], place, int(fault.iteration)) == (field, at, 7)
    if field in ("features", "state", "reward"):
        assert bool(fault.is_nan) == math.isnan(value)


@pytest.mark.parametrize(
    ("field", "at", "agent"), [("features", (1, 2, 1), 2), ("state", (1, 3), 0)]
)
def test_the_observation_after_the_last_step_can_be_at_fault(field, at, agent):
    seen = clean(4, 2, 3)
    seen[f"last_{field}"][at] = np.inf
    fault = find(seen, 0)
    assert fault.found
    assert [int(x) for x in (fault.step, fault.env, fault.agent)] == [4, 1, agent]
    assert FAULT_FIELDS[fault.field] == field
    assert not fault.is_nan


@pytest.fixture(scope="module")
def trained():
    """Three iterations of a learner with a policy that never decides."""
    env = RandomLives()
    learner = tiny_learner(env, env.default_params, mapping="per_agent", num_envs=ENVS)
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    each = []
    for _ in range(3):
        state, metrics = step(state)
        each.append(jax.device_get(metrics))
    return learner, each


def no_metrics(learner):
    state = jax.eval_shape(learner.init, jax.random.key(0))
    return metrics_lib.empty(learner.players, state.per_env.running.lives, state.population.league)


@pytest.mark.rare
def test_merging_adds_up(trained):
    learner, each = trained
    merged = functools.reduce(metrics_lib.merge, each)
    left = metrics_lib.merge(no_metrics(learner), merged)
    for one in (merged, left):
        np.testing.assert_allclose(one.sums.reward, sum(m.sums.reward for m in each), rtol=1e-5)
        np.testing.assert_array_equal(one.sums.trained, sum(m.sums.trained for m in each))
        lowest = np.min([m.agents.minimum for m in each], axis=0)
        np.testing.assert_array_equal(one.agents.minimum, lowest)
        np.testing.assert_array_equal(one.latest.learning_rate, each[-1].latest.learning_rate)
        assert not one.fault.found


def test_a_summary_is_of_one_seed(trained):
    learner, each = trained
    seeds = jax.tree.map(lambda *x: np.stack(x), *each[:2])
    with pytest.raises(ValueError, match="metrics have an axis of 2 seeds; take those of one"):
        summarise(learner, seeds)


def test_summary_has_no_numbers_for_what_did_not_happen(trained):
    learner, each = trained
    summary = summarise(learner, each[0])
    assert summary["env_steps"] == ENVS * learner.num_steps
    assert summary["decisions"] == sum(p["decisions"] for p in summary["policies"].values())
    for policy in summary["policies"].values():
        assert policy["optimiser_steps"] == 1
        assert policy["explained_variance"] <= 1.0
        assert policy["kl"] == pytest.approx(0.0, abs=1e-5)  # before the only step
    none = no_metrics(learner)
    nothing = summarise(learner, none.replace(sums=none.sums.replace(env_steps=1.0)))
    for policy in nothing["policies"].values():
        assert set(policy) == {"episodes", "decisions"}
    for agent in nothing["agents"].values():
        assert agent == {"episodes": 0}


def test_no_metric_of_an_environment_may_have_the_name_of_a_measure():
    env, params = jaxmarl_envs.make("tic_tac_toe")
    spec = {"imitate": "minimax", "imitate_coef": 0.1}
    learner = tiny_learner(env, params, spec=spec, config={"skip_nonfinite_updates": True})
    summary = full_summary(learner)
    found = summary["agents"]["x"].keys() | summary["policies"]["shared"].keys()
    assert {"length_mean", "entropy", "imitation_loss", "skipped_steps"} <= found
    assert found - {"win", "draw", "loss"} <= MEASURES
