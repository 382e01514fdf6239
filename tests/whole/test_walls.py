"""What other multi-agent trainers are known to get wrong, each as a test.

Some have a place of their own: exactly `num_epochs` for unequal policies in test_ppo, draws held
for a life and new lives in recycled slots in test_players, conservation in test_metrics, options
without effect in test_config.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import Constant, ConstantParams, quick_jit, tiny_learner, with_spy

import jaxmarl_envs
from jaxmarl_envs.core import Observation
from jaxmarl_ppo.config.mapping import MappingFunction
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.networks.actor_critic import MLP


def start(*args, **kwargs):
    learner = tiny_learner(*args, **kwargs)
    state = quick_jit(learner.init)(jax.random.key(0))
    return learner, state, quick_jit(learner.train_step)


def test_memory_agents_that_skip_steps_and_rollouts_that_cut_games():
    """Six iterations of an LSTM on turns, with rollouts of three steps."""
    env, params = jaxmarl_envs.make("tic_tac_toe")
    _, state, step = start(env, params, memory=True, num_envs=4, num_steps=3, bptt_length=2)
    trained = decided = 0.0
    for _ in range(6):
        state, metrics = step(state)
        trained += float(metrics.sums.trained.sum())
        decided += float(metrics.sums.decisions.sum())
        assert not metrics.fault.found
        assert metrics.sums.update.num_steps.min() > 0
    still_open = state.per_env.policy_groups[0].pending.decisions.acted.sum()
    assert trained == decided - still_open
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(state.population))


def test_a_zero_sum_game_has_mean_return_zero_in_rollouts_of_one_step():
    """The loser's last reward arrives on the winner's move, here always in another rollout."""
    env, params = jaxmarl_envs.make("tic_tac_toe")
    _, state, step = start(env, params, mapping="per_agent", num_envs=8, num_steps=1)
    sums = np.zeros(2)
    games, trained = 0.0, np.zeros(2)
    for _ in range(40):
        state, metrics = step(state)
        sums += np.asarray(metrics.agents.sums.returns)
        games += float(metrics.sums.episodes)
        trained += np.asarray(metrics.sums.reward_trained)
    assert games > 20
    assert sums[0] != 0
    assert sums.sum() == 0
    # Every finished game's reward was trained on, on both sides.
    np.testing.assert_array_equal(trained, sums)


def test_a_life_that_ends_as_another_begins_is_one_episode_with_both():
    """A is gone for good before B has ever been seen; B's first decision is trained too."""
    env, params = jaxmarl_envs.make("relay")
    _, state, step = start(env, params, mapping="per_agent", num_envs=4, num_steps=4)
    episodes, lives, trained, rewards = 0.0, np.zeros(2), np.zeros(2), np.zeros(2)
    for _ in range(6):
        state, metrics = step(state)
        episodes += float(metrics.sums.episodes)
        lives += np.asarray(metrics.agents.sums.lives)
        trained += np.asarray(metrics.sums.trained)
        rewards += np.asarray(metrics.sums.reward - metrics.sums.reward_trained)
        np.testing.assert_array_equal(metrics.sums.reward_uncredited, 0.0)
    # 24 steps of 4 environments are 16 episodes of 6: three decisions of A and of B in each.
    assert episodes == 16
    np.testing.assert_array_equal(lives, [16, 16])
    np.testing.assert_array_equal(trained, [48, 48])
    np.testing.assert_array_equal(rewards, [0, 0])


class Pair(Constant):
    """`Constant` for two agents."""

    agents = ("short", "long")

    def reset_env(self, key, params):
        return self._both(jnp.ones(2, bool)), jnp.zeros((), jnp.int32)

    def step_env(self, key, state, action, params):
        over = jnp.broadcast_to(state + 1 >= params.length, (2,))
        reward = jnp.full(2, params.reward, jnp.float32)
        return self._both(~over), state + 1, reward, jnp.zeros(2, bool), over, {}

    def _both(self, alive):
        return Observation(jnp.ones((2, 1)), jnp.ones((2, 2), bool), alive, alive)


