"""A game as one of its agents meets it, the others being scripted: for the views of one agent."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxmarl_envs.adapters.outgoing.programs import first_alone
from jaxmarl_envs.core import MultiAgentEnv, Observation

MOST_STEPS_WITHOUT_THE_AGENT = 10_000
_OTHERS = 2**32 - 1  # of the series, no number of an episode
# What is fetched of a view is one row: features, flat, and action mask, then these.
ACTS, REWARD, TERMINATED, TRUNCATED = range(-4, 0)
REWARD_BEFORE = -5  # of a batch: what was earned before the first decision of a new episode

Script = Callable[[Any, Observation, Any, jax.Array], Any]


@struct.dataclass
class View:
    """A game on the device, as far as the agent's next decision."""

    series: jax.Array  # [] key
    episode: jax.Array  # [] int32
    time_step: jax.Array  # [] int32
    state: Any
    obs: Observation
    seen: jax.Array  # [F + W] float: features and mask, those of a life that has just ended
    outcome: jax.Array  # [4] float: see `ACTS` and so on

    def shows(self, *columns: int) -> jax.Array:
        """Return whether one of these columns of `outcome` is set, `[]` bool."""
        return (self.outcome[jnp.array(columns)] > 0).any()


class OneAgentGame:
    """The game as the agent in one slot meets it: pure functions of one environment."""

    def __init__(self, env: MultiAgentEnv, slot: int, script: Script) -> None:
        self.env, self.slot, self.script = env, slot, script

    def begin(self, series: jax.Array, last: jax.Array, params: Any) -> View:
        """Begin the episode after the `last` one of a series; -1 is before the first."""
        return self._to_a_decision(self._reset(series, last + 1, params), params)

    def step(self, view: View, action: Any, params: Any) -> View:
        """Make steps, at least one, until the agent must act or its life has ended.

        `action` is the slot's row of an action of all slots, see `ActionLayout`.
        """
        first = view.time_step

        def continues(view: View) -> jax.Array:
            num_steps = view.time_step - first
            waiting = ~view.shows(ACTS, TERMINATED, TRUNCATED)
            return (num_steps == 0) | (waiting & (num_steps < MOST_STEPS_WITHOUT_THE_AGENT))

        def once_more(view: View) -> View:
            earned = jnp.where(view.time_step == first, 0.0, view.outcome[REWARD])
            chosen = first_alone(view.time_step == first, action)
            view = self._step(view, chosen, params)
            return replace(view, outcome=view.outcome.at[REWARD].add(earned))

        return jax.lax.while_loop(continues, once_more, view)

    def _reset(self, series: jax.Array, episode: jax.Array, params: Any) -> View:
        key = jax.random.fold_in(jax.random.fold_in(series, episode), 0)
        obs, state = self.env.reset_env(key, params)
        outcome = jnp.zeros(4).at[ACTS].set(obs.agent_mask[self.slot])
        time_step = jnp.zeros((), jnp.int32)
        return View(series, episode, time_step, state, obs, self._seen(obs), outcome)

    def _step(self, view: View, action: Any, params: Any) -> View:
        env, slot, time = self.env, self.slot, view.time_step + 1
        key, key_others = (
            jax.random.fold_in(jax.random.fold_in(series, view.episode), time)
            for series in (view.series, jax.random.fold_in(view.series, _OTHERS))
        )
        scripted = self.script(view.state, view.obs, params, key_others)
        chosen = jax.tree.map(lambda all_, own: all_.at[slot].set(own), scripted, action)
        obs, state, reward, terminated, truncated, info = env.step_env(
            key, view.state, chosen, params
        )
        final = info.get("final_observation", obs)
        ended = terminated[slot] | truncated[slot]
        seen = jnp.where(ended, self._seen(final), self._seen(obs))
        columns = [obs.agent_mask, reward, terminated, truncated & ~terminated]
        outcome = jnp.stack([column[slot].astype(jnp.float32) for column in columns])
        return View(view.series, view.episode, time, state, obs, seen, outcome)

    def _to_a_decision(self, view: View, params: Any) -> View:
        """Play steps, and episodes, until the agent must act, and keep its life's reward."""
        nothing = jax.tree.map(lambda x: x[self.slot], self.env.action_layout(params).zeros())

        def undecided(carry: tuple[View, jax.Array]) -> jax.Array:
            return ~carry[0].shows(ACTS) & (carry[1] < MOST_STEPS_WITHOUT_THE_AGENT)

        def once_more(carry: tuple[View, jax.Array]) -> tuple[View, jax.Array]:
            view, count = carry
            after = jax.lax.cond(
                view.obs.alive.any(),
                lambda: self._step(view, nothing, params),
                lambda: self._reset(view.series, view.episode + 1, params),
            )
            kept = ~after.shows(TERMINATED, TRUNCATED) & (after.time_step > 0)
            earned = jnp.where(kept, view.outcome[REWARD] + after.outcome[REWARD], 0.0)
            outcome = jnp.zeros(4).at[ACTS].set(after.outcome[ACTS]).at[REWARD].set(earned)
            return replace(after, outcome=outcome), count + 1

        view, _ = jax.lax.while_loop(undecided, once_more, (view, jnp.zeros((), jnp.int32)))
        return replace(view, seen=self._seen(view.obs))

    def _seen(self, obs: Observation) -> jax.Array:
        """Join the slot's features and mask, `[F + W]` float32."""
        features = obs.features[self.slot].reshape(-1)
        return jnp.concatenate([features, obs.action_mask[self.slot]], dtype=jnp.float32)


