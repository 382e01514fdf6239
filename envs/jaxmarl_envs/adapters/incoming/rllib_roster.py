"""Finding the possible agents of an RLlib environment, from its attributes and by trial."""

import dataclasses
import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import (
    AgentSpaces,
    as_gymnasium,
    read_spaces,
)
from jaxmarl_envs.adapters.incoming.own_randomness import OwnRandomness, generators_kept
from jaxmarl_envs.adapters.incoming.rllib_game import ALL, RawEnv, Roster, kind_of

# For how long an environment is tried out: episodes, steps of them all, and seconds.
EPISODES, STEPS, SECONDS = 6, 2000, 3.0


def find_roster(
    make_env: Callable[[], Any],
    max_agents: int | Mapping[str, int] | None = None,
    flatten: bool = False,
    joint: bool | None = None,
) -> Roster:
    """Find out who can be in an environment.

    Ids are those that the environment declares, in `possible_agents`, `agents`, `_agent_ids` or the
    keys of its spaces; else those that appear while it is tried out with random actions. With
    `max_agents` ids mean nothing but what they begin with, and whoever appears takes a free slot.

    Args:
        make_env: makes one environment.
        max_agents: the most who live at once, in all or by what their ids begin with.
        flatten: write all observations as vectors.
        joint: as in `read_spaces`.

    Raises:
        ValueError: If there are no spaces, ids never end, or as `read_spaces`.
    """
    env = make_env()
    for method in ("reset", "step"):
        if not callable(getattr(env, method, None)):
            raise ValueError(
                "expected an environment with the methods reset and step, as RLlib's MultiAgentEnv "
                f"has them, but {env!r} has no {method}"
            )
    first = _Trial(env, joint)
    first.play(EPISODES)
    possible = _ids(getattr(env, "possible_agents", None))
    if max_agents is None:
        ids = _declared(env, first.spaces) or first.settled_ids()
        own = {agent: first.spaces.get(agent) or spaces_of(env, agent) for agent in ids}
        names, slots, kinds = tuple(map(str, ids)), {a: i for i, a in enumerate(ids)}, {}
        if len(set(names)) < len(names):
            raise ValueError(f"two of the agent ids {ids} are the same word")
    else:
        names, kinds = _places(max_agents)
        own = {}
        for kind, places in kinds.items():
            spaces = first.spaces_of_kind(kind, kinds)
            own.update({names[slot]: spaces for slot in places})
        slots = None
    return Roster(
        names=names,
        spaces=read_spaces(own, flatten, joint),
        slots=slots,
        kinds=kinds,
        lists_agents=bool(possible) and _ids(getattr(env, "agents", None)) is not None,
        draws_from_random=first.draws_from_random,
    )


def spaces_of(env: Any, agent: Hashable) -> tuple[Any, Any]:
    """Find an agent's observation space and action space.

    Raises:
        ValueError: If the environment reports none.
    """
    found = []
    for what in ("observation", "action"):
        by_agent, single = getattr(env, f"{what}_spaces", None), getattr(env, f"{what}_space", None)
        getter = getattr(env, f"get_{what}_space", None)
        parts = _parts(by_agent)
        space = parts.get(agent) if parts else None
        if space is None and callable(getter):
            space = getter(agent)
        if space is None:
            parts = _parts(single)
            space = parts[agent] if parts and agent in parts else single
        if space is None or callable(space):
            raise ValueError(
                f"agent {agent!r} has no {what} space; set {what}_spaces by agent, or "
                f"{what}_space for all"
            )
        found.append(as_gymnasium(agent, space))
    return found[0], found[1]


