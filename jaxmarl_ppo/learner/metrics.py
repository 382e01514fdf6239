"""On-device statistics of episodes, decisions and updates, per agent and per policy.

Everything is kept as sums, minima and maxima, so that iterations merge exactly and only finished
lives count. `summary.summarise` turns them into plain numbers on the host.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_ppo.ops.collectives import all_max, all_min, all_sum
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.ppo.group_learner import PolicyGroupLearner, UpdateReport
from jaxmarl_ppo.ppo.update import UpdateStats, no_stats
from jaxmarl_ppo.rollout.episode_stats import (
    Finished,
    count_finished,
    merge_finished,
    nobody_finished,
)
from jaxmarl_ppo.rollout.faults import Fault, no_fault
from jaxmarl_ppo.rollout.rollout import Rollout
from jaxmarl_ppo.types import League, RunningSums


class Sums(struct.PyTreeNode):
    """Metrics that add up over iterations."""

    update: UpdateStats  # [P]
    decisions: jax.Array  # [P]: made by each policy
    trained: jax.Array  # [P]: decisions that entered an update
    explained_variance: jax.Array  # [P]: summed over iterations
    iterations: jax.Array  # [P]: with at least one trained decision
    reward: jax.Array  # [A]: all that the environment paid
    reward_trained: jax.Array  # [A]: of trained decisions
    reward_uncredited: jax.Array  # [A]: earned before a life's first decision
    episodes: jax.Array  # ()
    env_steps: jax.Array  # (): summed over environments


class Latest(struct.PyTreeNode):
    """Metrics that only the newest iteration determines."""

    learning_rate: jax.Array  # [P]
    entropy_coef: jax.Array  # [P]
    kl_coef: jax.Array  # [P]
    league: League


class Metrics(struct.PyTreeNode):
    """Metrics of one iteration, or of several that were merged."""

    agents: Finished  # [A]: lives by slot
    policies: Finished  # [P]: lives by policy
    whole: Finished  # (): episodes of all agents together
    sums: Sums
    latest: Latest
    fault: Fault


def measure(
    players: Players,
    group_learners: tuple[PolicyGroupLearner, ...],
    played: Rollout,
    reports: tuple[UpdateReport, ...],
    league: League,
    fault: Fault,
    axis_name: str | None = None,
) -> Metrics:
    """Measure one iteration: rollout, updates and fault, on all devices.

    Args:
        players: who could play.
        group_learners: of the policy groups that are trained.
        played: the rollout.
        reports: of the group learners, in the same order.
        league: as it stands.
        fault: from `find_fault`.
        axis_name: of the devices that environments are spread over; reports, league and fault cover
            all devices.
    """
    num_policies, num_agents = len(players.policies), played.outcomes.reward.shape[-1]
    ended, episode_over = count_finished(players, played.tracker), played.outcomes.episode_over
    counts = {
        "decisions": _count_decisions(players, played),
        "reward": played.tracker.reward.sum(0),
        "reward_uncredited": played.tracker.uncredited.sum(0),
        "episodes": episode_over.sum(dtype=jnp.float32),
        "env_steps": jnp.asarray(episode_over.size, jnp.float32),
    }
    # All sums in one exchange, since each costs a wait for the slowest device.
    sums, counts = all_sum((tuple(group.sums for group in ended), counts), axis_name)
    minimum = all_min(tuple(group.minimum for group in ended), axis_name)
    maximum = all_max(tuple(group.maximum for group in ended), axis_name)
    agents, policies, whole = map(Finished, sums, minimum, maximum)
    learnt, latest = _collect_reports(group_learners, reports, num_policies, num_agents, league)
    return Metrics(
        agents=agents,
        policies=policies,
        whole=whole,
        sums=Sums(**counts, **learnt),
        latest=latest,
        fault=fault,
    )


def _count_decisions(players: Players, played: Rollout) -> jax.Array:
    """Count the decisions that every policy made, `[P]`."""
    count = jnp.zeros(len(players.policies))
    policy_of = np.array(players.policy_of)

    def add(count: jax.Array, made: jax.Array, first_player: int, num_players: int) -> jax.Array:
        policies = policy_of[first_player : first_player + num_players]
        return count + made @ (policies[:, None] == np.arange(count.size))

    for policy_group, decisions in zip(players.policy_groups, played.decisions, strict=True):
        members = jnp.arange(policy_group.network.num_members)
        mine = decisions.acted[..., None] & (decisions.policy_index[..., None] == members)
        made = mine.sum((0, 1, 2), dtype=jnp.float32)
        count = add(count, made, policy_group.first_player, members.size)
    for player in range(players.first_script, players.num_players):
        mine = played.outcomes.acted & (played.outcomes.player == player)
        count = add(count, mine.sum(dtype=jnp.float32)[None], player, 1)
    return count


def _collect_reports(
    group_learners: tuple[PolicyGroupLearner, ...],
    reports: tuple[UpdateReport, ...],
    num_policies: int,
    num_agents: int,
    league: League,
) -> tuple[dict[str, Any], Latest]:
    """Collect the reports of all policy groups, by policy and agent.

    Returns:
        Fields of `Sums` by name, and the newest values.
    """
    update, latest = no_stats(num_policies), _no_latest(num_policies, league)
    trained = explained = jnp.zeros(num_policies)
    reward_trained = jnp.zeros(num_agents)
    for group_learner, report in zip(group_learners, reports, strict=True):
        put = partial(_scatter, np.array(group_learner.policy_ids))
        update = jax.tree.map(put, update, report.update)
        trained = put(trained, report.trained)
        explained = put(explained, report.explained_variance)
        latest = Latest(
            learning_rate=put(latest.learning_rate, report.hyperparams.learning_rate),
            entropy_coef=put(latest.entropy_coef, report.hyperparams.entropy_coef),
            kl_coef=put(latest.kl_coef, report.hyperparams.kl_coef),
            league=league,
        )
        slots = np.array(group_learner.policy_group.interface.slots)
        reward_trained = reward_trained.at[slots].add(report.reward_trained)
    return {
        "update": update,
        "trained": trained,
        "explained_variance": explained,
        "iterations": (trained > 0).astype(jnp.float32),
        "reward_trained": reward_trained,
    }, latest


def _scatter(policy_ids: np.ndarray, everybody: jax.Array, own: jax.Array) -> jax.Array:
    """Write a policy group's values, `own [K]`, into those of all policies, `everybody [P]`."""
    # With all policies in one policy group there is no scatter to compile.
    if np.array_equal(policy_ids, np.arange(everybody.size)):
        return own
    return everybody.at[policy_ids].set(own)


