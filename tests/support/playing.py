"""A page to play on, served for a test."""

import jax
from serving import served_by

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.opponents import seat_opponent
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.pages.game_table import Table
from jaxmarl_ppo.pages.play_server import serve


def tables_of(env, opponent=None, network=None, **kwargs):
    """Make tables with an untrained policy, or a script in its place."""
    env, params = jaxmarl_envs.make(env, **kwargs)
    policy = PolicySpec(network=network or MLP(hidden_sizes=(4,)))
    config = TrainConfig(num_envs=4, num_steps=8, mapping="shared", default_policy=policy)
    learner = with_baselines(make_learner(env, params, config))
    population = jax.jit(learner.init_population)(jax.random.key(1))
    seats = None if opponent is None else seat_opponent(learner, population, opponent)
    return lambda: Table(learner, population, seats)


def served(make_table, title="a run"):
    """Serve tables in a thread; give the page's address."""
    return served_by(serve, make_table, title)
