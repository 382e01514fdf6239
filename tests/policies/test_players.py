"""Who plays: players numbered, held for a life, drawn anew for the next."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from probe_envs import Duel, RandomLives, Reach, quick_jit, tiny_learner

import jaxmarl_envs
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_ppo.config.mapping import Ensemble, MappingFunction, Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Scripted, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP
from jaxmarl_ppo.policies.plan import plan_players
from jaxmarl_ppo.rollout.rollout import rollout

ENVS = 512


def plan(env, config):
    return plan_players(env, env.default_params, config, config.num_envs)


def test_policies_of_equal_shape_share_a_policy_group_and_others_do_not():
    players, plans = plan(RandomLives(), TrainConfig(mapping="per_agent"))
    assert [[member.name for member in plan.members] for plan in plans] == [["a", "b"], ["c"]]
    assert [group.interface.slots for group in players.policy_groups] == [(0, 1), (2,)]
    assert [group.network.distribution.num_outputs for group in players.policy_groups] == [3, 4]
    assert players.names == ("a", "b", "c")


def test_a_few_features_more_or_less_share_a_policy_group():
    env, _ = jaxmarl_envs.make("crypto")  # eve sees 4 features, the others 8
    for policies in ("per_agent", "shared"):
        players, _ = plan(env, TrainConfig(mapping=policies))
        assert [group.network.input_shape for group in players.policy_groups] == [(8,)]
        assert players.policy_groups[0].interface.slots == (0, 1, 2)


class Widths(RandomLives):
    """Agents that see 2, 16 and 17 features, and have equally many actions."""

    def observation_space(self, agent, params):
        return Box(-np.inf, np.inf, ({"a": 2, "b": 16, "c": 17}[agent],))

    def action_space(self, agent, params):
        return Discrete(3)


def test_networks_are_sized_for_the_agents_that_they_can_play():
    players, _ = plan(Widths(), TrainConfig(mapping="per_agent"))
    assert [group.network.input_shape for group in players.policy_groups] == [(16,), (17,)]
    mixed = {"a": ["one", "two"], "c": "two", "b": "three"}
    players, plans = plan(Widths(), TrainConfig(mapping=mixed))
    widths = {
        member.name: group.network.input_shape[0]
        for group, plan in zip(players.policy_groups, plans, strict=True)
        for member in plan.members
    }
    assert widths == {"one": 16, "three": 16, "two": 17}


def test_unequal_networks_and_unequal_updates_make_policy_groups():
    env = Duel()
    specs = {
        "first": PolicySpec(network=LSTM(lstm_size=4)),
        "second": PolicySpec(network=MLP(hidden_sizes=(4,)), ppo=PPOConfig(learning_rate=1.0)),
    }
    config = TrainConfig(mapping={"*": ["first", "second", "third", "fourth"]}, policies=specs)
    players, plans = plan(env, config)
    names = [[member.name for member in plan.members] for plan in plans]
    assert names == [["first"], ["second"], ["third", "fourth"]]
    assert players.names == ("first", "second", "third", "fourth")
    by_step = PPOConfig(discount_by="step")
    specs = {"third": PolicySpec(ppo=by_step), "fourth": PolicySpec(trainable=False)}
    _, plans = plan(env, TrainConfig(mapping=config.mapping, policies=specs))
    names = [[member.name for member in plan.members] for plan in plans]
    assert names == [["first", "second", "fourth"], ["third"]]
    assert [plan.num_trainable for plan in plans] == [2, 1]


def test_snapshots_are_rows_behind_the_policies_and_scripts_come_last():
    env = Duel()
    specs = {
        "old": Snapshots("new", size=2, add_every=1),
        "dull": Scripted("random"),
        "still": PolicySpec(trainable=False),
    }
    mapping = {"*": ["dull", "old", "still", "new"]}
    players, _ = plan(env, TrainConfig(mapping=mapping, policies=specs))
    assert players.names == ("new", "still", "old@0", "old@1", "dull")
    assert [players.policies[k] for k in players.policy_of] == [
        "new",
        "still",
        "old",
        "old",
        "dull",
    ]
    assert players.first_player_of == (4, 2, 1, 0)
    (pool,) = players.pools
    assert (pool.origin, pool.origin_index, pool.first_index, pool.first_player) == (0, 0, 2, 2)
    assert players.policy_groups[0].network.num_members == 4
    assert players.policy_groups[0].num_trainable == 1
    assert players.able(0) == [0, 1, 2, 3, 4]
    assert players.learners(0) == [0]


def test_continuous_agents_have_their_own_dimensions():
    players, _ = plan(Reach(), TrainConfig(mapping="per_agent"))
    assert [group.network.distribution.num_outputs for group in players.policy_groups] == [2, 4]
    np.testing.assert_array_equal(players.policy_groups[0].interface.bounds[1], [[3.0]])
    np.testing.assert_array_equal(players.policy_groups[1].interface.bounds[0], [[0.0, -2.0]])


def play(learner, num_steps, num_rollouts, key=0):
    """Who held each slot, who lived and where lives ended, `[steps, E, A]`."""
    state = quick_jit(learner.init)(jax.random.key(key))
    args = (learner.env, learner.env_params, learner.players, state.population)

    @quick_jit
    def go_on(slots, key):
        after, record = rollout(*args, slots, state.per_env.running, key, num_steps)
        outcomes = record.outcomes
        ended = outcomes.terminated | outcomes.truncated
        return after, (outcomes.player, outcomes.alive, ended, outcomes.episode_over)

    slots, seen = state.per_env.rollout, []
    for index in range(num_rollouts):
        slots, record = go_on(slots, jax.random.key(1000 + index))
        seen.append(jax.device_get(record))
    return tuple(np.concatenate(x) for x in zip(*seen, strict=True)), slots


@pytest.mark.rare_cases("3", "7")
@pytest.mark.parametrize("num_steps", [1, 3, 7])
def test_a_draw_is_held_for_a_life_and_made_anew_for_the_next(num_steps):
    """Random lives with rebirths and late joins, in rollouts that cut them everywhere."""
    env = RandomLives()
    mapping = Ensemble(3, weights=(2, 1, 1))
    learner = tiny_learner(
        env, env.default_params, mapping=mapping, num_envs=ENVS, network={"hidden_sizes": (2,)}
    )
    (player, alive, ended, over), slots = play(learner, num_steps, -(-84 // num_steps))
    names = np.array(learner.players.names)
    continues = alive[:-1] & ~ended[:-1]
    assert (player[1:] == player[:-1])[continues].all()
    np.testing.assert_array_equal(slots.episode, over.sum(0))
    born = alive[1:] & (~alive[:-1] | ended[:-1])
    assert born.sum() > 10_000
    reborn = alive[1:] & ended[:-1] & ~over[:-1, :, None]
    assert reborn.sum() > 1_000
    for slot, agent in enumerate(env.agents):
        for among in (born, reborn):
            drawn = names[player[1:, :, slot][among[..., slot]]]
            for k, share in enumerate((0.5, 0.25, 0.25)):
                error = np.sqrt(share * (1 - share) / len(drawn))
                assert abs((drawn == f"{agent}_{k}").mean() - share) < 4.5 * error
        # The next life's policy does not depend on the last one's.
        again = reborn[..., slot]
        before, after = player[:-1, :, slot][again], player[1:, :, slot][again]
        same = (before == after).mean()
        assert abs(same - (0.25 + 2 / 16)) < 4.5 * np.sqrt(0.375 * 0.625 / len(before))


def test_a_rebirth_redraws_its_own_slot_alone():
    env = RandomLives()
    learner = tiny_learner(
        env,
        env.default_params,
        mapping=Ensemble(4, joint=True),
        num_envs=64,
        network={"hidden_sizes": (2,)},
    )
    (player, alive, _, _), _ = play(learner, 5, 12)
    member = np.array([int(name.split("_")[1]) for name in learner.players.names])[player]
    for t, e in np.ndindex(*alive.shape[:2]):
        present = member[t, e][alive[t, e]]
        assert (present == present[:1]).all()


def test_a_function_sees_how_many_episodes_there_were():
    def every_third(key, draw):
        del key
        return jnp.where(draw.episode % 3 == 2, 1, jnp.zeros(2, jnp.int32))

    env = Duel()
    learner = tiny_learner(
        env, None, mapping=MappingFunction(every_third, ("often", "seldom")), num_envs=2
    )
    (player, _, _, over), _ = play(learner, 4, 8)
    before = np.concatenate([np.zeros((1, 2), int), np.cumsum(over, 0)[:-1]])
    assert before.max() > 5
    np.testing.assert_array_equal(
        player, np.broadcast_to((before % 3 == 2)[..., None], player.shape)
    )


def test_a_function_sees_who_lives_at_the_beginning_of_every_episode():
    def by_occupied(key, draw):
        del key
        return draw.occupied.astype(int)

    env = RandomLives()
    learner = tiny_learner(
        env,
        env.default_params,
        mapping=MappingFunction(by_occupied, ("absent", "present")),
        num_envs=64,
        network={"hidden_sizes": (2,)},
    )
    (player, alive, _, over), _ = play(learner, 5, 6)
    policy = np.array(learner.players.policy_of)[player]
    assert (policy[alive] == 1).all()
    first = np.concatenate([np.ones((1, 64), bool), over[:-1]])
    assert first[1:].any()
    np.testing.assert_array_equal(policy[first], alive[first])


def test_scripted_actions_reach_the_environment_and_train_nothing():
    env, params = jaxmarl_envs.make("crypto")

    def says_two(state, obs, params, key):
        del state, obs, params, key
        return jnp.full(3, 2)

    learner = tiny_learner(
        env,
        params,
        mapping={"eve_0": "fixed", "bob_0": "bob", "alice_0": "fixed"},
        config={"policies": {"fixed": Scripted(says_two)}},
        num_envs=4,
        num_steps=6,
    )
    state = quick_jit(learner.init)(jax.random.key(0))
    state, metrics = quick_jit(learner.train_step)(state)
    assert (state.per_env.rollout.env_state.message == jnp.eye(4)[2]).all()
    np.testing.assert_array_equal(metrics.sums.decisions, [48, 24])
    np.testing.assert_array_equal(metrics.sums.trained[0], 0)
    assert len(learner.players.policy_groups) == 1
    assert learner.players.policy_groups[0].interface.slots == (1,)


@pytest.mark.parametrize("optimiser", ["adam", "muon"])
def test_frozen_policies_do_not_change_by_a_bit(optimiser):
    env = Duel()
    learner = tiny_learner(
        env,
        None,
        mapping={"*": ["learns", "frozen"]},
        config={"policies": {"frozen": PolicySpec(network=MLP(hidden_sizes=(8,)), trainable=False,
                                               normalise_observations=True)}},
        spec={"normalise_observations": True},
        num_envs=16,
        optimiser=optimiser,
    )  # fmt: skip
    assert len(learner.players.policy_groups) == 1
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    before = jax.device_get(state)
    for _ in range(3):
        state, metrics = step(state)
    frozen = learner.players.names.index("frozen")
    pairs = zip(
        *map(jax.tree.leaves, (before.population.policy_groups, state.population.policy_groups)),
        strict=True,
    )
    moved = [
        ((old[frozen] != new[frozen]).any(), (old[1 - frozen] != new[1 - frozen]).any())
        for old, new in pairs
    ]
    assert not any(row[0] for row in moved)
    assert any(row[1] for row in moved)
    assert metrics.sums.decisions[frozen] > 0
    assert metrics.sums.update.num_steps[frozen] == 0
    assert all(leaf.shape[0] == 1 for leaf in jax.tree.leaves(state.training[0].opt_state))


class TwoActions(nn.Module):
    """A network of the user's own that was made for two actions."""

    @nn.compact
    def __call__(self, hidden, inputs):
        return hidden, nn.Dense(2)(inputs), nn.Dense(1)(inputs)[..., 0]


