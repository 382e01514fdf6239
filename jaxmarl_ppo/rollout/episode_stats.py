"""Episode statistics, tracked on the device by agent slot and by policy.

Every environment is tracked step by step, as sums, minima and maxima only: a table of every slot at
every step would grow with the agents. Sums over environments are taken only after the rollout.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.backend import skip_unless
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.types import EpisodeSums, Outcomes, Running, RunningSums

AnySums = TypeVar("AnySums", bound=EpisodeSums)


class Finished(struct.PyTreeNode):
    """Finished lives in groups: by agent slot or by policy; or finished episodes."""

    sums: EpisodeSums  # [...]
    minimum: jax.Array  # [...]: least return of one
    maximum: jax.Array  # [...]: greatest return of one


class EpisodeTracker(struct.PyTreeNode):
    """Lives and rewards of every slot of every environment during a rollout."""

    running: Running
    agents: Finished  # [E, A]
    policies: Finished | None  # [E, P]; None where the policy of every slot is known
    episodes: Finished  # [E]
    reward: jax.Array  # [E, A]: all that was paid
    uncredited: jax.Array  # [E, A]: paid before the slot's first decision in a life


def no_sums(shape: tuple[int, ...], metrics: dict[str, jax.Array]) -> EpisodeSums:
    """Make empty sums; `metrics` names those of the environment."""
    zeros, none = jnp.zeros(shape), jnp.zeros(shape, jnp.int32)
    return EpisodeSums(zeros, none, none, dict.fromkeys(metrics, zeros))


def add_step(
    sums: AnySums,
    reward: jax.Array,
    alive: jax.Array,
    ended: jax.Array,
    metrics: dict[str, jax.Array],
) -> AnySums:
    """Add one step to running sums; all arrays `[E, A]`.

    Args:
        sums: up to the step.
        reward: earned at the step.
        alive: bool, before the step.
        ended: bool, whose life ended at the step.
        metrics: the environment's own, of the step.
    """
    return sums.replace(
        returns=sums.returns + reward,
        lengths=sums.lengths + alive,
        lives=sums.lives + ended,
        metrics=jax.tree.map(jnp.add, sums.metrics, metrics),
    )


def nobody_finished(shape: tuple[int, ...], metrics: dict[str, jax.Array]) -> Finished:
    """Make groups of `shape` without finished lives.

    `metrics` names those of the environment.
    """
    # Counts as floats: sums over many iterations outgrow 32-bit integers.
    zeros = jnp.zeros(shape)
    sums = EpisodeSums(zeros, zeros, zeros, dict.fromkeys(metrics, zeros))
    return Finished(sums, zeros + jnp.inf, zeros - jnp.inf)


def begin_running(counted: jax.Array, metrics: dict[str, jax.Array]) -> Running:
    """Make empty sums.

    Args:
        counted: `[E, A]` bool, which lives will count.
        metrics: of the environment's own.
    """
    whole = counted.all(-1)
    lives, episodes = no_sums(counted.shape, metrics), no_sums(whole.shape, {})
    return Running(_counted(lives, counted), _counted(episodes, whole))


def _counted(sums: EpisodeSums, counted: jax.Array) -> RunningSums:
    return RunningSums(sums.returns, sums.lengths, sums.lives, sums.metrics, counted=counted)


def start_tracking(players: Players, running: Running) -> EpisodeTracker:
    """Make the initial tracker of a rollout: lives in progress, none finished."""
    zeros, metrics = jnp.zeros(running.lives.returns.shape), running.lives.metrics
    by_policy = (zeros.shape[0], len(players.policies))
    return EpisodeTracker(
        running=running,
        agents=nobody_finished(zeros.shape, metrics),
        policies=None if players.is_fixed else nobody_finished(by_policy, metrics),
        episodes=nobody_finished(zeros.shape[:1], {}),
        reward=zeros,
        uncredited=zeros,
    )


def track(players: Players, tracker: EpisodeTracker, outcome: Outcomes) -> EpisodeTracker:
    """Advance the tracker by the outcome of one step, `[E, A]`."""
    ended, over = outcome.terminated | outcome.truncated, outcome.episode_over
    running = tracker.running
    lived = add_step(running.lives, outcome.reward, outcome.alive, ended, outcome.metrics)
    whole = add_step(
        running.episodes, _add_up(outcome.reward), jnp.ones_like(over), over, metrics={}
    )
    finished = ended & lived.counted

    def enter() -> tuple[Finished, Finished | None, Finished]:
        agents = _enter(tracker.agents, lived, finished)
        episodes = _enter(tracker.episodes, whole, over & whole.counted)
        if tracker.policies is None:
            return agents, None, episodes
        policy = players.policies_at(outcome.player)[..., None] == jnp.arange(len(players.policies))
        policies = _enter(tracker.policies, lived, finished[..., None] & policy)
        return agents, policies, episodes

    # Few steps end a life or an episode, and recording one compares every slot with every policy.
    before = (tracker.agents, tracker.policies, tracker.episodes)
    agents, policies, episodes = skip_unless(finished.any() | over.any(), enter, lambda: before)
    return EpisodeTracker(
        running=Running(_begin_anew(lived, ended), _begin_anew(whole, over)),
        agents=agents,
        policies=policies,
        episodes=episodes,
        reward=tracker.reward + outcome.reward,
        uncredited=tracker.uncredited + jnp.where(outcome.has_decided, 0.0, outcome.reward),
    )


def _add_up(reward: jax.Array) -> jax.Array:
    """Add up the rewards `[E, A]` of all agents."""
    num_agents = reward.shape[-1]
    if num_agents > 16:
        return reward.sum(-1)
    # One by one: XLA turns a reduction over a short axis into a library call.
    return functools.reduce(jnp.add, [reward[:, slot] for slot in range(num_agents)])


def _begin_anew(sums: RunningSums, ended: jax.Array) -> RunningSums:
    """Reset the sums of ended lives and episodes."""
    new = jax.tree.map(jnp.zeros_like, sums).replace(counted=jnp.ones_like(sums.counted))
    return jax.tree.map(lambda x, y: jnp.where(ended, x, y), new, sums)


def count_finished(
    players: Players, tracker: EpisodeTracker
) -> tuple[Finished, Finished, Finished]:
    """Sum over environments: finished lives by slot `[A]` and by policy `[P]`, episodes."""
    agents, episodes = _over_axis_0(tracker.agents), _over_axis_0(tracker.episodes)
    if tracker.policies is not None:
        return agents, _over_axis_0(tracker.policies), episodes
    # Every slot has one policy in every life, so a policy's lives are those of its slots.
    only = np.array([policies[0] for policies in players.mapping.candidates])
    own = only[:, None] == np.arange(len(players.policies))  # [A, P]
    by_agent = jax.tree.map(lambda x: x[:, None], agents)
    none = nobody_finished(own.shape, agents.sums.metrics)
    policies = _over_axis_0(jax.tree.map(lambda x, y: jnp.where(own, x, y), by_agent, none))
    return agents, policies, episodes


def merge_finished(first: Finished, second: Finished) -> Finished:
    """Merge the finished lives of two intervals, group by group."""
    return Finished(
        sums=jax.tree.map(jnp.add, first.sums, second.sums),
        minimum=jnp.minimum(first.minimum, second.minimum),
        maximum=jnp.maximum(first.maximum, second.maximum),
    )


def _enter(group: Finished, lived: RunningSums, finished: jax.Array) -> Finished:
    """Add lives `[E, A]` to groups where `finished`: `[E, A]` by slot, `[E, A, P]` by policy.

    Episodes `[E]` are one group.
    """

    def total(x: jax.Array, neutral: float, reduce: Callable[..., jax.Array]) -> jax.Array:
        if finished.ndim == x.ndim:
            return jnp.where(finished, x, neutral)
        return reduce(jnp.where(finished, x[..., None], neutral), axis=1)

    new = EpisodeSums(lived.returns, lived.lengths, lived.lives, lived.metrics)
    return Finished(
        sums=jax.tree.map(lambda x, y: x + total(y, 0.0, jnp.sum), group.sums, new),
        minimum=jnp.minimum(group.minimum, total(lived.returns, jnp.inf, jnp.min)),
        maximum=jnp.maximum(group.maximum, total(lived.returns, -jnp.inf, jnp.max)),
    )


def _over_axis_0(group: Finished) -> Finished:
    return Finished(
        sums=jax.tree.map(lambda x: x.sum(0), group.sums),
        minimum=group.minimum.min(0),
        maximum=group.maximum.max(0),
    )
