"""Two devices learn from a rollout what one device would; each explores for itself."""

import dataclasses
import functools
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import FAULTS, Faulty, FaultyParams, RandomLives, quick_jit, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo import Matchups, Snapshots, TrainConfig, Trainer, load_run, use_cpu_cores
from jaxmarl_ppo.devices import sharding
from jaxmarl_ppo.devices.sharding import BY_ENV, SAME, Devices, rollout_specs
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.machine.cores import choose_num_devices
from jaxmarl_ppo.ops.collectives import split_key
from jaxmarl_ppo.rollout.faults import find_fault
from jaxmarl_ppo.runs.files import CONFIG_FILE

NUM_ENVS, NUM_STEPS = 6, 14
NORMALISERS = {"normalise_observations": True, "normalise_rewards": True}
LEAGUE = {
    "mapping": Matchups(({"x": "main", "o": "past"}, {"x": "past", "o": "main"})),
    "config": {"policies": {"past": Snapshots("main", size=2, add_every=1)}},
}
CASES = {
    "groups": lambda: (jaxmarl_envs.make("crypto"), {"mapping": "per_agent"}),
    "memory": lambda: (
        (RandomLives(), RandomLives().default_params),
        {"memory": True, "spec": NORMALISERS},
    ),
    "league": lambda: (jaxmarl_envs.make("tic_tac_toe"), LEAGUE),
    # Whose steps are in proportion to the gradients but for the norms of each weight.
    "tree": lambda: (
        jaxmarl_envs.make("crypto"),
        {"mapping": "per_agent", "optimiser": "lars", "learning_rate": 10.0},
    ),
}


def after_play(learner, state, slots, record, axis_name):
    """What `train_step` does once a rollout is there."""
    fault = find_fault(record.faults, record.last_fault, state.iteration, axis_name)
    keys = jax.random.split(jax.random.key(3), len(learner.group_learners))
    learnt, reports = learner.learn(state, slots, record, ~fault.found, keys, axis_name)
    after = learner._update_league(state, learnt, slots, record, ~fault.found, axis_name)
    league = after.population.league
    metrics = metrics_lib.measure(
        learner.players, learner.group_learners, record, reports, league, fault, axis_name
    )
    per_env = after.per_env.replace(running=record.tracker.running)
    return after.replace(per_env=per_env), metrics


class Both:
    """`after_play` on one device and on two, compiled once."""

    def __init__(self, learner):
        def run(state, slots, record, axis_name):
            return after_play(learner, state, slots, record, axis_name)

        self.init, self.play = quick_jit(learner.init), quick_jit(learner.play)
        specs = sharding.state_specs()
        lie = (specs, BY_ENV, rollout_specs()), (specs, SAME)
        self.one = quick_jit(functools.partial(run, axis_name=None))
        self.two = Devices(2).jit(run, *lie)

    def __call__(self, state, slots, record):
        args = (state, slots, record)
        return jax.device_get((self.one(*args), self.two(*args)))


def assert_close(x, y, atol=2e-5):
    def close(x, y):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=atol)

    jax.tree.map(close, x, y)


@pytest.mark.rare_cases("memory", "groups", "league", "tree")
@pytest.mark.parametrize("case", CASES)
def test_a_rollout_teaches_two_devices_what_it_teaches_one(case):
    (env, params), kwargs = CASES[case]()
    # One minibatch has the same rows, however they are shuffled and spread. With a large epsilon
    # Adam's steps are in proportion to the gradients, else rounding could turn a small one around.
    ppo = {"num_epochs": 2, "learning_rate": 0.1}
    if "optimiser" not in kwargs:
        ppo["adam_eps"] = 1.0
    learner = tiny_learner(env, params, num_envs=NUM_ENVS, num_steps=NUM_STEPS, **{**ppo, **kwargs})
    both = Both(learner)
    state = both.init(jax.random.key(0))
    slots, record = both.play(state, jax.random.key(1))
    (first, _), (spread, _) = both(state, slots, record)
    assert_close(first, spread)
    # Again from there: with open decisions, normalisers and results of the rollout before.
    per_env = first.per_env.replace(rollout=slots)
    state = first.replace(per_env=per_env, iteration=jnp.int32(1))
    state = jax.tree.map(jnp.asarray, state)
    slots, record = both.play(state, jax.random.key(2))
    (one, one_metrics), (two, two_metrics) = both(state, slots, record)
    assert_close(one, two)
    # Sums over hundreds of rows of about 1, which may all but cancel out.
    assert_close(one_metrics, two_metrics, atol=2e-4)
    moved = jax.tree.map(
        lambda x, y: np.abs(x - y).max(),
        one.population.policy_groups,
        first.population.policy_groups,
    )
    assert max(jax.tree.leaves(moved)) > 1e-4
    assert one_metrics.sums.episodes > 0
    assert (one_metrics.sums.trained > 0).any()


@pytest.mark.rare
def test_a_snapshot_waits_for_a_life_on_the_other_device():
    learner = tiny_learner(*jaxmarl_envs.make("tic_tac_toe"), num_envs=4, **LEAGUE)
    both = Both(learner)
    state = both.init(jax.random.key(0))
    (pool,) = state.population.league.pools
    full = pool.replace(count=jnp.int32(2), oldest=jnp.int32(1))
    population = state.population
    league = population.league.replace(pools=(full,))
    state = state.replace(population=population.replace(league=league))
    slots, record = both.play(state, jax.random.key(1))
    oldest = learner.players.pools[0].first_player + 1
    for env_index, waits in ((None, False), (3, True), (0, True)):
        player = jnp.zeros_like(slots.player)
        if env_index is not None:
            player = player.at[env_index, 0].set(oldest)
        (one, _), (two, _) = both(state, slots.replace(player=player), record)
        assert bool(one.population.league.pools[0].waiting) == waits
        assert_close(one.population.league, two.population.league)


