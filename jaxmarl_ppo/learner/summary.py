"""Metrics of an interval as plain numbers for logs."""

from typing import Any

import jax
import numpy as np

from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.elo import elo_ratings
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.rollout.episode_stats import Finished
from jaxmarl_ppo.types import League, Population


def summarise(learner: Learner, metrics: Metrics) -> dict[str, Any]:
    """Turn metrics into plain numbers under the names of agents and policies.

    Args:
        learner: of the run.
        metrics: of one iteration, or of several that were merged; without an axis of seeds.

    Returns:
        `{"env_steps", "decisions", "decisions_per_step", "episodes", "all": {...}, "agents": {name:
        {...}}, "policies": {name: {...}}}`, counts of this interval alone. `all` covers complete
        episodes, with the return of all agents together. Without finished lives or episodes a
        group's return is absent, and without trained decisions a policy's losses are. Where results
        between players are kept also `"league"`, see `summarise_league`.

    Raises:
        ValueError: If the metrics are of several seeds.
    """
    # All at once: read one by one, every number would be a transfer of its own.
    metrics = jax.device_get(metrics)
    sums, players = metrics.sums, learner.players
    if np.ndim(sums.env_steps) > 0:
        raise ValueError(
            f"metrics have an axis of {len(sums.env_steps)} seeds; take those of one, as in "
            "jax.tree.map(lambda x: x[0], metrics)"
        )
    # Counts are floats on the device, where 32-bit integers would overflow.
    result: dict[str, Any] = {
        "env_steps": int(sums.env_steps),
        "decisions": int(sums.decisions.sum()),
        "decisions_per_step": float(sums.decisions.sum() / sums.env_steps),
        "episodes": int(sums.episodes),
        "all": _life_summary(metrics.whole, ()),
        "agents": {
            name: _life_summary(metrics.agents, i) for i, name in enumerate(learner.env.agents)
        },
        "policies": {},
    }
    for k, name in enumerate(players.policies):
        result["policies"][name] = {
            **_life_summary(metrics.policies, k),
            "decisions": int(sums.decisions[k]),
            **_update_summary(metrics, k),
        }
    for group_learner in learner.group_learners:
        numbers = group_learner.policy_group.interface.numbers
        if numbers is not None and numbers.entropy_before_clipping:
            for k in group_learner.policy_ids:
                own = result["policies"][players.policies[k]]
                if "entropy" in own:
                    own["entropy_before_clipping"] = own.pop("entropy")
        if group_learner.update_shape.skips_nonfinite:
            for k in group_learner.policy_ids:
                skipped = int(sums.update.num_skipped[k])
                result["policies"][players.policies[k]]["skipped_steps"] = skipped
        if group_learner.policy_group.imitated:
            losses = sums.update.losses
            for k in group_learner.policy_ids:
                if losses.count[k]:
                    mean = float(losses.imitation[k]) / float(losses.count[k])
                    result["policies"][players.policies[k]]["imitation_loss"] = mean
    if learner.rated:
        result["league"] = summarise_league(metrics.latest.league, players)
    return result


def full_summary(learner: Learner) -> dict[str, Any]:
    """Make a summary with every key that `summarise` can return; its values mean nothing."""
    shapes = jax.eval_shape(learner.init, jax.random.key(0))
    league = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), shapes.population.league)
    none = metrics_lib.empty(learner.players, shapes.per_env.running.lives, league)
    metrics: Metrics = jax.tree.map(np.ones_like, none)
    # Draws, since no ratings explain that both players win every game.
    latest = metrics.latest.replace(league=league.replace(score=0.5 * league.games))
    summary = summarise(learner, metrics.replace(latest=latest))
    trained = {k for group_learner in learner.group_learners for k in group_learner.policy_ids}
    for k, name in enumerate(learner.players.policies):
        if k not in trained:
            for key in _update_summary(metrics, k):
                del summary["policies"][name][key]
    return summary


# Losses of a policy that may overflow, after which it no longer learns.
_LEARNT_BY = ("policy_loss", "value_loss", "entropy", "grad_norm")


