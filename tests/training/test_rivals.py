"""Members against each other's policies: whose parameters play, and what is said of it."""

import dataclasses

import jax
import numpy as np
import pytest
from lamps import CONFIG, Lamps

from jaxmarl_ppo import PolicySpec, make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.training.rivals import Rivals, over_rivals

WIDER = PolicySpec(network=MLP(hidden_sizes=(8,)))


@pytest.mark.parametrize("policies", [{}, {"bob_0": WIDER}], ids=["one policy group", "two groups"])
def test_only_rivals_are_exchanged(policies):
    env = Lamps()
    config = dataclasses.replace(CONFIG, policies=policies, num_devices=1)
    learner = make_learner(env, env.default_params, config)
    own, other = (
        jax.tree.map(np.array, jax.device_get(jax.jit(learner.init_population)(jax.random.key(k))))
        for k in (0, 1)
    )
    before = jax.tree.map(np.copy, own)
    mixed = Rivals(learner, ["bob_0"]).against(own, other)
    for agent, source in (("ann_0", own), ("bob_0", other)):
        player = learner.players.first_player_of[learner.players.policies.index(agent)]
        for index, group in enumerate(learner.players.policy_groups):
            if player in group.players:
                row = player - group.first_player
                for found, wanted in zip(
                    jax.tree.leaves(mixed.policy_groups[index]),
                    jax.tree.leaves(source.policy_groups[index]),
                    strict=True,
                ):
                    np.testing.assert_array_equal(found[row], wanted[row])
    jax.tree.map(np.testing.assert_array_equal, own, before)


def test_mean_least_and_greatest_are_of_the_same_numbers():
    own = {"iteration": 3, "all": {"return_mean": 1.0, "return_se": 0.1}, "won": 4.0}
    met = {"all": {"return_mean": 4.0, "return_se": 0.2}, "won": -2.0}
    assert over_rivals([own, met]) == {
        "mean": {"all": {"return_mean": 2.5}, "won": 1.0},
        "least": {"all": {"return_mean": 1.0}, "won": -2.0},
        "greatest": {"all": {"return_mean": 4.0}, "won": 4.0},
    }
    assert over_rivals([own])["least"] == {"all": {"return_mean": 1.0}, "won": 4.0}
