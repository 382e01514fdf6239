"""Complete episodes of given players, exactly one per parallel environment.

Counting the first episodes to end, over environments that reset, would favour short ones. Here
every environment counts only its first episode.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_envs.user_code import host_errors
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.rollout.act import ActOutput, act
from jaxmarl_ppo.rollout.episode_stats import add_step, no_sums
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.rollout.step import StepOutput, step
from jaxmarl_ppo.types import EpisodeSums, Population, PyTree, RolloutState

MAX_STEPS = 10_000  # of an episode in an environment without a horizon


class EpisodeTotals(EpisodeSums):
    """Holds the totals of each slot in each episode, `[episodes, A]`, one environment each."""

    finished: jax.Array  # [episodes] bool: False where the step limit cut the episode off
    num_steps: jax.Array  # () int: until the last episode was over


class EpisodesState(struct.PyTreeNode):
    """State between two steps of episodes played side by side."""

    state: RolloutState
    totals: EpisodeTotals
    key: jax.Array  # of all steps


class Play(struct.PyTreeNode):
    """Plays episodes step by step, with fixed settings."""

    env_params: PyTree
    population: Population
    key: jax.Array  # of all random numbers
    limit: jax.Array  # () int: steps after which episodes are cut off
    chosen: jax.Array | None  # [episodes, A] int: who holds the slots; None to draw
    learner: Learner = struct.field(pytree_node=False)
    num_episodes: int = struct.field(pytree_node=False)
    greedy: bool = struct.field(pytree_node=False)

    @property
    def players(self) -> Players:
        """Return the players that can hold a slot."""
        players = self.learner.players
        # A chosen player may differ from the mapping's.
        return players if self.chosen is None else players.without_fixed_members()

    def begin(self) -> EpisodesState:
        """Begin an episode in every environment."""
        key_reset, key_steps = split(self.key)
        env, league = self.learner.env, self.population.league
        state = init_rollout_state(
            env, self.env_params, self.players, league, key_reset, self.num_episodes
        )
        if self.chosen is not None:
            state = state.replace(player=self.chosen)
        _, _, step_output = jax.eval_shape(self._step, state, key_steps)
        none = no_sums(state.is_first.shape, step_output.info.get("metrics", {}))
        totals = EpisodeTotals(
            none.returns,
            none.lengths,
            none.lives,
            none.metrics,
            finished=jnp.zeros(self.num_episodes, bool),
            num_steps=jnp.zeros((), jnp.int32),
        )
        return EpisodesState(state, totals, key_steps)

    def continues(self, now: EpisodesState) -> jax.Array:
        """Return whether there is another step, `()` bool."""
        return ~now.totals.finished.all() & (now.totals.num_steps < self.limit)

    def advance(self, now: EpisodesState) -> tuple[EpisodesState, ActOutput, StepOutput]:
        """Play a step, and count it in the episodes in progress."""
        key = fold_in(now.key, now.totals.num_steps)
        after, act_output, step_output = self._step(now.state, key)
        totals = _count(now.totals, now.state.obs.alive, step_output)
        return EpisodesState(after, totals, now.key), act_output, step_output

    def _step(
        self, state: RolloutState, key: jax.Array
    ) -> tuple[RolloutState, ActOutput, StepOutput]:
        players, env, env_params = self.players, self.learner.env, self.env_params
        noise = draw_noise(players, (self.num_episodes,), key)
        act_output = act(players, self.population, state, env_params, noise, self.greedy)
        after, step_output = step(env, env_params, state, act_output, noise)
        league = self.population.league
        after = begin_lives(players, league, state.obs.alive, after, step_output, noise)
        after = after if self.chosen is None else after.replace(player=self.chosen)
        return after, act_output, step_output


def check_learner(learner: Any) -> None:
    """Check that an argument is a learner, not for example an environment.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(learner, Learner):
        raise ValueError(
            f"the first argument must be a Learner, got {type(learner).__name__}; "
            "the order is (learner, population, episodes, ...)"
        )


def check_num_episodes(episodes: Any) -> int:
    """Return the number of episodes if it is valid.

    Raises:
        ValueError: If it is not a whole number of at least 1.
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 1:
        raise ValueError(f"episodes must be a whole number of at least 1, got {episodes!r}")
    return int(episodes)


@host_errors()
def play_episodes(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool = False,
    *,
    env_params: PyTree | None = None,
    players: np.ndarray | None = None,
    max_steps: int = MAX_STEPS,
) -> EpisodeTotals:
    """Play fresh episodes, in step with each other, until the last one is over.

    The rollout's own functions handle actions, memory, previous actions and rewards. Compiled once
    per learner, number of episodes and way of acting.

    Args:
        learner: of the environment and the players.
        population: the players.
        episodes: number of parallel environments, with one episode each.
        key: of all random numbers.
        greedy: networks take the most likely actions instead of samples.
        env_params: None for the learner's.
        players: `[A]` or `[episodes, A]` int, who holds each slot, as an index into
            `learner.players.names`; None to draw as in training.
        max_steps: step limit in an environment without a horizon; an episode cut off there is not
            `finished`, and its totals end there.

    Raises:
        ValueError: If the number of episodes is not a whole number, or a player cannot hold its
            slot.
    """
    play = make_play(learner, population, episodes, key, greedy, env_params, players, max_steps)
    return _play(play)


def make_play(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool = False,
    env_params: PyTree | None = None,
    players: np.ndarray | None = None,
    max_steps: int = MAX_STEPS,
) -> Play:
    """Check and gather the arguments of `play_episodes`.

    Raises:
        ValueError: If the number of episodes is not a whole number, or a player cannot hold its
            slot.
    """
    check_learner(learner)
    num_episodes = check_num_episodes(episodes)
    if players is not None:
        shape = (num_episodes, learner.env.num_agents)
        players = np.broadcast_to(np.asarray(players, np.int32), shape)
        _check_players(learner, players)
    env_params = learner.env_params if env_params is None else env_params
    horizon = learner.env.horizon(env_params)
    limit = jnp.asarray(max_steps if horizon is None else horizon, jnp.int32)
    return Play(
        env_params,
        population,
        key,
        limit,
        None if players is None else jnp.asarray(players),
        learner=learner,
        num_episodes=num_episodes,
        greedy=bool(greedy),
    )


def count_cut_off(end: EpisodesState) -> EpisodeTotals:
    """Count the lives that the step limit cut off."""
    cut_off = end.state.obs.alive & ~end.totals.finished[:, None]
    return end.totals.replace(lives=end.totals.lives + cut_off)


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


@jax.jit
def _play(play: Play) -> EpisodeTotals:
    end = jax.lax.while_loop(play.continues, lambda now: play.advance(now)[0], play.begin())
    return count_cut_off(end)


def _count(totals: EpisodeTotals, alive: jax.Array, step_output: StepOutput) -> EpisodeTotals:
    """Add a step where the first episode is not over; `alive [E, A]` is from before the step."""
    ended = step_output.terminated | step_output.truncated
    sums = EpisodeSums(totals.returns, totals.lengths, totals.lives, totals.metrics)
    added = add_step(sums, step_output.reward, alive, ended, step_output.info.get("metrics", {}))
    sums = where_rows(totals.finished, sums, added)
    return EpisodeTotals(
        sums.returns,
        sums.lengths,
        sums.lives,
        sums.metrics,
        finished=totals.finished | step_output.info["episode_over"],
        num_steps=totals.num_steps + 1,
    )
