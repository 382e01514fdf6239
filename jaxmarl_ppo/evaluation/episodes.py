"""Whole episodes of given players, exactly one per parallel environment.

Taking the first so many episodes to end, over environments that begin anew, would count short ones
too often. Here every environment counts its first episode and no other.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.rollout.act import act
from jaxmarl_ppo.rollout.episode_stats import add_tick, no_sums
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.rollout.step import StepOutput, step
from jaxmarl_ppo.types import EpisodeSums, Population, PyTree, RolloutState

MAX_TICKS = 10_000  # of an episode in an environment that names no horizon


class EpisodeTotals(EpisodeSums):
    """Holds what each slot gathered in each episode, `[episodes, A]`, one environment each."""

    finished: jax.Array  # [episodes] bool: False where the tick limit cut the episode off
    num_ticks: jax.Array  # () int: until the last episode was over


class _Progress(struct.PyTreeNode):
    state: RolloutState
    totals: EpisodeTotals


def check_learner(learner: Any) -> None:
    """Refuse what is no learner, such as an environment in its place.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(learner, Learner):
        raise ValueError(
            f"the first argument must be a Learner, got {type(learner).__name__}; "
            "the order is (learner, population, episodes, ...)"
        )


def check_num_episodes(episodes: Any) -> int:
    """Return the number of episodes if it is one.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 1:
        raise ValueError(f"episodes must be a whole number of at least 1, got {episodes!r}")
    return int(episodes)


def play_episodes(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool = False,
    *,
    env_params: PyTree | None = None,
    players: np.ndarray | None = None,
    max_ticks: int = MAX_TICKS,
) -> EpisodeTotals:
    """Play fresh episodes, in step with each other, until the last one is over.

    Actions, memory, previous actions and rewards are treated by the rollout's own functions.
    Compiled once per learner, number of episodes and way of acting.

    Args:
        learner: gives the environment and who can play.
        population: the players.
        episodes: parallel environments, each of which counts one episode.
        key: of everything random.
        greedy: networks take the most likely actions instead of samples.
        env_params: None for the learner's.
        players: `[A]` or `[episodes, A]` int, who holds each slot, as an index into
            `learner.players.names`; None to draw as in training.
        max_ticks: where an environment without a horizon is cut off; an episode that goes on then
            is not `finished`, and its totals are those up to there.

    Raises:
        ValueError: no whole number of episodes, or a player that cannot hold its slot.
    """
    check_learner(learner)
    num_episodes = check_num_episodes(episodes)
    if players is not None:
        shape = (num_episodes, learner.env.num_agents)
        players = np.broadcast_to(np.asarray(players, np.int32), shape)
        _check_players(learner, players)
    env_params = learner.env_params if env_params is None else env_params
    horizon = learner.env.horizon(env_params)
    limit = jnp.asarray(max_ticks if horizon is None else horizon, jnp.int32)
    return _play(learner, env_params, population, key, limit, num_episodes, bool(greedy), players)


def _check_players(learner: Learner, players: np.ndarray) -> None:
    for slot, agent in enumerate(learner.env.agents):
        able = learner.players.able(slot)
        for player in np.unique(players[:, slot]):
            if player not in able:
                names = learner.players.names
                who = names[player] if 0 <= player < len(names) else f"number {player}"
                raise ValueError(
                    f"player {who} cannot play agent {agent!r}; "
                    f"valid: {', '.join(names[q] for q in able)}"
                )


@partial(jax.jit, static_argnames=("learner", "num_episodes", "greedy"))
def _play(
    learner: Learner,
    env_params: PyTree,
    population: Population,
    key: jax.Array,
    limit: jax.Array,
    num_episodes: int,
    greedy: bool,
    chosen: jax.Array | None,  # [episodes, A] int
) -> EpisodeTotals:
    env, league = learner.env, population.league
    # Who was chosen need not be whom the mapping gives the slot.
    players = learner.players if chosen is None else learner.players.without_fixed_members()
    key_reset, key_ticks = split(key)

    def play_tick(state: RolloutState, key: jax.Array) -> tuple[RolloutState, StepOutput]:
        noise = draw_noise(players, (num_episodes,), key)
        act_output = act(players, population, state, env_params, noise, greedy)
        after, step_output = step(env, env_params, state, act_output, noise)
        after = begin_lives(players, league, state.obs.alive, after, step_output, noise)
        return after if chosen is None else after.replace(player=chosen), step_output

    def advance(now: _Progress) -> _Progress:
        state, step_output = play_tick(now.state, fold_in(key_ticks, now.totals.num_ticks))
        return _Progress(state, _count(now.totals, now.state.obs.alive, step_output))

    def goes_on(now: _Progress) -> jax.Array:
        return ~now.totals.finished.all() & (now.totals.num_ticks < limit)

    state = init_rollout_state(env, env_params, players, league, key_reset, num_episodes)
    if chosen is not None:
        state = state.replace(player=chosen)
    step_output = jax.eval_shape(play_tick, state, key_ticks)[1]
    none = no_sums(state.is_first.shape, step_output.info.get("metrics", {}))
    totals = EpisodeTotals(
        none.returns,
        none.lengths,
        none.lives,
        none.metrics,
        finished=jnp.zeros(num_episodes, bool),
        num_ticks=jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(goes_on, advance, _Progress(state, totals))
    cut_off = end.state.obs.alive & ~end.totals.finished[:, None]
    return end.totals.replace(lives=end.totals.lives + cut_off)


def _count(totals: EpisodeTotals, alive: jax.Array, step_output: StepOutput) -> EpisodeTotals:
    """Add a tick where the first episode is not over; `alive [E, A]` is from before the tick."""
    ended = step_output.terminated | step_output.truncated
    sums = EpisodeSums(totals.returns, totals.lengths, totals.lives, totals.metrics)
    added = add_tick(sums, step_output.reward, alive, ended, step_output.info.get("metrics", {}))
    sums = where_rows(totals.finished, sums, added)
    return EpisodeTotals(
        sums.returns,
        sums.lengths,
        sums.lives,
        sums.metrics,
        finished=totals.finished | step_output.info["episode_over"],
        num_ticks=totals.num_ticks + 1,
    )
