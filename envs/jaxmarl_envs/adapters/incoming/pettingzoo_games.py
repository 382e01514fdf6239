"""PettingZoo environments as games over a fixed axis of slots, in plain Python."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxmarl_envs.adapters.incoming.host_worker import Frame, Outcome
from jaxmarl_envs.adapters.incoming.pettingzoo_spaces import read_spaces


class SlotGame:
    """One environment whose slots are its possible agents, in their order.

    The row of an agent that does not live is what it saw last, or zeros. All actions are legal in
    the row of one that waits and has no legal action. An agent's rewards count while it lives.

    Args:
        env: a PettingZoo environment.
        max_ticks: the tick on which all who still live are truncated.
        flatten: write all observations as vectors.
    """

    def __init__(self, env: Any, max_ticks: int, flatten: bool = False) -> None:
        self.env, self.max_ticks = env, max_ticks
        self.agents = tuple(env.possible_agents)
        self.spaces = read_spaces(env, flatten)
        self._slots = {agent: slot for slot, agent in enumerate(self.agents)}
        widest = np.max([s.observation.shape for s in self.spaces], axis=0)
        num_actions = max(s.num_actions for s in self.spaces)
        self._features = np.zeros((len(self.agents), *widest), np.float32)
        self._legal = np.zeros((len(self.agents), num_actions), bool)
        self._alive = self._acting = np.zeros(len(self.agents), bool)
        self._time = 0

    def reset(self, seed: int) -> Frame:
        """Begin an episode with a seed and return what all slots see."""
        self._time = 0
        self._features[:] = 0
        for slot, spaces in enumerate(self.spaces):
            self._legal[slot, : spaces.num_actions] = True
        self._begin(seed)
        return self._frame()

    def step(self, action: np.ndarray) -> tuple[Frame, Outcome]:
        """Advance one tick; an episode that is over stands still.

        `action` is `[A]` int or `[A, N]` float.
        """
        num_agents = len(self.agents)
        outcome = Outcome(np.zeros(num_agents, np.float32), *np.zeros((2, num_agents), bool))
        if not self._alive.any():
            return self._frame(), outcome
        self._time += 1
        before = self._alive
        self._advance(action, outcome)
        outcome.reward[~before] = 0
        ended = outcome.terminated | outcome.truncated
        for slot in np.flatnonzero(before & ~ended & ~self._alive):
            raise ValueError(
                f"agent {self.agents[slot]!r} left the environment and is neither terminated nor "
                "truncated"
            )
        if self._time >= self.max_ticks:
            outcome.truncated[before & ~ended] = True
            self._alive = self._acting = np.zeros(num_agents, bool)
        return self._frame(), outcome

    def _begin(self, seed: int) -> None:
        raise NotImplementedError

    def _advance(self, action: np.ndarray, outcome: Outcome) -> None:
        """Play a tick: fill the outcome in, and show what everyone sees then."""
        raise NotImplementedError

    def _frame(self) -> Frame:
        return Frame(
            self._features.copy(), self._legal.copy(), self._alive.copy(), self._acting.copy()
        )

    def _slot(self, agent: Any) -> int:
        if agent not in self._slots:
            raise ValueError(
                f"agent {agent!r} is none of the possible agents {', '.join(map(str, self.agents))}"
            )
        return self._slots[agent]

    def _show(self, agent: Any, seen: Any, info: Mapping[str, Any] | None, acts: bool) -> None:
        slot = self._slot(agent)
        spaces = self.spaces[slot]
        own = (slot, *map(slice, spaces.observation.shape))
        self._features[own] = spaces.features(seen)
        legal = spaces.legal(seen, info)
        self._legal[slot, : legal.size] = legal | (not acts and not legal.any())

    def _slots_of(self, agents: Any) -> np.ndarray:
        """Tell which slots hold one of `agents`, `[A]` bool."""
        found = np.zeros(len(self.agents), bool)
        found[[self._slot(agent) for agent in agents]] = True
        return found


class ParallelGame(SlotGame):
    """A `ParallelEnv`: all who live act at every tick.

    An agent that is terminated or truncated does not live any more, whether or not the environment
    keeps it among its agents for a while.
    """

    def _begin(self, seed: int) -> None:
        observations, infos = self.env.reset(seed=seed)
        self._alive = self._acting = self._slots_of(self.env.agents)
        self._show_all(observations, infos)

    def _advance(self, action: np.ndarray, outcome: Outcome) -> None:
        actions = {}
        for agent in self.env.agents:
            slot = self._slot(agent)
            actions[agent] = self.spaces[slot].own(action[slot])
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        for agent, reward in rewards.items():
            outcome.reward[self._slot(agent)] = reward
        ended = np.zeros(len(self.agents), bool)
        for flags, edges in ((terminations, outcome.terminated), (truncations, outcome.truncated)):
            flagged = self._slots_of([agent for agent, flag in flags.items() if flag])
            edges[:] = flagged & self._alive
            ended |= flagged
        self._alive = self._acting = self._slots_of(self.env.agents) & ~ended
        self._show_all(observations, infos)

    def _show_all(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for agent, seen in observations.items():
            self._show(agent, seen, infos.get(agent), acts=bool(self._acting[self._slot(agent)]))
        for slot in np.flatnonzero(self._alive):
            if self.agents[slot] not in observations:
                raise ValueError(f"agent {self.agents[slot]!r} is there and observes nothing")


class AECGame(SlotGame):
    """An `AECEnv`: the selected agent acts, the others wait.

    A tick is one action and after it the removal of those whose end has come, for which PettingZoo
    wants a `None` each. A life ends as its agent is removed, so an agent that is flagged earlier
    still earns what comes until then. What it sees last is what it observes before its removal.
    """

    def _begin(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self._look()

    def _advance(self, action: np.ndarray, outcome: Outcome) -> None:
        env = self.env
        slot = self._slot(env.agent_selection)
        env.step(self.spaces[slot].own(action[slot]))
        for agent, reward in env.rewards.items():
            outcome.reward[self._slot(agent)] = reward
        while env.agents and self._is_over(env.agent_selection):
            self._remove(env.agent_selection, outcome)
        gone = self._alive & ~self._slots_of(env.agents)
        for slot in np.flatnonzero(gone & ~outcome.terminated & ~outcome.truncated):
            self._note_end(self.agents[slot], outcome)
        self._look()

    def _is_over(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _note_end(self, agent: Any, outcome: Outcome) -> None:
        slot = self._slot(agent)
        outcome.terminated[slot] = self.env.terminations.get(agent, False)
        outcome.truncated[slot] = self.env.truncations.get(agent, False)

    def _remove(self, agent: Any, outcome: Outcome) -> None:
        self._note_end(agent, outcome)
        self._show(agent, self.env.observe(agent), self.env.infos.get(agent), acts=False)
        self.env.step(None)
        if agent in self.env.agents:
            raise ValueError(f"agent {agent!r} is over and still there after its step with None")

    def _look(self) -> None:
        env = self.env
        self._alive = self._slots_of(env.agents)
        self._acting = self._slots_of([env.agent_selection] if env.agents else [])
        for agent in env.agents:
            acts = agent == env.agent_selection
            self._show(agent, env.observe(agent), env.infos.get(agent), acts)