class _Trial:
    """One environment that is tried out with random legal actions.

    Attributes:
        spaces: by agent id, its observation space and its action space.
        draws_from_random: whether Python's global generator was used.
    """

    def __init__(self, env: Any, joint: bool | None) -> None:
        self._joint = joint
        self.spaces: dict[Hashable, tuple[Any, Any]] = {}
        self.draws_from_random = False
        self._env = env
        self._raw = RawEnv(env, OwnRandomness(python=False))
        self._episodes: list[set[Hashable]] = []
        self._read: dict[Hashable, AgentSpaces] = {}
        self._most = 0
        self._rng = np.random.default_rng(0)

    def play(self, num_episodes: int) -> None:
        """Play some episodes, as far as time allows."""
        until, steps = time.monotonic() + SECONDS, 0
        with generators_kept():
            for episode in range(num_episodes):
                random.seed(episode)
                fresh = random.getstate()
                seen, infos = self._raw.reset(episode)
                self._episodes.append(set())
                living = self._meet(seen, set())
                over = False
                while not over and steps < STEPS and time.monotonic() < until:
                    actions = {a: self._draw(a, row, infos.get(a)) for a, row in seen.items()}
                    *found, infos = self._raw.step(actions)
                    steps += 1
                    seen, ends = found[0], {**_true(found[2]), **_true(found[3])}
                    living = self._meet(seen, living) - ends.keys()
                    over = ALL in ends or not living
                    seen = {a: row for a, row in seen.items() if a not in ends}
                self.draws_from_random |= random.getstate() != fresh
                if not over:
                    break

    def settled_ids(self) -> tuple[Hashable, ...]:
        """List the ids that appeared, in the order in which they did.

        Raises:
            ValueError: If there were none, or new ones in every episode.
        """
        if not self.spaces:
            raise ValueError("no agent was observed; declare the ids in possible_agents")
        early = set().union(*self._episodes[: (len(self._episodes) + 1) // 2])
        if len(self.spaces) > len(early):
            shown = ", ".join(map(repr, [*self.spaces][:3]))
            raise ValueError(
                f"agent ids have no end ({shown}, ..., {len(self.spaces)} of them in "
                f"{len(self._episodes)} episodes): give max_agents=, the most who live at once; "
                f"here these were {self._most}"
            )
        return tuple(self.spaces)

    def spaces_of_kind(self, kind: str, kinds: Mapping[str, Any]) -> tuple[Any, Any]:
        """Find the spaces of the agents whose ids begin so."""
        for agent, spaces in self.spaces.items():
            if kind_of(agent, kinds) == kind:
                return spaces
        return spaces_of(self._env, f"{kind}_0")

    def _meet(self, seen: Mapping[Any, Any], living: set[Hashable]) -> set[Hashable]:
        for agent in seen:
            self._episodes[-1].add(agent)
            if agent not in self.spaces:
                self.spaces[agent] = spaces_of(self._env, agent)
                # Whether `joint` has an effect is asked of all agents together, later.
                (own,) = read_spaces({agent: self.spaces[agent]})
                self._read[agent] = dataclasses.replace(own, joint=self._joint)
        living = living | seen.keys()
        self._most = max(self._most, len(living))
        return living

    def _draw(self, agent: Hashable, seen: Any, info: Any) -> Any:
        return self._read[agent].draw(self._rng, seen, info)


def _true(flags: Mapping[Any, Any]) -> dict[Any, bool]:
    return {agent: True for agent, flag in flags.items() if flag}


def _declared(env: Any, seen: Mapping[Hashable, Any]) -> tuple[Hashable, ...]:
    """List the ids that an environment declares, if whoever appeared is among them."""
    places = [getattr(env, name, None) for name in ("possible_agents", "agents", "_agent_ids")]
    for name in ("observation_spaces", "observation_space"):
        parts = _parts(getattr(env, name, None))
        places.append(None if parts is None else list(parts))
    for place in places:
        ids = _ids(place)
        if ids and seen.keys() <= set(ids):
            return ids
    return ()


def _ids(value: Any) -> tuple[Hashable, ...] | None:
    """Return agent ids as they stand in a list or a set; None for anything else."""
    if not isinstance(value, list | tuple | set | frozenset):
        return None
    if not all(isinstance(agent, str | int | tuple) for agent in value):
        return None
    if isinstance(value, set | frozenset):
        return tuple(sorted(value, key=lambda agent: (str(type(agent)), agent)))
    return tuple(value)


def _parts(space: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dictionary of spaces, one of Gym or Gymnasium or a plain one."""
    parts = getattr(space, "spaces", space)
    return parts if isinstance(parts, Mapping) else None


def _places(
    max_agents: int | Mapping[str, int],
) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Name the slots, and tell which are whose by what ids begin with."""
    counts = {"": max_agents} if isinstance(max_agents, int) else dict(max_agents)
    names: list[str] = []
    kinds = {}
    for kind, count in counts.items():
        stem = kind.rstrip("_-. ") or "agent"
        kinds[kind] = tuple(range(len(names), len(names) + count))
        names += [stem] if kind and count == 1 else [f"{stem}_{i}" for i in range(count)]
    return tuple(names), kinds
