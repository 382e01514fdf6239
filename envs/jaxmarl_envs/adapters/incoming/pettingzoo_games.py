"""PettingZoo environments as games over a fixed axis of slots: one for each possible agent."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import read_spaces
from jaxmarl_envs.adapters.incoming.host_rows import GameStep
from jaxmarl_envs.adapters.incoming.host_worker import all_true, any_true
from jaxmarl_envs.adapters.incoming.returned import (
    check_by_agent,
    check_reset,
    check_step_by_agent,
)
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame, Slots, flag, flags, numbers

# Of how many lists of agents the slots are remembered: the same ones come again at every step.
MOST_KNOWN = 64


def in_order(possible_agents: Iterable[Any]) -> tuple[Any, ...]:
    """List the possible agents; those of a set, whose order differs by process, by name."""
    is_set = isinstance(possible_agents, Set)
    return tuple(sorted(possible_agents, key=str) if is_set else possible_agents)


class PettingZooGame(SlotGame):
    """A PettingZoo environment; an agent's life ends by a flag, and never without one.

    Args:
        env: the environment.
        horizon: the step at which all who still live are truncated; None for no such limit.
        flatten: write all observations as vectors.
        joint: as in `read_spaces`.
        agents: the possible agents in the order of the slots; None for the environment's own order.

    Raises:
        ValueError: If the possible agents are others than `agents`.
    """

    def __init__(
        self,
        env: Any,
        horizon: int | None,
        flatten: bool = False,
        joint: bool | None = None,
        agents: Sequence[Any] | None = None,
    ) -> None:
        possible = in_order(env.possible_agents)
        agents = possible if agents is None else agents
        if set(possible) != set(agents):
            raise ValueError(
                "one object of the environment has the possible agents "
                f"{', '.join(map(str, agents))}, and another one {', '.join(map(str, possible))}; "
                "all must have the same"
            )
        own = {a: (env.observation_space(a), env.action_space(a)) for a in agents}
        super().__init__(env, agents, read_spaces(own, flatten, joint), horizon)
        self._slots = {agent: slot for slot, agent in enumerate(agents)}
        self._known_slots: dict[tuple[Any, ...], Slots] = {}  # by agents in their order

    @property
    def own_name(self) -> str:
        """Return what the environment is called."""
        return str(self.env)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        before = self._alive
        self._play(action, outcome)
        left = before & ~(outcome.terminated | outcome.truncated | self._alive)
        if any_true(left):
            raise ValueError(
                f"agent {self.names[left.argmax()]!r} left the environment and is neither "
                "terminated nor truncated"
            )

    def _play(self, action: np.ndarray, outcome: GameStep) -> None:
        raise NotImplementedError

    def _slot(self, agent: Any) -> int:
        if agent not in self._slots:
            raise ValueError(
                f"agent {agent!r} is none of the possible agents {', '.join(map(str, self.names))}"
            )
        return self._slots[agent]

    def _slots_of(self, agents: Iterable[Any]) -> Slots:
        """Return the slots of `agents`, in their order."""
        agents = tuple(agents)
        known = self._known_slots.get(agents)
        if known is None:
            if len(self._known_slots) == MOST_KNOWN:
                self._known_slots.clear()
            known = Slots.of([self._slot(agent) for agent in agents], len(self.names))
            self._known_slots[agents] = known
        return known


class ParallelGame(PettingZooGame):
    """A `ParallelEnv`: all who live and are observed act; one that is not observed waits.

    An agent that is terminated or truncated does not live any more, whether or not the environment
    keeps it among its agents for a while.
    """

    def _begin(self, seed: int) -> None:
        observations, infos = found = check_reset(self.env.reset(seed=seed))
        check_by_agent("reset", ("observations", "infos"), found)
        self._alive = self._slots_of(self.env.agents).held
        self._look(observations, infos)

    def _play(self, action: np.ndarray, outcome: GameStep) -> None:
        who: Sequence[Any] = tuple(self.env.agents)
        slots = self._slots_of(who)
        numbered = slots.numbers
        if not all_true(self._acting[slots.where]):
            acting = self._acting.tolist()
            who = [agent for agent, slot in zip(who, numbered, strict=True) if acting[slot]]
            numbered = [slot for slot in numbered if acting[slot]]
        actions = dict(zip(who, self._own_all(action, numbered), strict=True))
        observations, rewards, terminations, truncations, infos = check_step_by_agent(
            self.env.step(actions)
        )
        outcome.reward[self._slots_of(rewards).where] = numbers(rewards)
        ended = np.zeros(len(self.names), bool)
        both = (
            ("terminated", terminations, outcome.terminated),
            ("truncated", truncations, outcome.truncated),
        )
        for name, ends, edges in both:
            raised = flags(name, ends)
            slots = self._slots_of(ends)
            if any_true(raised):
                flagged = np.zeros(len(self.names), bool)
                flagged[slots.where] = raised
                edges[...] = flagged & self._alive
                ended |= flagged
        slots = self._slots_of(infos)
        if any(infos.values()):
            for slot, info in zip(slots.numbers, infos.values(), strict=True):
                if info:
                    self._note(slot, info, outcome)
        self._alive = self._slots_of(self.env.agents).held & ~ended
        self._look(observations, infos)

    def _look(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        slots = self._slots_of(observations)
        self._acting = self._alive & slots.held
        own_infos = list(map(infos.get, observations)) if any(infos.values()) else None
        self._show_all(slots, list(observations.values()), own_infos)


class AECGame(PettingZooGame):
    """An `AECEnv`: the selected agent acts, the others wait.

    A step is one action and after it the removal of those whose end has come, for which PettingZoo
    wants a `None` each. A life ends as its agent is removed, so an agent that is flagged earlier
    still earns what comes until then. What it sees last is what it observes before its removal.
    Metrics are read where `env.last()` has them: as the agent is selected after an action of its
    own, or removed.
    """

    @property
    def max_actors(self) -> int:
        """Return 1: agents take turns."""
        return 1

    def _begin(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self._acted: set[Any] = set()
        self._look(ended=np.zeros(len(self.names), bool))

    def _play(self, action: np.ndarray, outcome: GameStep) -> None:
        env = self.env
        slot = self._slot(env.agent_selection)
        self._acted.add(env.agent_selection)
        env.step(self._own(action, slot))
        outcome.reward[self._slots_of(env.rewards).where] = numbers(env.rewards)
        while env.agents and self._is_over(env.agent_selection):
            self._remove(env.agent_selection, outcome)
        gone = self._alive & ~self._slots_of(env.agents).held
        for slot in np.flatnonzero(gone & ~outcome.terminated & ~outcome.truncated):
            self._note_end(self.names[slot], outcome)
        if env.agents:
            self._note_info(env.agent_selection, outcome)
        self._look(outcome.terminated | outcome.truncated)

    def _note_info(self, agent: Any, outcome: GameStep) -> None:
        if agent in self._acted:
            self._note(self._slot(agent), self.env.infos.get(agent), outcome)

    def _is_over(self, agent: Any) -> bool:
        terminated, truncated = self.env.terminations[agent], self.env.truncations[agent]
        return flag(agent, "terminated", terminated) or flag(agent, "truncated", truncated)

    def _note_end(self, agent: Any, outcome: GameStep) -> None:
        slot = self._slot(agent)
        outcome.terminated[slot] = self.env.terminations.get(agent, False)
        outcome.truncated[slot] = self.env.truncations.get(agent, False)

    def _remove(self, agent: Any, outcome: GameStep) -> None:
        self._note_end(agent, outcome)
        self._note_info(agent, outcome)
        slot = self._slot(agent)
        self._show(slot, self.env.observe(agent), self.env.infos.get(agent), acts=False)
        self.env.step(None)
        if agent in self.env.agents:
            raise ValueError(f"agent {agent!r} is over and still there after its step with None")

    def _look(self, ended: np.ndarray) -> None:
        """Show what everyone sees, with some whose lives `ended` perhaps back already."""
        env = self.env
        self._alive = self._slots_of(env.agents).held
        self._acting = self._slots_of([env.agent_selection] if env.agents else []).held
        if any_true(self._alive & ended):
            self._keep_final()
        for agent in env.agents:
            slot = self._slot(agent)
            acts = agent == env.agent_selection
            self._show(slot, env.observe(agent), env.infos.get(agent), acts)
