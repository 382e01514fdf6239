"""Policy mapping: fixed, or drawn for every episode and held for every life.

A mapping resolves to a `PolicyMapping` with a pure `draw_fn`. An agent that is reborn or joins late
gets a new draw for its slot alone, given the players of the others.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.config.mapping import (
    ENSEMBLE,
    PER_AGENT,
    SHARED,
    Draw,
    DrawFn,
    Ensemble,
    MappingFunction,
    MappingSpec,
    Matchups,
    Table,
    check_mapping,
    valid_words,
    weights_of,
)


@dataclass(frozen=True, eq=False)
class PolicyMapping:
    """A mapping resolved for the agents of an environment.

    Attributes:
        names: of the `P` policies.
        candidates: per slot, the indices of the policies that may play it, in ascending order.
        draw_fn: pure, `(key, Draw) -> [A]` indices into `names`.
    """

    names: tuple[str, ...]
    candidates: tuple[tuple[int, ...], ...]
    draw_fn: DrawFn

    @property
    def is_fixed(self) -> bool:
        """Return whether every slot has the same policy in every life."""
        return all(len(slot) == 1 for slot in self.candidates)


def make_mapping(spec: MappingSpec, agents: tuple[str, ...]) -> PolicyMapping:
    """Resolve a mapping given by the user.

    Args:
        spec: `"shared"` (one policy, named `shared`, plays every agent); `"per_agent"` (each agent
            has a policy of its own name); `"ensemble:3"`, short for `Ensemble(3)`; a table from
            agent, or a pattern such as `car_*`, to a policy, to several of which one is drawn, or
            to weights by policy; `Ensemble`, `Matchups` or `MappingFunction`.
        agents: the environment's agents.

    Raises:
        ValueError: For an unknown word, an unknown agent, or an agent without a policy.
    """
    spec = check_mapping("mapping", spec)
    if isinstance(spec, str):
        spec = _from_word(spec, agents)
    if isinstance(spec, Ensemble):
        return _ensemble(spec, agents)
    if isinstance(spec, Matchups):
        return _matchups(spec, agents)
    if isinstance(spec, MappingFunction):
        return _function(spec, agents)
    return _independent([weights_of(choice) for choice in match_agents(spec, agents)], agents)


def match_agents(table: Mapping[str, Any], agents: tuple[str, ...]) -> list[Any]:
    """Look up the entry of every agent: by its name, else by the first pattern that it matches.

    Raises:
        ValueError: For an entry that no agent matches, or an agent that no entry matches.
    """
    for pattern in table:
        if pattern not in agents and not fnmatch.filter(agents, pattern):
            raise ValueError(
                f"the policy mapping names the unknown agent {pattern!r}; "
                f"the agents are {', '.join(agents)}"
            )
    keys = match_names(table, agents)
    missing = [agent for agent, key in keys.items() if key is None]
    if missing:
        named = sorted({name for choice in table.values() for name in weights_of(choice)})
        raise ValueError(
            f"the policy mapping gives no policy to {', '.join(missing)}; name one of: "
            f"{', '.join(named) or 'any policy'}"
        )
    return [table[key] for key in keys.values() if key is not None]


def match_names(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, str | None]:
    """Find every name's key in `table`: itself, else the first pattern that it matches, else None.

    A key that is one of the names is no pattern, such as `car[0]`.
    """
    patterns = [key for key in table if key not in names]

    def match(name: str) -> str | None:
        fitting = (key for key in patterns if fnmatch.fnmatchcase(name, key))
        return name if name in table else next(fitting, None)

    return {name: match(name) for name in names}


def _from_word(word: str, agents: tuple[str, ...]) -> Table | Ensemble:
    kind, colon, size = word.partition(":")
    if word == SHARED:
        return dict.fromkeys(agents, SHARED)
    if word == PER_AGENT:
        return {agent: agent for agent in agents}
    if kind == ENSEMBLE and colon and size.isdecimal():
        return Ensemble(int(size))
    raise ValueError(f"unknown policy mapping {word!r}; {valid_words()}")


def _ensemble(spec: Ensemble, agents: tuple[str, ...]) -> PolicyMapping:
    if spec.joint:
        # One number for all agents: that many complete tables, of which one is drawn.
        tables = [{agent: f"{agent}_{k}" for agent in agents} for k in range(spec.size)]
        return _matchups(Matchups(tuple(tables), spec.weights), agents)
    weights = spec.weights or (1.0,) * spec.size
    members = [{f"{agent}_{k}": weights[k] for k in range(spec.size)} for agent in agents]
    return _independent(members, agents)


def _independent(choices: Sequence[Mapping[str, float]], agents: tuple[str, ...]) -> PolicyMapping:
    """Resolve a mapping in which every slot draws for itself."""
    # Policies are numbered in the order of their first mention.
    names = tuple(dict.fromkeys(name for choice in choices for name in choice))
    weights = np.zeros((len(agents), len(names)))
    for slot, choice in enumerate(choices):
        for name, weight in choice.items():
            weights[slot, names.index(name)] = weight
    # The last policy with a weight reaches exactly 1, which exceeds every draw.
    cumulative = np.cumsum(weights, axis=-1) / weights.sum(-1, keepdims=True)

    def draw(key: jax.Array, draw: Draw) -> jax.Array:
        # One number per slot, not one per policy: random numbers are expensive.
        uniform = jax.random.uniform(unrolled(key), draw.held.shape)
        return (uniform[:, None] >= jnp.asarray(cumulative, jnp.float32)).sum(-1)

    return PolicyMapping(names, _nonzero_rows(weights), draw)


def _matchups(spec: Matchups, agents: tuple[str, ...]) -> PolicyMapping:
    """Resolve a mapping in which one table is drawn for all slots together."""
    rows = [match_agents(table, agents) for table in spec.tables]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    tables = np.array([[names.index(name) for name in row] for row in rows])  # [tables, A]
    weights = np.array(spec.weights or [1.0] * len(rows))
    logits = _log(weights)

    def draw(key: jax.Array, draw: Draw) -> jax.Array:
        # Slots that keep their player narrow down the tables. If no table agrees with them, any may
        # be drawn. Tables of weight 0 do not count, since they could leave nothing to draw from.
        fixed = draw.occupied & ~draw.needed
        agrees = ((tables == draw.held) | ~fixed).all(-1) & (weights > 0)
        given = jnp.where(agrees.any() & ~agrees, -jnp.inf, logits)
        return jnp.asarray(tables)[jax.random.categorical(unrolled(key), given)]

    possible = np.zeros((len(agents), len(names)))
    for row, weight in zip(tables, weights, strict=True):
        possible[np.arange(len(agents)), row] += weight
    return PolicyMapping(names, _nonzero_rows(possible), draw)


def _function(spec: MappingFunction, agents: tuple[str, ...]) -> PolicyMapping:
    names = tuple(spec.policies)
    # Any policy may then play any agent, so every network is sized for all of them.
    candidates = [tuple(range(len(names)))] * len(agents)
    if spec.candidates is not None:
        chosen = match_agents(spec.candidates, agents)
        unknown = {name for choice in chosen for name in choice} - set(names)
        if unknown:
            raise ValueError(
                f"candidates name the unknown policies {', '.join(sorted(unknown))}; "
                f"the policies are {', '.join(names)}"
            )
        candidates = [tuple(sorted(names.index(name) for name in choice)) for choice in chosen]
    mapping = PolicyMapping(names, tuple(candidates), spec.function)
    _check_function(mapping, agents)
    return mapping


def _check_function(mapping: PolicyMapping, agents: tuple[str, ...]) -> None:
    """Try a user's mapping function on a hundred first episodes.

    Raises:
        ValueError: If it does not return one index per agent, returns one that is no candidate, or
            depends on more than its arguments.
    """
    num_agents = len(agents)
    shape = jax.eval_shape(mapping.draw_fn, jax.random.key(0), _first_draw(0, num_agents))
    if getattr(shape, "shape", None) != (num_agents,) or not jnp.issubdtype(
        shape.dtype, jnp.integer
    ):
        raise ValueError(
            f"the mapping function must return {num_agents} integers, one for each agent, "
            f"got {shape}"
        )
    # In compiled code an index out of range raises nothing: JAX clips it to some policy.
    for episode in range(100):
        draw = _first_draw(episode, num_agents)
        drawn, again = (
            np.asarray(mapping.draw_fn(jax.random.key(episode), draw)) for _ in range(2)
        )
        if (drawn != again).any():
            raise ValueError(
                f"the mapping function returned {drawn.tolist()} and then {again.tolist()} for the "
                "same key and draw; it is compiled once and must depend on nothing else, so draw "
                "random numbers from the key"
            )
        for agent, policy, valid in zip(agents, drawn, mapping.candidates, strict=True):
            if policy not in valid:
                raise ValueError(
                    f"the mapping function gave policy {int(policy)} to agent {agent!r}; its "
                    f"candidates are {', '.join(f'{k} ({mapping.names[k]})' for k in valid)}"
                )


def _first_draw(episode: int, num_agents: int) -> Draw:
    everyone = jnp.ones(num_agents, bool)
    return Draw(jnp.int32(episode), everyone, jnp.zeros(num_agents, jnp.int32), everyone)


def _log(weights: np.ndarray) -> np.ndarray:
    # A weight of 0 becomes -inf, which is never drawn.
    with np.errstate(divide="ignore"):
        return np.log(weights).astype(np.float32)


def _nonzero_rows(weights: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(k) for k in np.nonzero(row)[0]) for row in weights)
