"""Actions of every kind, from the rollout to the update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hybrid_env_deploy import SPACES as SPACES_OF
from hybrid_env_deploy import Hybrid
from probe_envs import OpenReach

from jaxmarl_envs.adapters.outgoing.gymnasium import to_gymnasium
from jaxmarl_envs.check import quick_check
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.wrappers import Joined
from jaxmarl_ppo import LSTM, MLP, PolicySpec, PPOConfig, TrainConfig, make_learner, summarise

WHOLE = PPOConfig(num_epochs=1, num_minibatches=1, entropy_coef=0.01, learning_rate=1e-3)


def learner_of(env, default_policy, ppo=WHOLE, **config):
    config = {"num_envs": 8, "num_steps": 10, "total_env_steps": 10**6, **config}
    config = TrainConfig(default_policy=default_policy, default_ppo=ppo, **config)
    return make_learner(env, env.default_params, config)


def summaries(learner, iterations, every=1):
    """What the log says of all policies after each iteration, or after each of `every`."""
    state = jax.jit(learner.init)(jax.random.key(0))
    step = jax.jit(learner.train_step)
    for iteration in range(iterations):
        state, metrics = step(state)
        if (iteration + 1) % every == 0:
            yield summarise(learner, jax.device_get(metrics))["policies"]


SPECS = {
    "mlp": PolicySpec(network=MLP(hidden_sizes=(8,), unimix=0.1)),
    "beta": PolicySpec(network=MLP(hidden_sizes=(8,)), continuous="beta"),
    "clipped": PolicySpec(network=MLP(hidden_sizes=(8,)), continuous="clipped"),
    "lstm": PolicySpec(
        network=LSTM(hidden_sizes=(8,), lstm_size=8, separate_critic=True),
        prev_action=True,
        prev_reward=True,
        append_agent_id=True,
        central_critic=True,
        normalise_observations=True,
    ),
    "imitating": PolicySpec(network=MLP(hidden_sizes=(8,)), imitate="low", imitate_coef=0.5),
}
PER_AGENT = {"beta"}


@pytest.mark.parametrize("name", SPECS)
def test_the_update_recomputes_what_the_rollout_drew(name):
    magnet = {"magnet": "average", "magnet_coef": 0.1, "magnet_rate": 0.1} if name == "mlp" else {}
    ppo = PPOConfig(
        num_epochs=1, num_minibatches=1, entropy_coef=0.01, learning_rate=1e-3, **magnet
    )
    mapping = "per_agent" if name in PER_AGENT else "shared"
    learner = learner_of(Hybrid(), SPECS[name], ppo, mapping=mapping)
    # With one step of the whole batch every probability ratio is 1, so nothing moves away.
    for policies in summaries(learner, 2):
        for own in policies.values():
            assert own["kl"] == pytest.approx(0.0, abs=1e-9)
            assert own["clip_fraction"] == 0
            assert own["return_min"] > -100  # what is illegal or out of bounds earns -100
            assert ("entropy_before_clipping" in own) == (name == "clipped")
    groups = {group.interface.counts for group in learner.players.policy_groups}
    assert groups == ({(4,), (), (3,), (2, 3)} if mapping == "per_agent" else {(4, 3)})


def test_a_default_share_of_uniform_play_is_of_the_policies_that_have_choices():
    learner = learner_of(Hybrid(), SPECS["mlp"], PPOConfig(), mapping="per_agent")
    modules = [group.network.module for group in learner.players.policy_groups]
    assert [(m.counts, m.unimix) for m in modules if not m.counts] == [((), 0.0)]
    assert [m.unimix for m in modules if m.counts] == [0.1] * 3
    own = {"mapping": "per_agent", "policies": {"mover": SPECS["mlp"]}}
    with pytest.raises(ValueError, match=r"unimix=0.1 of policies\['mover'\] has no effect"):
        learner_of(Hybrid(), PolicySpec(), **own)


def test_a_log_barrier_needs_a_policy_that_has_choices():
    barrier = PPOConfig(log_barrier_coef=0.1)
    learner = learner_of(Hybrid(), PolicySpec(), barrier, mapping="per_agent")
    assert all(
        (group.hyperparams.log_barrier_coef == 0.1).all() for group in learner.group_learners
    )
    own = {"mapping": "per_agent", "policies": {"mover": PolicySpec(ppo=barrier)}}
    with pytest.raises(ValueError, match=r"barrier_coef=0.1 of policies\['mover'\].ppo has no eff"):
        learner_of(Hybrid(), PolicySpec(), **own)


class Tabled(Hybrid):
    """Its spaces read a table that is an array of JAX's."""

    def __init__(self):
        self.table = jnp.array([4, 1])

    def observation_space(self, agent, params):
        return Box(-1.0, float(self.table[1]), (6,))

    def action_space(self, agent, params):
        return Discrete(int(self.table[0])) if agent == "picker" else SPACES_OF[agent]


