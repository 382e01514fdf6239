"""Episodes recorded step by step, played like those of `play_episodes`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_ppo.evaluation.episodes import (
    EpisodesState,
    EpisodeTotals,
    Play,
    count_cut_off,
    make_play,
)
from jaxmarl_ppo.evaluation.trajectories import Trajectories
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.ops.trees import where_rows
from jaxmarl_ppo.rollout.act import ActOutput
from jaxmarl_ppo.rollout.step import StepOutput
from jaxmarl_ppo.types import Population

# Limits of a record's size in memory, and of its part on the device at a time.
MAX_BYTES = 4 * 10**9
MAX_BYTES_AT_ONCE = 64 * 10**6

Steps = dict[str, jax.Array]  # by field of `Trajectories`, [..., E, A, ...] each


def record_episodes(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool = False,
    **kwargs: Any,
) -> tuple[EpisodeTotals, Trajectories]:
    """Play the same episodes as `play_episodes` with the same key, and record every step.

    Args:
        learner: of the environment and the players.
        population: the players.
        episodes: their number, side by side.
        key: of all random numbers.
        greedy: networks take the most likely actions instead of samples.
        **kwargs: as for `play_episodes`.

    Returns:
        The totals, whose returns are sums of the recorded rewards, and the episodes.

    Raises:
        ValueError: As `play_episodes`, or if the record would be too large.
    """
    play = make_play(learner, population, episodes, key, greedy, **kwargs)
    now = jax.eval_shape(Play.begin, play)
    bytes_per_step = _num_bytes(jax.eval_shape(_advance, play, now)[1])
    _check_size(play, bytes_per_step)
    at_once = max(1, min(int(play.limit), MAX_BYTES_AT_ONCE // bytes_per_step))
    now, parts = _begin(play), []
    num_steps, continues = 0, True
    while continues:
        now, steps, count, continues = _record(play, now, at_once)
        num_steps += int(count)
        _check_size(play, bytes_per_step, num_steps)
        parts.append({name: np.asarray(x)[: int(count)] for name, x in steps.items()})
    trajectories = _join(play, parts, np.asarray(now.totals.finished))
    totals = jax.device_get(count_cut_off(now))
    # Summed here, since compiled sums may round differently from the record.
    returns = np.zeros_like(totals.returns)
    for reward in np.moveaxis(trajectories.reward, 1, 0):
        returns += reward
    return totals.replace(returns=returns), trajectories


_begin = jax.jit(Play.begin)


@functools.partial(jax.jit, static_argnames="at_once")
def _record(
    play: Play, now: EpisodesState, at_once: int
) -> tuple[EpisodesState, Steps, jax.Array, jax.Array]:
    """Play up to so many steps.

    Returns:
        The state to continue from, the steps `[at_once, E, A, ...]`, their number, and whether more
        will follow.
    """

    def continues(carry: tuple[jax.Array, EpisodesState, Steps]) -> jax.Array:
        index, now, _ = carry
        return (index < at_once) & play.continues(now)

    def advance(
        carry: tuple[jax.Array, EpisodesState, Steps],
    ) -> tuple[jax.Array, EpisodesState, Steps]:
        index, now, steps = carry
        now, time_step = _advance(play, now)
        return index + 1, now, {name: steps[name].at[index].set(x) for name, x in time_step.items()}

    shapes = jax.eval_shape(_advance, play, now)[1]
    steps = {name: jnp.zeros((at_once, *x.shape), x.dtype) for name, x in shapes.items()}
    count, now, steps = jax.lax.while_loop(continues, advance, (jnp.int32(0), now, steps))
    return now, steps, count, play.continues(now)


def _advance(play: Play, now: EpisodesState) -> tuple[EpisodesState, Steps]:
    after, act_output, step_output = play.advance(now)
    return after, _make_step(play, now, act_output, step_output)


def _make_step(
    play: Play, before: EpisodesState, act_output: ActOutput, step_output: StepOutput
) -> Steps:
    """Gather the record of a step, `[E, A, ...]`."""
    state, obs = before.state, before.state.obs
    log_prob = value = jnp.full(obs.alive.shape, jnp.nan)
    for group, own in zip(play.players.policy_groups, act_output.decisions, strict=True):
        spread = functools.partial(group.interface.spread, where=own.acted, active_rows=own.slot)
        log_prob, value = spread(own.log_prob, log_prob), spread(own.value, value)
    terminated, acts = step_output.terminated, obs.agent_mask
    time_step = {
        "features": obs.features,
        "action_mask": obs.action_mask,
        "agent_mask": acts,
        "alive": obs.alive,
        "is_first": state.is_first & obs.alive,
        "player": jnp.where(obs.alive, state.player, -1),
        "log_prob": log_prob,
        "value": value,
        "reward": step_output.reward,
        "terminated": terminated,
        "truncated": step_output.truncated & ~terminated,
    }
    by_network = acts & ~jnp.isnan(log_prob)
    time_step |= _actions(play.players.layout, act_output, acts, by_network)
    nothing = {name: jnp.full_like(x, _NOTHING.get(name, 0)) for name, x in time_step.items()}
    valid = ~before.totals.finished
    return {"valid": valid, **where_rows(valid, time_step, nothing)}


def _actions(
    layout: ActionLayout, act_output: ActOutput, acts: jax.Array, by_network: jax.Array
) -> Steps:
    """Gather the actions of those who act, and the numbers as networks drew them."""
    taken, drawn = act_output.env_action, act_output.action
    taken = where_rows(acts, taken, jax.tree.map(jnp.zeros_like, taken))
    if layout.is_choice:
        return {"action": taken}
    choices, numbers = layout.split(taken)
    _, drawn = layout.split(drawn)
    drawn = where_rows(by_network, drawn, jnp.full_like(drawn, jnp.nan))
    if layout.is_numbers:
        return {"action": taken, "unsquashed_action": drawn}
    return {"choices": choices, "numbers": numbers, "numbers_as_drawn": drawn}


# Fill values after an episode's end, where not 0 or False.
_NAN = ("log_prob", "value", "unsquashed_action", "numbers_as_drawn")
_NOTHING = {"player": -1, **dict.fromkeys(_NAN, jnp.nan)}


def _join(play: Play, parts: list[dict[str, np.ndarray]], finished: np.ndarray) -> Trajectories:
    """Concatenate parts `[steps, E, A, ...]`, field by field, to `[E, T, A, ...]`."""
    joined = {}
    for name in list(parts[0]):
        steps = np.concatenate([part.pop(name) for part in parts])
        joined[name] = np.moveaxis(steps, 0, 1)
    learner, players = play.learner, play.learner.players
    return Trajectories(
        env=learner.env.name,
        greedy=play.greedy,
        agents=tuple(learner.env.agents),
        players=players.names_now(play.population.league),
        policies=players.policies,
        policy_of=np.array(players.policy_of, np.int32),
        episode=np.arange(play.num_episodes, dtype=np.int32),
        length=joined["valid"].sum(1, dtype=np.int32),
        finished=finished,
        **joined,
    )


def _num_bytes(time_step: Steps) -> int:
    return sum(x.size * x.dtype.itemsize for x in time_step.values())


def _check_size(play: Play, bytes_per_step: int, num_steps: int = 1) -> None:
    if num_steps * bytes_per_step > MAX_BYTES:
        raise ValueError(
            f"the record of {play.num_episodes:,} episodes takes {bytes_per_step / 1e6:,.1f} MB a "
            f"step and is beyond {MAX_BYTES / 1e9:g} GB after {num_steps:,}; record fewer episodes "
            "at a time"
        )