def test_a_network_of_another_shape_is_named_with_its_agents():
    specs = {"c": PolicySpec(network=TwoActions())}
    with pytest.raises(ValueError, match="policy c, which plays c: network TwoActions returned"):
        plan(RandomLives(), TrainConfig(mapping="per_agent", policies=specs))


@pytest.mark.rare
def test_a_network_with_memory_and_one_without_train_side_by_side():
    env = RandomLives()
    specs = {"b": PolicySpec(network=LSTM(hidden_sizes=(4,), lstm_size=4))}
    learner = tiny_learner(
        env, env.default_params, mapping="per_agent", config={"policies": specs}, num_envs=8
    )
    assert [group.network.is_recurrent for group in learner.players.policy_groups] == [
        False,
        True,
        False,
    ]
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    before = state
    for _ in range(2):
        state, metrics = step(state)
        np.testing.assert_array_equal(metrics.sums.update.num_steps, 1)
    for old, new in zip(
        before.population.policy_groups, state.population.policy_groups, strict=True
    ):
        moved = jax.tree.map(lambda x, y: bool((x != y).any()), old, new)
        assert any(jax.tree.leaves(moved))


@pytest.mark.parametrize("other", [PolicySpec(), Scripted("random")])
@pytest.mark.parametrize("name", ["p@1", "p@it7"])
def test_a_policy_called_like_a_snapshot_is_refused(other, name):
    specs = {"p": Snapshots("main", size=2, add_every=1), name: other}
    mapping = {"a": ["main", "p", name], "*": "main"}
    with pytest.raises(
        ValueError, match=f"two players are called '{name}': a policy, and an entry of"
    ):
        plan(RandomLives(), TrainConfig(mapping=mapping, policies=specs))