@functools.lru_cache(maxsize=32)
def game(env: MultiAgentEnv, slot: int, others: str | Script) -> OneAgentGame:
    """Make the game of one agent, the same object for the same arguments, compiled once.

    Raises:
        ValueError: For an unknown name of a script.
    """
    if callable(others):
        return OneAgentGame(env, slot, others)
    if others == "random":
        return OneAgentGame(env, slot, random_script(env))
    if others not in env.baselines:
        valid = ", ".join(["random", *env.baselines])
        raise ValueError(f"others={others!r}: valid choices: {valid}, or a function")
    return OneAgentGame(env, slot, env.baselines[others])


@functools.lru_cache(maxsize=32)
def compiled(game: OneAgentGame) -> tuple[Callable[..., Any], ...]:
    """Compile the functions of one game, each with the row to fetch beside the view."""

    def with_row(function: Callable[..., View]) -> Callable[..., Any]:
        def run(*args: Any) -> tuple[View, jax.Array]:
            view = function(*args)
            return view, jnp.concatenate([view.seen, view.outcome])

        return jax.jit(run)

    return with_row(game.begin), with_row(game.step)


@functools.lru_cache(maxsize=32)
def compiled_batch(game: OneAgentGame) -> tuple[Callable[..., Any], ...]:
    """Compile many games; a step begins the next episodes and has the ended ones' rows too."""
    begin_all, step_all = jax.vmap(game.begin, (0, 0, None)), jax.vmap(game.step, (0, 0, None))

    def begin(series: jax.Array, last: jax.Array, params: Any) -> tuple[View, jax.Array]:
        views = begin_all(series, last, params)
        return views, jnp.concatenate([views.seen, views.outcome], axis=1)

    def step(views: View, actions: Any, params: Any) -> tuple[View, jax.Array, jax.Array]:
        after = step_all(views, actions, params)
        ended = (after.outcome[:, TERMINATED:] > 0).any(axis=1)  # [E]

        def begin_some() -> View:
            pick = jax.vmap(lambda over, x, y: jnp.where(over, x, y), (0, 0, 0))
            next_ones = begin_all(after.series, after.episode, params)
            return jax.tree.map(functools.partial(pick, ended), next_ones, after)

        now = jax.lax.cond(ended.any(), begin_some, lambda: after)
        before = now.outcome[:, REWARD][:, None]
        return now, jnp.concatenate([now.seen, before, after.outcome], axis=1), after.seen

    return jax.jit(begin), jax.jit(step)


def random_script(env: MultiAgentEnv) -> Script:
    """Make a scripted policy that draws uniform legal actions for all slots."""

    def decide(state: Any, obs: Observation, params: Any, key: jax.Array) -> Any:
        layout = env.action_layout(params)
        if layout.is_choice:
            return jax.random.categorical(key, jnp.where(obs.action_mask, 0.0, -jnp.inf))
        return layout.pick(jax.random.uniform(key, obs.action_mask.shape), obs.action_mask)

    return decide
