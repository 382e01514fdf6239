"""Policies that nobody has trained, but that are as decided as trained ones."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.learner.league_results import init_league
from jaxmarl_ppo.types import Population


def decisive(learner):
    """Random parameters that make decisive policies, and normalisers that matter."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        fan_in = leaf.shape[-2] if leaf.ndim > 2 else 1
        return jnp.asarray(rng.normal(size=leaf.shape) * 1.5 / np.sqrt(fan_in), leaf.dtype)

    def positive(moments):
        return moments and moments.replace(count=20.0 * moments.count**2, var=0.3 + moments.var**2)

    groups = jax.eval_shape(learner.init_population, jax.random.key(0)).policy_groups
    groups = [
        group.replace(
            obs_moments=positive(group.obs_moments), return_moments=positive(group.return_moments)
        )
        for group in jax.tree.map(draw, groups)
    ]
    league = init_league(learner.players.num_players, learner.players.pools)
    return Population(tuple(groups), league)
