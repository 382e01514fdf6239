"""Environments and players, step by step, as one scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.ops.steps import scan_steps
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.rollout.act import ActOutput, act
from jaxmarl_ppo.rollout.bootstrap import ending_of, final_value, value_of
from jaxmarl_ppo.rollout.episode_stats import EpisodeTracker, start_tracking, track
from jaxmarl_ppo.rollout.faults import check, check_final, check_last
from jaxmarl_ppo.rollout.halves import Following, scan_halves
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import Noise, draw_noise
from jaxmarl_ppo.rollout.step import step
from jaxmarl_ppo.types import (
    Decisions,
    Outcomes,
    Population,
    PyTree,
    RolloutState,
    Running,
)


class Rollout(NamedTuple):
    """Data of one rollout: decisions, outcomes, and initial memory."""

    decisions: tuple[Decisions, ...]  # per policy group [T, E, M]
    outcomes: Outcomes  # [T, E, A]
    faults: jax.Array  # [T, E, A] uint8: see `faults.check`
    last_fault: jax.Array  # [E, A] uint8: see `faults.check_last`
    bootstrap_value: jax.Array  # [E, A]: V of the observation after the last step
    tracker: EpisodeTracker  # [E, ...]


def rollout(
    env: MultiAgentEnv,
    env_params: PyTree,
    players: Players,
    population: Population,
    state: RolloutState,
    running: Running,
    key: jax.Array,
    num_steps: int,
    unroll: int = 1,
) -> tuple[RolloutState, Rollout]:
    """Play `num_steps` steps in every environment.

    Args:
        env: the environment.
        env_params: its parameters.
        players: who can hold a slot.
        population: their parameters.
        state: to continue from.
        running: lives and episodes in progress.
        key: of all random numbers.
        num_steps: `T`.
        unroll: steps within an iteration of the compiled loop, a divisor of `T`.

    Returns:
        The state to continue from, and the rollout. Fields of `outcomes` are stored only if they
        are read.
    """
    # With memory, it would have to be kept for every step.
    at_once = tuning().values_ends_at_once and not any(
        b.network.is_recurrent for b in players.policy_groups
    )

    def begin(carry: tuple[RolloutState, EpisodeTracker], noise: Noise) -> ActOutput:
        return act(players, population, carry[0], env_params, noise)

    def finish(
        carry: tuple[RolloutState, EpisodeTracker],
        act_output: ActOutput,
        noise: Noise,
        following: Following | None = None,
    ):
        state, tracker = carry
        ahead = None
        if following is not None:
            others, _ = following.carry
            action = following.begun.env_action
            ahead = following.ahead(following.entry.env, others.env_state, action)
        after, step_output = step(env, env_params, state, act_output, noise, ahead)
        truncated = step_output.truncated & ~step_output.terminated
        final = step_output.info["final_observation"]
        # It still shows whose life has just ended.
        ending = ending_of(after, final.replace(alive=final.alive | state.obs.alive), truncated)
        reward = step_output.reward
        if tuning().packs:
            # Joined from agents' rewards once, not once for each of its many readers.
            reward = jax.lax.optimization_barrier(reward)
        outcomes = Outcomes(
            reward=reward,
            terminated=step_output.terminated,
            truncated=truncated,
            final_value=(
                jnp.zeros_like(reward) if at_once else final_value(players, population, ending)
            ),
            alive=state.obs.alive,
            acted=state.obs.agent_mask,
            player=state.player,
            has_decided=~after.is_first,
            episode_over=step_output.info["episode_over"],
            metrics=step_output.info.get("metrics", {}),
        )
        seen = players.seen(state.obs)
        faults = check(seen, reward, outcomes.final_value, env.max_actors, players.layout)
        born = begin_lives(players, population.league, state.obs.alive, after, step_output, noise)
        tracker = track(players, tracker, outcomes)
        stored = (act_output.decisions, outcomes, faults, ending if at_once else None)
        return (born, tracker), stored

    def env_step(carry: tuple[RolloutState, EpisodeTracker], noise: Noise):
        return finish(carry, begin(carry, noise), noise)

    num_envs = state.is_first.shape[0]
    carry = state, start_tracking(players, running)
    with jax.named_scope("env_step"):
        if env.steps_ahead and num_envs % 2 == 0:
            noise = draw_noise(players, (2 * num_steps, num_envs // 2), key)
            (state, tracker), stored = scan_halves(begin, finish, carry, noise, unroll)
        else:
            noise = draw_noise(players, (num_steps, num_envs), key)
            (state, tracker), stored = scan_steps(env_step, carry, noise, unroll=unroll)
    decisions, outcomes, faults, ending = stored
    if at_once:
        value = jax.lax.map(
            lambda ending: final_value(players, population, ending),
            ending,
            batch_size=max(1, tuning().max_pass_rows // outcomes.reward[0].size),
        )
        outcomes, faults = outcomes.replace(final_value=value), check_final(faults, value)
    # Only where an agent decides next: a waiting slot leaves its decision open instead.
    value = value_of(players, population, state, state.obs, state.obs.agent_mask)
    last_fault = check_last(players.seen(state.obs))
    return state, Rollout(decisions, outcomes, faults, last_fault, value, tracker)
