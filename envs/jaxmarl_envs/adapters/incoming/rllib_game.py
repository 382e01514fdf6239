"""RLlib's multi-agent environments as games over a fixed axis of slots, in plain Python."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import AgentSpaces
from jaxmarl_envs.adapters.incoming.host_rows import GameStep
from jaxmarl_envs.adapters.incoming.own_randomness import OwnRandomness
from jaxmarl_envs.adapters.incoming.returned import check_by_agent, shown, takes_seed
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame, flag, number

ALL = "__all__"
_OF_STEP = ("observations", "rewards", "terminateds", "truncateds")
_HINT = '; an environment of one agent comes in by make("gymnasium", ...)'


@dataclass(frozen=True)
class Roster:
    """Agents that can be in an environment, and its properties as found by trying it out.

    Attributes:
        names: of the slots.
        spaces: of whoever is in a slot.
        slots: by agent id, its slot; None where ids are not known beforehand.
        kinds: for ids that are not known, by what they begin with, the slots that they may take.
        lists_agents: whether the environment's `agents` says who lives.
        draws_from_random: whether it draws from Python's global generator.
    """

    names: tuple[str, ...]
    spaces: tuple[AgentSpaces, ...]
    slots: Mapping[Hashable, int] | None
    kinds: Mapping[str, tuple[int, ...]]
    lists_agents: bool
    draws_from_random: bool


class RawEnv:
    """An environment as its class has it, through the one interface of today's RLlib.

    Classes of earlier versions return observations alone from `reset`, four dictionaries from
    `step`, and take no seed.
    """

    def __init__(self, env: Any, randomness: OwnRandomness) -> None:
        self.env, self._randomness = env, randomness
        self._takes_seed = takes_seed(env)

    def reset(self, seed: int) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Begin an episode; return observations and infos by agent id.

        Raises:
            ValueError: If the result is not a dictionary by agent.
        """
        self._randomness.seed(seed)
        self._randomness.take_turn()
        if self._takes_seed:
            found = self.env.reset(seed=seed)
        else:
            if callable(getattr(self.env, "seed", None)):
                self.env.seed(seed)
            found = self.env.reset()
        both = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        seen: Any = both[0]
        infos: Any = both[1]
        check_by_agent("reset", _OF_STEP[:1], [seen], _HINT)
        return seen, infos if isinstance(infos, Mapping) else {}

    def step(self, actions: dict[Any, Any]) -> tuple[Mapping[Any, Any], ...]:
        """Play a step.

        Returns:
            Observations, rewards, terminateds, truncateds and infos, by agent id.

        Raises:
            ValueError: If the result is not four or five dictionaries by agent.
        """
        self._randomness.take_turn()
        found = self.env.step(actions)
        if not isinstance(found, tuple) or len(found) not in (4, 5):
            raise ValueError(
                f"step returns {shown(found)}; expected (observations, rewards, terminateds, "
                "truncateds, infos), dictionaries by agent"
            )
        infos = found[-1] if isinstance(found[-1], (dict, Mapping)) else {}
        seen, rewards, terminateds, truncateds = found[:4] if len(found) == 5 else (*found[:3], {})
        check_by_agent("step", _OF_STEP, (seen, rewards, terminateds, truncateds), _HINT)
        terminateds = _flags("terminated", terminateds)
        truncateds = _flags("truncated", truncateds)
        if len(found) == 4:
            truncateds = {a: True for a in terminateds if _by_time_limit(infos.get(a))}
            terminateds = {a: flag for a, flag in terminateds.items() if a not in truncateds}
        return seen, rewards, terminateds, truncateds, infos