def _no_latest(num_policies: int, league: League) -> Latest:
    zeros = jnp.zeros(num_policies)
    return Latest(zeros, zeros, zeros, league)


def empty(players: Players, lives: RunningSums, league: League) -> Metrics:
    """Make metrics of no iteration, the neutral element of `merge`.

    Args:
        players: who can play.
        lives: `[E, A]`; they show which metrics of its own the environment has.
        league: of the same run; its values are not read.
    """
    num_policies, num_agents = len(players.policies), len(players.mapping.candidates)
    by_agent, by_policy, none = jnp.zeros(num_agents), jnp.zeros(num_policies), jnp.zeros(())
    return Metrics(
        agents=nobody_finished((num_agents,), lives.metrics),
        policies=nobody_finished((num_policies,), lives.metrics),
        whole=nobody_finished((), {}),
        sums=Sums(
            update=no_stats(num_policies),
            decisions=by_policy,
            trained=by_policy,
            explained_variance=by_policy,
            iterations=by_policy,
            reward=by_agent,
            reward_trained=by_agent,
            reward_uncredited=by_agent,
            episodes=none,
            env_steps=none,
        ),
        latest=_no_latest(num_policies, jax.tree.map(jnp.zeros_like, league)),
        fault=no_fault(),
    )


def merge(first: Metrics, second: Metrics) -> Metrics:
    """Merge the metrics of two consecutive intervals."""
    update = jax.tree.map(jnp.add, first.sums.update, second.sums.update)
    # A mean cannot be summed; only the newest is read.
    update = update.replace(last_epoch_kl=second.sums.update.last_epoch_kl)
    sums: Sums = jax.tree.map(jnp.add, first.sums, second.sums)
    return Metrics(
        agents=merge_finished(first.agents, second.agents),
        policies=merge_finished(first.policies, second.policies),
        whole=merge_finished(first.whole, second.whole),
        sums=sums.replace(update=update),
        latest=second.latest,
        fault=jax.tree.map(
            lambda x, y: jnp.where(first.fault.found, x, y), first.fault, second.fault
        ),
    )