def find_divergence(
    learner: Learner, population: Population, metrics: Metrics
) -> dict[str, list[str]]:
    """Find the players with non-finite values in anything that training needs.

    An infinite loss or gradient counts even where all parameters are finite: a gradient clipped by
    an infinite norm changes nothing, so learning has stopped.

    Args:
        learner: of the run.
        population: the players, on the host.
        metrics: of the interval to check.

    Returns:
        By player, what is not finite: `parameters`, `observation normaliser`, `reward normaliser`,
        `policy_loss`, `value_loss`, `entropy`, `kl` and `grad_norm`.
    """
    players, update = learner.players, jax.device_get(metrics.sums.update)
    measures = {name: getattr(update.losses, name) for name in (*_LEARNT_BY[:3], "kl")}
    measures["grad_norm"] = update.grad_norm
    found: dict[str, list[str]] = {}
    names = players.names_now(population.league)
    for policy_group, stack in zip(players.policy_groups, population.policy_groups, strict=True):
        parts = {
            "parameters": stack.params,
            "observation normaliser": stack.obs_moments,
            "reward normaliser": stack.return_moments,
        }
        for policy_index in range(policy_group.network.num_members):
            player = policy_group.first_player + policy_index
            policy = players.policy_of[player]
            odd = [
                part
                for part, tree in parts.items()
                if not all(np.isfinite(leaf[policy_index]).all() for leaf in jax.tree.leaves(tree))
            ]
            odd += [name for name, x in measures.items() if not np.isfinite(x[policy])]
            if set(odd) - {"kl"}:
                found[names[player]] = odd
    return found


def largest_reward(metrics: Metrics) -> float:
    """Return the scale of rewards: the largest return, or mean reward of a step, of any agent."""
    agents, sums = jax.device_get((metrics.agents, metrics.sums))
    # The extremes are infinite for agents without a finished life.
    lived = agents.sums.lives > 0
    extremes = [np.abs(x[lived]) for x in (agents.minimum, agents.maximum)]
    return float(
        np.max(np.concatenate([*extremes, np.abs(sums.reward) / max(sums.env_steps, 1.0)]))
    )


def summarise_league(league: League, players: Players) -> dict[str, Any]:
    """Collect results between the players that have had an opponent.

    Returns:
        `{"elo": {player: rating}, "players": [names], "win_rate": [[...]], "payoff": [[...]],
        "games": [[...]], "pools": {policy: {"snapshots", "added_at"}}}`. Rows and columns stand in
        the order of `players`; `win_rate` (a draw counts 1/2) and `payoff` (the mean return) are of
        the row against the column, or None where the two have not met. `games` and results decay
        with time. For a pool, `added_at` lists the iteration of each snapshot in it.
    """
    score, payoff, counts = (np.asarray(x) for x in (league.score, league.payoff, league.games))
    # Reports leave out entries of a pool that are not in use yet.
    met = np.nonzero(counts.sum(1))[0]
    names = players.names_now(league)
    elo = elo_ratings(score, counts)
    block = np.ix_(met, met)
    games = counts[block]

    def per_game(total: np.ndarray) -> list[list[float | None]]:
        # 0 / 0 where two have never met; None, since JSON has no NaN.
        with np.errstate(invalid="ignore"):
            mean = total[block] / games
        return [[float(x) if np.isfinite(x) else None for x in row] for row in mean]

    return {
        "elo": {names[q]: float(elo[q]) for q in met},
        "players": [names[q] for q in met],
        "win_rate": per_game(score),
        "payoff": per_game(payoff),
        "games": games.tolist(),
        "pools": {
            players.policies[place.policy]: {
                "snapshots": int(pool.count),
                "added_at": [int(x) for x in pool.added_at[: int(pool.count)]],
            }
            for place, pool in zip(players.pools, league.pools, strict=True)
        },
    }


def _life_summary(group: Finished, i: int | tuple[()]) -> dict[str, float]:
    sums, lives = group.sums, float(group.sums.lives[i])
    summary: dict[str, float] = {"episodes": int(lives)}
    # Without lives the extremes are infinite and the means undefined, so the keys are left out.
    if lives:
        summary["return_mean"] = float(sums.returns[i]) / lives
        summary["return_min"] = float(group.minimum[i])
        summary["return_max"] = float(group.maximum[i])
        summary["length_mean"] = float(sums.lengths[i]) / lives
        summary |= {name: float(x[i]) / lives for name, x in sums.metrics.items()}
    return summary


def _update_summary(metrics: Metrics, k: int) -> dict[str, float]:
    sums, latest = metrics.sums, metrics.latest
    # Sums over rows and epochs: divided by their count, an iteration weighs as much as it trained.
    losses, count = sums.update.losses, float(sums.update.losses.count[k])
    # A trained policy made at least one step in an iteration, so no divisor below is 0.
    if not count:
        return {}
    return {
        "trained_decisions": int(sums.trained[k]),
        "policy_loss": float(losses.policy_loss[k]) / count,
        "value_loss": float(losses.value_loss[k]) / count,
        "entropy": float(losses.entropy[k]) / count,
        "kl": float(losses.kl[k]) / count,
        "clip_fraction": float(losses.clip_fraction[k]) / count,
        "explained_variance": float(sums.explained_variance[k] / sums.iterations[k]),
        "grad_norm": float(sums.update.grad_norm[k] / sums.update.num_steps[k]),
        "optimiser_steps": int(sums.update.num_steps[k]),
        "learning_rate": float(latest.learning_rate[k]),
        "entropy_coef": float(latest.entropy_coef[k]),
        "kl_coef": float(latest.kl_coef[k]),
    }