def test_spaces_may_read_arrays_while_functions_are_traced():
    learner = learner_of(Tabled(), SPECS["mlp"])
    (policies,) = summaries(learner, 1)
    assert all(own["return_min"] > -100 for own in policies.values())
    joined = Joined(Tabled(), {"two": ("picker", "pair"), "rest": ("mover", "both")})
    for env in (Tabled(), joined):
        quick_check(env)
    view = to_gymnasium(joined, agent="two")
    view.reset(seed=0)
    view.step(view.action_space.sample())


def test_gradients_of_the_loss_are_finite_however_sure_a_policy_is():
    learner = learner_of(Hybrid(), SPECS["mlp"], PPOConfig(learning_rate=0.5, num_epochs=4))
    for policies in summaries(learner, 10):
        assert all(np.isfinite(own["grad_norm"]) for own in policies.values())


@pytest.mark.parametrize("continuous", ["beta", "clipped", "squashed"])
def test_a_distribution_of_numbers_where_there_are_none_has_no_effect(continuous):
    import jaxmarl_envs

    env, _ = jaxmarl_envs.make("basic")
    with pytest.raises(ValueError, match=f"continuous='{continuous}' has no effect"):
        learner_of(env, PolicySpec(continuous=continuous))
    with pytest.raises(ValueError, match="valid: squashed, beta, clipped"):
        PolicySpec(continuous="gaussian")


class Point(MultiAgentEnv[jax.Array, None]):
    """One number in [-1, 1], and one step; it earns `height` at .4, less the further away."""

    name = "point"
    agents = ("a",)

    def __init__(self, height):
        self.height = height

    @property
    def default_params(self):
        return None

    def horizon(self, params):
        return 1

    def observation_space(self, agent, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, agent, params):
        return Box(-1.0, 1.0, (1,))

    def _observe(self, alive):
        alive = jnp.full(1, alive)
        return Observation(jnp.ones((1, 1)), jnp.ones((1, 1), bool), alive, alive)

    def reset_env(self, key, params):
        return self._observe(True), jnp.zeros(())

    def step_env(self, key, state, action, params):
        reward = -self.height * jnp.square(action[:, 0] - 0.4)
        played = {"played": action[:, 0], "at_bounds": (jnp.abs(action[:, 0]) > 0.99) * 1.0}
        over = jnp.ones(1, bool)
        return self._observe(False), state, reward, over, ~over, {"metrics": played}


EXPLORING = PPOConfig(
    num_epochs=4, num_minibatches=2, entropy_coef=0.05, learning_rate=3e-3, gamma=0.9
)


@pytest.mark.parametrize("continuous", ["squashed", "beta"])
def test_with_nothing_to_earn_an_entropy_bonus_leads_to_uniform_play(continuous):
    spec = PolicySpec(network=MLP(hidden_sizes=(8,)), continuous=continuous)
    learner = learner_of(Point(0.0), spec, EXPLORING, num_envs=64, num_steps=4)
    *_, before, last = summaries(learner, 400, every=40)
    for own in (before["shared"], last["shared"]):
        assert np.log(2) - 0.05 < own["entropy"] <= np.log(2) + 1e-3
        assert own["at_bounds"] < 0.06
        assert own["played"] == pytest.approx(0.0, abs=0.2)


@pytest.mark.slow
def test_a_peak_is_found_where_there_are_no_bounds():
    ppo = PPOConfig(num_epochs=4, num_minibatches=2, entropy_coef=0.0, learning_rate=3e-3)
    spec = PolicySpec(network=MLP(hidden_sizes=(8,)))
    learner = learner_of(OpenReach(), spec, ppo, num_envs=64, num_steps=8, mapping="per_agent")
    *_, last = summaries(learner, 120, every=40)
    assert last["narrow"]["return_mean"] > -0.05  # from about -25
    assert last["wide"]["return_mean"] > -0.05  # from about -17


@pytest.mark.slow
@pytest.mark.parametrize("continuous", ["squashed", "beta", "clipped"])
def test_a_peak_is_found(continuous):
    spec = PolicySpec(network=MLP(hidden_sizes=(8,)), continuous=continuous)
    ppo = PPOConfig(num_epochs=4, num_minibatches=2, entropy_coef=0.0, learning_rate=3e-3)
    learner = learner_of(Point(10.0), spec, ppo, num_envs=64, num_steps=8)
    *_, last = summaries(learner, 400, every=40)
    assert last["shared"]["return_mean"] > -0.2  # uniform play earns -4.9
    assert last["shared"]["played"] == pytest.approx(0.4, abs=0.05)
