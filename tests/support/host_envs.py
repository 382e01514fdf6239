"""Tiny PettingZoo environments, whose processes need to import nothing else."""

import os
import time
from typing import ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from jaxmarl_envs.adapters.incoming.trial import SEEDS


def flat(size):
    return spaces.Box(-100.0, 100.0, (size,), np.float64)


class Leavers(ParallelEnv):
    """`a` is terminated at step 2, `b` truncated at step 4; `c` comes at step 1, ends at step 4.

    All see the step, the sum of a draw at reset and of all actions, and a draw of every step. `b`
    sees a fourth number and may not play its second action at odd steps. An agent earns its action
    and the last draw.
    """

    metadata: ClassVar = {"name": "leavers"}
    possible_agents: ClassVar = ["a", "b", "c"]
    lives: ClassVar = {"a": (0, 2), "b": (0, 4), "c": (1, 4)}

    def observation_space(self, agent):
        return flat(4 if agent == "b" else 3)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1) if agent == "b" else spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.time, self.played, self.drawn = 0, self.rng.random(), 0.0
        self.agents = ["a", "b"]
        return self._see(self.agents), self._inform(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(self.action_space(agent).contains(x) for agent, x in actions.items())
        self.time, self.drawn = self.time + 1, self.rng.random()
        self.played += sum(actions.values())
        before = self.agents
        ended = {agent: self.time == self.lives[agent][1] for agent in before}
        self.agents = [agent for agent in before if not ended[agent]]
        self.agents += [agent for agent, life in self.lives.items() if life[0] == self.time]
        everyone = [*before, *(agent for agent in self.agents if agent not in before)]
        return (
            self._see(everyone),
            {agent: actions[agent] + self.drawn for agent in before},
            {agent: ended[agent] and agent != "b" for agent in before},
            {agent: ended[agent] and agent == "b" for agent in before},
            self._inform(everyone),
        )

    def _see(self, agents):
        seen = [self.time, self.played, self.drawn, 7.0]
        return {agent: np.array(seen[: 4 if agent == "b" else 3]) for agent in agents}

    def _inform(self, agents):
        mask = np.array([1, self.time % 2 == 0, 1], np.int8)
        return {agent: {"action_mask": mask} if agent == "b" else {} for agent in agents}

    def close(self):
        pass


class Rounds(AECEnv):
    """The turns are x y z y y y; an action pays its number, and a tenth of it to all others.

    `x` is terminated by its own action and gone at once. `z` is truncated by its own, but gone only
    as its turn comes again, at step 4, and paid until then. `y` is terminated by its last one.
    """

    metadata: ClassVar = {"name": "rounds"}
    possible_agents: ClassVar = ["x", "y", "z"]

    def observation_space(self, agent):
        return flat(2)

    def action_space(self, agent):
        return spaces.Discrete(4)

    def observe(self, agent):
        return np.array([self.num_turns, self.possible_agents.index(agent)], np.float64)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.agent_selection = "x"
        self.num_turns = 0

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents and self.agent_selection not in self.agents:
                self.agent_selection = self.agents[0]
            return
        self.num_turns += 1
        self._cumulative_rewards[agent] = 0.0
        self.rewards = dict.fromkeys(self.agents, action / 10)
        self.rewards[agent] = float(action)
        self._accumulate_rewards()
        following = {"x": "y", "y": "z" if "z" in self.agents else "y", "z": "y"}
        self.agent_selection = following[agent]
        if self.num_turns == 1:
            self.terminations["x"] = True
            self._deads_step_first()
        if self.num_turns == 3:
            self.truncations["z"] = True
        if self.num_turns == 6:
            self.terminations["y"] = True

    def close(self):
        pass


class Respawning(Rounds):
    """The first action truncates `x` and `y`; as `y` is removed after `x`, `x` comes back."""

    def step(self, action):
        agent = self.agent_selection
        if not (self.terminations[agent] or self.truncations[agent]):
            if self.num_turns:
                self.terminations = dict.fromkeys(self.agents, True)
            else:
                self.truncations.update(x=True, y=True)
            return
        self._was_dead_step(action)
        self.num_turns += 1
        if agent == "y":
            self.agents.insert(0, "x")
            self.rewards["x"] = self._cumulative_rewards["x"] = 0.0
            self.terminations["x"] = self.truncations["x"] = False
            self.infos["x"] = {}
        if self.agents:
            self.agent_selection = self.agents[0]


class Camera(ParallelEnv):
    """One agent, an image and a continuous action; the reward is the sum of what was played."""

    metadata: ClassVar = {"name": "camera"}
    possible_agents: ClassVar = ["eye"]

    def observation_space(self, agent):
        return spaces.Box(0, 255, (4, 3, 2), np.uint8)

    def action_space(self, agent):
        return spaces.Box(np.array([[-2.0, 0.0]]), np.array([[2.0, 0.5]]), (1, 2), np.float64)

    def reset(self, seed=None, options=None):
        self.agents = ["eye"]
        self.rng, self.time = np.random.default_rng(seed), 0
        self.image = self.rng.integers(256, size=(4, 3, 2), dtype=np.uint8)
        return {"eye": self.image}, {"eye": {}}

    def step(self, actions):
        action = actions["eye"]
        assert self.action_space("eye").contains(action)
        self.time += 1
        self.image = self.rng.integers(256, size=(4, 3, 2), dtype=np.uint8)
        over = self.time == 5
        self.agents = [] if over else ["eye"]
        return (
            {"eye": self.image},
            {"eye": float(action.sum())},
            {"eye": False},
            {"eye": over},
            {"eye": {}},
        )

    def close(self):
        pass


class Endless(Leavers):
    """Nobody comes and nobody goes; what happens at step 3 is `event`.

    `counts` gets a "reset" and a "step" for each, and an entry for every environment made.
    """

    metadata: ClassVar = {"name": "endless"}
    possible_agents: ClassVar = ["a", "b"]
    lives: ClassVar = {"a": (0, -1), "b": (0, -1)}

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, super().observation_space(agent).shape, np.float64)

    def __init__(self, event="nothing", counts=None):
        self.event = event
        self.counts = [] if counts is None else counts
        self.counts.append("made")

    def reset(self, seed=None, options=None):
        self.is_tried = seed in SEEDS
        self.counts.append("reset")
        return super().reset(None if self.event == "ignore the seed" else seed)

    def step(self, actions):
        self.counts.append("step")
        observations, rewards, *rest = super().step(actions)
        if self.time == 3 and not self.is_tried:
            if self.event == "raise":
                raise KeyError("no such lane")
            if self.event == "exit":
                os._exit(3)
            if self.event == "print":
                print("a line of its own")
            if self.event == "leave":
                self.agents = ["a"]
        return observations, rewards, *rest


