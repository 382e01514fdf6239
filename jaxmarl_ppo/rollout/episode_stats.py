"""What was lived and earned, followed on the device: by agent slot and by policy.

Every environment is followed tick by tick, and nothing of a tick is kept but sums, minima and
maxima: a table of every slot on every tick would grow with the agents. Only when the rollout is
over is summed over environments.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.types import EpisodeStats, Outcomes


class LifeSums(struct.PyTreeNode):
    """Finished lives of `G` groups: all that one agent slot, or one policy, lived."""

    lives: jax.Array  # [G]
    returns: jax.Array  # [G]
    lengths: jax.Array  # [G]: ticks
    extras: dict[str, jax.Array]  # [G] each


class Tally(struct.PyTreeNode):
    """Sums over finished lives of `G` groups, and the least and the greatest return."""

    sums: LifeSums  # [G]
    minimum: jax.Array  # [G]
    maximum: jax.Array  # [G]


class Followed(struct.PyTreeNode):
    """All that is followed of the slots of every environment."""

    running: EpisodeStats  # [E, A]: lives that go on
    agents: Tally  # [E, A]
    policies: Tally | None  # [E, P]; None where the policy of every slot is known
    reward: jax.Array  # [E, A]: all that was paid
    uncredited: jax.Array  # [E, A]: of it, before the slot's first decision in a life


class Extremes(struct.PyTreeNode):
    """Least or greatest return of a finished life."""

    agents: jax.Array  # [A]
    policies: jax.Array  # [P]


class Lives(struct.PyTreeNode):
    """All finished lives of a stretch of time, and what was paid in it."""

    agents: LifeSums  # [A]
    policies: LifeSums  # [P]
    minimum: Extremes
    maximum: Extremes
    reward: jax.Array  # [A]
    uncredited: jax.Array  # [A]


def no_lives(players: Players, extras: dict[str, jax.Array]) -> Lives:
    """Nobody has lived yet; `extras` says which of the environment's own metrics there are."""
    by_agent = jnp.zeros(len(players.mapping.candidates))
    agents = _nobody(by_agent, extras)
    policies = _nobody(jnp.zeros(len(players.policies)), extras)
    return Lives(
        agents=agents.sums,
        policies=policies.sums,
        minimum=Extremes(agents.minimum, policies.minimum),
        maximum=Extremes(agents.maximum, policies.maximum),
        reward=by_agent,
        uncredited=by_agent,
    )


def start_following(players: Players, running: EpisodeStats) -> Followed:
    """Nothing has happened but to the lives that are under way, `[E, A]`."""
    zeros = jnp.zeros(running.returns.shape)
    by_policy = jnp.zeros((zeros.shape[0], len(players.policies)))
    return Followed(
        running=running,
        agents=_nobody(zeros, running.extras),
        policies=None if players.is_fixed else _nobody(by_policy, running.extras),
        reward=zeros,
        uncredited=zeros,
    )


def follow(players: Players, followed: Followed, outcome: Outcomes) -> Followed:
    """Go on by one tick, `[E, A]`."""
    running = followed.running
    lived = running.replace(
        returns=running.returns + outcome.reward,
        lengths=running.lengths + outcome.alive,
        extras=jax.tree.map(jnp.add, running.extras, outcome.extras),
    )
    ended = outcome.terminated | outcome.truncated
    finished = ended & lived.counted
    tallies = (followed.agents, followed.policies)

    def enter() -> tuple[Tally, Tally | None]:
        agents = _enter(followed.agents, lived, finished)
        if followed.policies is None:
            return agents, None
        policy = players.policies_at(outcome.player)[..., None] == jnp.arange(len(players.policies))
        return agents, _enter(followed.policies, lived, finished[..., None] & policy)

    agents, policies = jax.lax.cond(finished.any(), enter, lambda: tallies)
    fresh = jax.tree.map(jnp.zeros_like, lived).replace(counted=jnp.ones_like(lived.counted))
    return Followed(
        running=jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, lived),
        agents=agents,
        policies=policies,
        reward=followed.reward + outcome.reward,
        uncredited=followed.uncredited + jnp.where(outcome.credited, 0.0, outcome.reward),
    )


def count_lives(players: Players, followed: Followed) -> Lives:
    """The lives that ended in any environment, and what was paid in all."""
    agents = _over_axis_0(followed.agents)
    if followed.policies is not None:
        policies = _over_axis_0(followed.policies)
    else:
        only = np.array([policies[0] for policies in players.mapping.candidates])
        own = only[:, None] == np.arange(len(players.policies))  # [A, P]
        by_agent = jax.tree.map(lambda x: x[:, None], agents)
        none = _nobody(jnp.zeros(own.shape), agents.sums.extras)
        policies = _over_axis_0(jax.tree.map(lambda x, y: jnp.where(own, x, y), by_agent, none))
    return Lives(
        agents=agents.sums,
        policies=policies.sums,
        minimum=Extremes(agents.minimum, policies.minimum),
        maximum=Extremes(agents.maximum, policies.maximum),
        reward=followed.reward.sum(0),
        uncredited=followed.uncredited.sum(0),
    )


def _nobody(zeros: jax.Array, extras: dict[str, jax.Array]) -> Tally:
    sums = LifeSums(zeros, zeros, zeros, dict.fromkeys(extras, zeros))
    return Tally(sums, zeros + jnp.inf, zeros - jnp.inf)


def _enter(tally: Tally, lived: EpisodeStats, finished: jax.Array) -> Tally:
    """Add the lives `[E, A]` that are finished, `[E, A]` by slot or `[E, A, P]` by policy."""

    def total(x: jax.Array, neutral: float, reduce: Callable[..., jax.Array]) -> jax.Array:
        if finished.ndim == x.ndim:
            return jnp.where(finished, x, neutral)
        return reduce(jnp.where(finished, x[..., None], neutral), axis=1)

    new = LifeSums(
        lives=jnp.ones_like(lived.returns),
        returns=lived.returns,
        lengths=lived.lengths,
        extras=lived.extras,
    )
    return Tally(
        sums=jax.tree.map(lambda x, y: x + total(y, 0.0, jnp.sum), tally.sums, new),
        minimum=jnp.minimum(tally.minimum, total(lived.returns, jnp.inf, jnp.min)),
        maximum=jnp.maximum(tally.maximum, total(lived.returns, -jnp.inf, jnp.max)),
    )


def _over_axis_0(tally: Tally) -> Tally:
    return Tally(
        sums=jax.tree.map(lambda x: x.sum(0), tally.sums),
        minimum=tally.minimum.min(0),
        maximum=tally.maximum.max(0),
    )