def test_devices_explore_each_for_itself():
    env, params = jaxmarl_envs.make("crypto")
    learner = tiny_learner(env, params, num_envs=4, num_steps=20)
    state = quick_jit(learner.init)(jax.random.key(0))
    # Both halves begin alike.
    slots = jax.tree.map(lambda x: jnp.concatenate([x[:2], x[:2]]), state.per_env.rollout)
    state = state.replace(per_env=state.per_env.replace(rollout=slots))

    def play(state, key, axis_name):
        return learner.play(state, split_key(key, 1, axis_name)[1][0])

    devices, specs = Devices(2), sharding.state_specs()
    out = (BY_ENV, rollout_specs())
    _, record = devices.jit(play, (specs, SAME), out)(state, jax.random.key(1))
    action = np.asarray(record.decisions[0].action)
    assert (action[:, :2] != action[:, 2:]).mean() > 0.3


@pytest.mark.rare
def test_parameters_stay_the_same_on_all_devices():
    env, params = jaxmarl_envs.make("tic_tac_toe")
    learner = tiny_learner(env, params, num_envs=4, num_minibatches=2, **LEAGUE)
    state = quick_jit(learner.init)(jax.random.key(0))
    devices, specs = Devices(2), sharding.state_specs()
    step = devices.jit(learner.train_step, (specs,), (specs, SAME), donate=(0,))
    state = devices.place(state)
    for _ in range(3):
        state, metrics = step(state)
    assert metrics.sums.env_steps == 4 * 5
    for leaf in jax.tree.leaves((state.population.policy_groups, state.training)):
        first, second = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        np.testing.assert_array_equal(first, second)
    first, second = state.per_env.rollout.player.addressable_shards
    assert first.data.shape == second.data.shape == (2, 2)


def test_a_fault_is_found_where_it_is():
    params = FaultyParams(fault=FAULTS.index("reward"), step=3, value=jnp.nan)
    learner = tiny_learner(Faulty(), params, num_envs=4, num_steps=6)
    both = Both(learner)
    state = both.init(jax.random.key(0))
    slots, record = both.play(state, jax.random.key(1))
    # Of all environments only the last one, on the second device, is left at fault.
    record = record._replace(faults=record.faults.at[:, :3].set(0))
    (one, one_metrics), (two, two_metrics) = both(state, slots, record)
    for fault in (one_metrics.fault, two_metrics.fault):
        assert fault.found
        assert fault.is_nan
        assert (fault.step, fault.env, fault.agent) == (3, 3, 1)
    for after in (one, two):  # such a rollout trains nobody
        assert_close(
            after.population.policy_groups[0], jax.device_get(state.population.policy_groups[0])
        )


@pytest.mark.parametrize(
    ("num_devices", "num_envs", "expected"),
    [(None, 16, 2), (None, 15, 1), (None, 17, 1), (None, 400, 2), (1, 16, 1), (2, 2, 2)],
)
def test_number_of_devices(num_devices, num_envs, expected):
    assert choose_num_devices(num_envs, num_devices) == expected


@pytest.mark.parametrize(
    ("num_devices", "num_envs", "message"),
    [(3, 6, "exceeds the 2 that JAX sees"), (2, 5, "num_envs=5 .* make it a multiple")],
)
def test_impossible_numbers_of_devices(num_devices, num_envs, message):
    env, params = jaxmarl_envs.make("basic")
    config = TrainConfig(num_devices=num_devices, num_envs=num_envs, total_env_steps=10)
    with pytest.raises(ValueError, match=message):
        Trainer(env, params, config)


def test_use_cpu_cores_after_the_start_of_jax():
    jnp.zeros(1).block_until_ready()
    with pytest.raises(ValueError, match="before JAX starts"):
        use_cpu_cores(7)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        use_cpu_cores(0)


@pytest.mark.parametrize(("call", "flags", "expected"), [("3", "", 3), ("", "2", 2)])
def test_use_cpu_cores_in_a_fresh_process(call, flags, expected):
    code = f"import jaxmarl_ppo, jax; jaxmarl_ppo.use_cpu_cores({call}); print(jax.device_count())"
    flag = f"--xla_force_host_platform_device_count={flags}" if flags else ""
    command = ["env", f"XLA_FLAGS={flag}", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(expected)]


@pytest.mark.rare
def test_a_run_on_more_devices_than_there_are_can_be_loaded(tmp_path):
    env, params = jaxmarl_envs.make("basic")
    config = TrainConfig(num_envs=16, num_steps=4, total_env_steps=64)
    result = Trainer(env, params, config, tmp_path / "run", progress=False).train()
    path = result.run_dir / CONFIG_FILE
    record = json.loads(path.read_text())
    assert record["config"]["num_devices"] == 2
    record["config"]["num_devices"] = 64
    path.write_text(json.dumps(record))
    run = load_run(result.run_dir)
    assert run.learner.num_devices == 1
    assert dataclasses.replace(run.config, num_devices=None).num_envs == 16
    assert_close(jax.device_get(run.population), jax.device_get(result.population))