class MultiAgentGame(SlotGame):
    """A `MultiAgentEnv` of RLlib: who is in the dictionary of observations acts, the others wait.

    An agent lives from the reset on, or from when it is first observed where ids are not known
    beforehand or the environment lists who is there; until it is flagged in `terminateds` or
    `truncateds`, or `"__all__"` is.

    Args:
        env: the environment.
        roster: who can be in it.
        horizon: the step at which all who still live are truncated; None for no such limit.
    """

    def __init__(self, env: Any, roster: Roster, horizon: int | None) -> None:
        super().__init__(env, roster.names, roster.spaces, horizon)
        self.roster = roster
        self._raw = RawEnv(env, OwnRandomness(roster.draws_from_random))
        self._slots: dict[Hashable, int] = {}  # of everyone who lives
        self._living = (), self._alive  # these slots, and the same as [A] bool
        self._met: set[Hashable] = set()  # everyone who lives or lived in this episode

    def _begin(self, seed: int) -> None:
        seen, infos = self._raw.reset(seed)
        self._slots, self._met = {}, set()
        listed = self._listed() if self.roster.lists_agents else self.roster.slots or ()
        for agent in (*seen, *listed):
            self._enter(agent, freed=())
        if not self._slots:
            raise ValueError("reset observes nobody; declare the ids in possible_agents")
        self._look(seen, infos)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        slots, acting = self._slots, self._acting.tolist()
        who = {agent: slot for agent, slot in slots.items() if acting[slot]}
        actions = dict(zip(who, self._own_all(action, who.values()), strict=True))
        seen, rewards, terminateds, truncateds, infos = self._raw.step(actions)
        paid = [0.0] * len(self.names)
        for agent, reward in rewards.items():
            slot = slots.get(agent)
            if reward is None:
                continue
            own = reward if type(reward) is float else number(agent, reward)
            if slot is not None:
                paid[slot] = own
            elif own != 0:
                self._warn_of_loss(agent, own)
        outcome.reward[...] = paid
        for agent, info in infos.items():
            if agent in slots:
                self._note(slots[agent], info, outcome)
        ended = self._note_ends(terminateds, truncateds, outcome)
        for agent, slot in ended.items():
            if agent in seen:
                self._show(slot, seen[agent], infos.get(agent), acts=False)
            del slots[agent]
        if _flag(terminateds, ALL) or _flag(truncateds, ALL):
            seen = {}
        else:
            if ended:
                seen = {a: row for a, row in seen.items() if a not in ended}
            self._admit(seen, terminateds, truncateds, ended)
        self._look(seen, infos)

    def _note_ends(
        self,
        terminateds: Mapping[Any, Any],
        truncateds: Mapping[Any, Any],
        outcome: GameStep,
    ) -> dict[Hashable, int]:
        """Fill in whose lives end, and return their slots."""
        ended: dict[Hashable, int] = {}
        if not any(terminateds.values()) and not any(truncateds.values()):
            return ended
        all_terminated, all_truncated = (
            _flag(terminateds, ALL),
            _flag(truncateds, ALL),
        )
        for agent, slot in self._slots.items():
            own = _flag(terminateds, agent), _flag(truncateds, agent)
            # An agent's own flag takes precedence over that for all.
            terminated, truncated = own if any(own) else (all_terminated, all_truncated)
            outcome.terminated[slot], outcome.truncated[slot] = terminated, truncated
            if terminated or truncated:
                ended[agent] = slot
        return ended

    def _admit(
        self,
        seen: Mapping[Any, Any],
        terminateds: Mapping[Any, Any],
        truncateds: Mapping[Any, Any],
        ended: Mapping[Hashable, int],
    ) -> None:
        """Let those enter who are there and were not before."""
        listed = self._listed()
        if seen.keys() <= self._slots.keys() and self._met.issuperset(listed):
            return
        # Many list all agents for ever: who is listed and has lived before does not live again.
        listed = [agent for agent in listed if agent not in self._met]
        for agent in (*seen, *listed):
            known = agent in self._slots
            if not (known or _flag(terminateds, agent) or _flag(truncateds, agent)):
                self._enter(agent, freed=tuple(ended.values()))

    def _listed(self) -> tuple[Any, ...]:
        return tuple(self.env.agents) if self.roster.lists_agents else ()

    def _enter(self, agent: Hashable, freed: tuple[int, ...]) -> None:
        """Assign a slot to an agent, preferably none that became free at this step (`freed`)."""
        if agent in self._slots:
            return
        slot = self._free_slot(agent, freed)
        if slot in freed and self._final is None:
            self._keep_final()
        self._slots[agent] = slot
        self._met.add(agent)
        self._features[slot] = 0
        self._legal[slot] = self.layout.exists[slot]

    def _free_slot(self, agent: Hashable, freed: tuple[int, ...]) -> int:
        known = self.roster.slots
        if known is not None:
            if agent not in known:
                raise ValueError(
                    f"agent {agent!r} appears, which is none of {', '.join(map(str, known))}; "
                    "name all in possible_agents, or give max_agents=, the most who live at once"
                )
            return known[agent]
        kind = kind_of(agent, self.roster.kinds)
        if kind is None:
            raise ValueError(
                f"agent {agent!r} appears, whose id begins with none of the kinds of max_agents: "
                f"{', '.join(self.roster.kinds)}"
            )
        taken, slots = set(self._slots.values()), self.roster.kinds[kind]
        free = [slot for slot in slots if slot not in taken]
        if not free:
            there = [a for a, slot in self._slots.items() if slot in slots]
            what = f"of {kind!r} " if kind else ""
            raise ValueError(
                f"agent {agent!r} is one more than the max_agents={len(slots)} {what}who may live "
                f"at once: {', '.join(map(repr, there))} do"
            )
        return min(free, key=lambda slot: (slot in freed, slot))

    def _look(self, seen: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        slots = tuple(self._slots.values())
        if slots != self._living[0]:
            alive = np.zeros(len(self.names), bool)
            alive[list(slots)] = True
            self._living = slots, alive
        acting = np.zeros(len(self.names), bool)
        for agent, own in seen.items():
            slot = self._slots.get(agent)
            if slot is not None:
                acting[slot] = True
                self._show(slot, own, infos.get(agent), True)
        self._alive, self._acting = self._living[1], acting


def kind_of(agent: Hashable, kinds: Mapping[str, Any]) -> str | None:
    """Find the longest of the kinds with which an agent's id begins."""
    fitting = [kind for kind in kinds if str(agent).startswith(kind)]
    return max(fitting, key=len) if fitting else None


def _flag(flags: Mapping[Any, Any], agent: Hashable) -> bool:
    return flags.get(agent, False)


def _flags(name: str, found: Mapping[Any, Any]) -> Mapping[Any, bool]:
    """Read flags by agent as bools."""
    for value in found.values():
        if type(value) is not bool:
            return {agent: flag(agent, name, value) for agent, value in found.items()}
    return found


def _by_time_limit(info: Any) -> bool:
    """Return whether an episode was truncated, as Gym's wrapper reported before the flag."""
    return isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated", False))