def test_every_policy_has_its_own_gamma_lambda_and_learning_rate():
    """Truncated lives of constant reward 1 are worth 1 / (1 - gamma)."""
    ppo = {"num_epochs": 4, "num_minibatches": 1, "gae_lambda": 1.0, "max_grad_norm": None,
           "value_coef": 1.0, "learning_rate": ((0.0, 0.3), (16_000.0, 0.005))}  # fmt: skip
    network = MLP(hidden_sizes=())
    specs = {
        "short": PolicySpec(network=network, ppo=PPOConfig(**ppo, gamma=0.5)),
        "long": PolicySpec(network=network, ppo=PPOConfig(**ppo, gamma=0.9)),
    }
    learner = tiny_learner(
        Pair(), ConstantParams(length=5, truncate=True), mapping="per_agent", num_envs=8,
        num_steps=10, config={"policies": specs},
    )  # fmt: skip
    assert len(learner.players.policy_groups) == 1
    state = quick_jit(learner.init)(jax.random.key(0))
    state, _ = quick_jit(learner.train_steps)(state, 200)
    network = learner.players.policy_groups[0].network
    for row, value in enumerate((2.0, 10.0)):
        policy = network.select(state.population.policy_groups[0], row)
        found = network.module.apply({"params": policy.params}, (), jnp.ones((1, 1)))[2]
        assert float(found[0]) == pytest.approx(value, rel=0.03)


def test_advantages_are_standardised_over_ones_own_trained_rows_alone():
    env, params = jaxmarl_envs.make("crypto")
    learner = tiny_learner(env, params, mapping="per_agent", num_envs=6, num_steps=9)
    seen = []

    learner = with_spy(learner, lambda pack, *args: seen.append(pack(*args)))

    @quick_jit
    def iterate(state):
        seen.clear()
        state, _ = learner.train_step(state)
        return state, [(b.decisions, b.advantage) for b in seen]

    state = quick_jit(learner.init)(jax.random.key(0))
    for _ in range(2):
        state, packed = iterate(state)
    count = 0
    for decisions, advantage in packed:
        for row in np.unique(decisions.policy_index):
            own = np.asarray(advantage)[
                np.asarray(decisions.acted & (decisions.policy_index == row))
            ]
            assert own.mean() == pytest.approx(0.0, abs=1e-5)
            assert own.std() == pytest.approx(1.0, abs=1e-4)
            count += 1
    assert count == 3


@pytest.mark.rare
def test_an_iteration_of_frozen_players_only_changes_nothing_and_does_no_harm():
    env, params = jaxmarl_envs.make("tic_tac_toe")

    def frozen_first(key, draw):
        del key
        return jnp.where(draw.episode < 2, 1, jnp.zeros(2, jnp.int32))

    _, state, step = start(
        env,
        params,
        mapping=MappingFunction(frozen_first, ("learns", "frozen")),
        config={
            "policies": {"frozen": PolicySpec(network=MLP(hidden_sizes=(8,)), trainable=False)}
        },
        num_envs=4,
        num_steps=9,
    )
    before = state
    state, metrics = step(state)
    assert metrics.sums.decisions[0] == 0
    assert metrics.sums.decisions[1] == 36
    jax.tree.map(
        np.testing.assert_array_equal,
        state.population.policy_groups,
        before.population.policy_groups,
    )
    unchanged = (state.training[0].opt_state, before.training[0].opt_state)
    jax.tree.map(np.testing.assert_array_equal, *unchanged)
    for _ in range(3):
        state, metrics = step(state)
    assert metrics.sums.update.num_steps[0] == 1


@pytest.mark.rare
def test_random_ensembles_of_agents_of_unequal_spaces_train():
    env, params = jaxmarl_envs.make("multi_spaces")
    learner, state, step = start(env, params, mapping="ensemble:2", num_envs=16, num_steps=4)
    widths = [group.network.input_shape for group in learner.players.policy_groups]
    assert widths == [(10,), (20,)]
    for _ in range(3):
        state, metrics = step(state)
        np.testing.assert_array_equal(metrics.sums.update.num_steps, 1)
        # Every decision belongs to one of the two members of its agent.
        np.testing.assert_array_equal(metrics.sums.decisions.reshape(2, 2).sum(1), [64, 64])
        assert metrics.sums.decisions.min() > 0