def test_nothing_but_frozen_policies_is_refused():
    with pytest.raises(ValueError, match="none of the policies shared is trainable"):
        tiny_learner(Duel(), None, spec={"trainable": False})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Scripted(["random"]), ["['random']", "baseline"]),
        (lambda: TrainConfig(policies=3), ["policies", "3", "mapping="]),
        (lambda: TrainConfig(default_policy=3), ["PolicySpec", "3"]),
        (lambda: Ensemble(2, weights=3), ["ensemble", "3"]),
    ],
)
def test_what_is_no_policy_is_refused_at_once(make, words):
    with pytest.raises(ValueError) as error:
        make()
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ({"x": PolicySpec()}, ["'x'", "first, second"]),
        ({"first": Snapshots("third", add_every=1)}, ["'third'", "valid: second"]),
        ({"first": Snapshots("first", add_every=1)}, ["'first'", "valid: second"]),
        ({"first": Scripted("clever")}, ["'clever'", "random"]),
        ({"first": Scripted(lambda state: state)}, ["cannot be called"]),
        ({"first": Scripted(lambda s, o, p, k: jnp.zeros(5, int))}, ["(2,)", "(5,)"]),
        ({"first": Scripted(lambda s, o, p, k: jnp.zeros(2))}, ["as integers, got float32"]),
        (
            {"first": Scripted(lambda s, o, p, k: jnp.full(2, random.randrange(2**20)))},
            ["becomes another program when it is traced again"],
        ),
    ],
)
def test_what_does_not_fit_is_said(specs, words):
    with pytest.raises(ValueError) as error:
        plan(Duel(), TrainConfig(mapping="per_agent", policies=specs))
    for word in words:
        assert word in str(error.value)