class Eventful(Endless):
    """Calls `on_step` with itself at step 3, and `on_reset` at every reset."""

    metadata: ClassVar = {"name": "eventful"}

    def __init__(self, on_step=None, on_reset=None):
        super().__init__()
        self.on_step, self.on_reset = on_step, on_reset

    def reset(self, seed=None, options=None):
        self.seed = seed
        if self.on_reset is not None and seed not in SEEDS:
            self.on_reset(self)
        return super().reset(seed)

    def step(self, actions):
        if self.time == 2 and self.on_step is not None and not self.is_tried:
            self.on_step(self)
        return super().step(actions)


def hang_on_seed_8(env):
    """Do so for as long as any test lasts."""
    if env.seed == 8:
        time.sleep(300)


def fail_on_seed_8(env):
    """Do so, and not in other episodes."""
    if env.seed == 8:
        raise RuntimeError("no fuel")


def ask_for_a_name(env):
    """Do what an environment should leave alone."""
    input("name? ")


class Dozing(Endless):
    """`b` is not observed at odd steps, and what it does at the next one is its first action."""

    def step(self, actions):
        assert set(actions) == ({"a"} if self.time % 2 else {"a", "b"})
        observations, *rest = super().step({"b": 1, **actions})
        if self.time % 2:
            del observations["b"]
        return observations, *rest
