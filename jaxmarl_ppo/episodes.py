"""Whole episodes of given policies, exactly one per parallel environment.

Taking the first so many episodes to end, over environments that begin anew, would count short ones
too often. Here every environment counts its first episode and no other.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.recurrence import where_rows
from jaxmarl_ppo.rollout import Answer, act, begin_lives, init_slots, step
from jaxmarl_ppo.stagger import random_actions
from jaxmarl_ppo.types import Policies, PyTree, Slots

MAX_TICKS = 10_000  # of an episode in an environment that names no horizon


class EpisodeTotals(struct.PyTreeNode):
    """What each agent slot gathered in each episode."""

    returns: jax.Array  # [episodes, A]: undiscounted
    lengths: jax.Array  # [episodes, A] int: ticks alive
    lives: jax.Array  # [episodes, A] int: agents that the slot held, one after the other
    metrics: dict[str, jax.Array]  # [episodes, A] each: sums of the environment's own
    finished: jax.Array  # [episodes] bool: False where the tick limit cut the episode off
    num_ticks: jax.Array  # () int: until the last episode was over


class _Progress(struct.PyTreeNode):
    slots: Slots
    totals: EpisodeTotals


def check_num_episodes(episodes: Any) -> int:
    """The number itself.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 1:
        raise ValueError(f"episodes must be a whole number of at least 1, got {episodes!r}")
    return int(episodes)


def play_episodes(
    learner: Learner,
    policies: Policies,
    key: jax.Array,
    num_episodes: int,
    greedy: bool = False,
    *,
    env_params: PyTree | None = None,
    random_agents: Sequence[str] = (),
    max_ticks: int = MAX_TICKS,
) -> EpisodeTotals:
    """Play fresh episodes, in step with each other, until the last one is over.

    Actions, memory, previous actions and rewards are treated by the rollout's own functions.
    Compiled once per learner, number of episodes and way of acting.

    Args:
        learner: gives the environment and how policies see it.
        policies: `[K, ...]`, whose actions are sampled.
        key: of everything random.
        num_episodes: parallel environments, each of which counts one episode.
        greedy: take the most likely actions instead of samples.
        env_params: None for the learner's.
        random_agents: names of agents that draw uniformly from their legal actions (or within the
            bounds of continuous ones) instead of asking a policy.
        max_ticks: where an environment without a horizon is cut off; an episode that goes on then
            is not `finished`, and its totals are those up to there.

    Raises:
        ValueError: no whole number of episodes, or an unknown agent.
    """
    num_episodes = check_num_episodes(num_episodes)
    slots = [learner.env.agent_index(agent) for agent in random_agents]
    acts_randomly = np.isin(np.arange(learner.env.num_agents), slots) if slots else None
    env_params = learner.env_params if env_params is None else env_params
    horizon = learner.env.horizon(env_params)
    limit = jnp.asarray(max_ticks if horizon is None else horizon, jnp.int32)
    return _play(
        learner, env_params, policies, key, limit, num_episodes, bool(greedy), acts_randomly
    )


@partial(jax.jit, static_argnames=("learner", "num_episodes", "greedy"))
def _play(
    learner: Learner,
    env_params: PyTree,
    policies: Policies,
    key: jax.Array,
    limit: jax.Array,
    num_episodes: int,
    greedy: bool,
    acts_randomly: jax.Array | None,  # [A] bool
) -> EpisodeTotals:
    env, bank, encoder = learner.env, learner.bank, learner.encoder
    key_reset, key_ticks = jax.random.split(key)

    def play_tick(slots: Slots, key: jax.Array) -> tuple[Slots, Answer]:
        key_act, key_random, key_env = jax.random.split(key, 3)
        hidden, decisions = act(bank, encoder, policies, slots, key_act, greedy)
        if acts_randomly is not None:
            drawn = random_actions(key_random, encoder, slots.obs)
            chosen = jnp.broadcast_to(acts_randomly, slots.fresh.shape)
            decisions = decisions.replace(action=where_rows(chosen, drawn, decisions.action))
        after, answer = step(env, env_params, encoder, slots, hidden, decisions, key_env)
        return begin_lives(after, answer), answer

    def advance(now: _Progress) -> _Progress:
        slots, answer = play_tick(now.slots, jax.random.fold_in(key_ticks, now.totals.num_ticks))
        totals = _count(now.totals, now.slots.obs.alive, answer)
        return _Progress(slots, totals)

    def goes_on(now: _Progress) -> jax.Array:
        return ~now.totals.finished.all() & (now.totals.num_ticks < limit)

    keys = jax.random.split(key_reset, num_episodes)
    slots = init_slots(env, env_params, bank, encoder, keys)
    answer = jax.eval_shape(play_tick, slots, key_ticks)[1]
    zeros = jnp.zeros(slots.fresh.shape)
    none = jnp.zeros(slots.fresh.shape, jnp.int32)
    totals = EpisodeTotals(
        returns=zeros,
        lengths=none,
        lives=none,
        metrics=dict.fromkeys(answer.info.get("metrics", {}), zeros),
        finished=jnp.zeros(num_episodes, bool),
        num_ticks=jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(goes_on, advance, _Progress(slots, totals))
    cut_off = end.slots.obs.alive & ~end.totals.finished[:, None]
    return end.totals.replace(lives=end.totals.lives + cut_off)


def _count(totals: EpisodeTotals, alive: jax.Array, answer: Answer) -> EpisodeTotals:
    """Add a tick where the first episode is not over; `alive [E, A]` is from before the tick."""
    playing = ~totals.finished[:, None]

    def add(total: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.where(playing, total + x, total)

    return EpisodeTotals(
        returns=add(totals.returns, answer.reward),
        lengths=add(totals.lengths, alive),
        lives=add(totals.lives, answer.terminated | answer.truncated),
        metrics=jax.tree.map(add, totals.metrics, answer.info.get("metrics", {})),
        finished=totals.finished | answer.info["episode_over"],
        num_ticks=totals.num_ticks + 1,
    )