@pytest.mark.rare
def test_matchups_with_snapshots_make_the_next_rollout_play_them():
    env = Duel()
    mapping = Matchups(({"first": "p", "second": "q"}, {"first": "p", "second": "old"}), (1, 1))
    learner = tiny_learner(
        env,
        None,
        mapping=mapping,
        config={"policies": {"old": Snapshots("q", size=3, add_every=1)}},
        num_envs=64,
        num_steps=6,
        learning_rate=0.05,
    )
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    pool = learner.players.pools[0]
    for iteration in (1, 2):  # until the pool is full
        before, (state, metrics) = state, step(state)
        count = int(state.population.league.pools[0].count)
        assert count == iteration + 1
        newest = int(jnp.argmax(state.population.league.pools[0].added_at))
        rows, old_rows = (x.population.policy_groups[pool.policy_group] for x in (state, before))
        for entry in range(3):
            # The newest is what the policy has just become, the others are what they were.
            source, row = (old_rows, pool.first_index + entry)
            if entry == newest:
                source, row = rows, pool.origin_index
            jax.tree.map(
                lambda x, y, at=pool.first_index + entry, row=row: np.testing.assert_array_equal(
                    x[at], y[row]
                ),
                rows,
                source,
            )
        args = (env, None, learner.players, state.population)
        _, record = rollout(
            *args, state.per_env.rollout, state.per_env.running, jax.random.key(iteration), 6
        )
        assert (record.outcomes.player == pool.first_player + newest).any()
        assert metrics.sums.update.num_steps[2] == 0
