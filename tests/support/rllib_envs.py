"""Environments as RLlib's users write them, in plain Python and without Ray."""

import os
import random

import numpy as np
from gymnasium import spaces

NUM_SHUTTLES = 6


def flat(size):
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


class Shuttles:
    """Six shuttles drive for as many steps as they chose; only those that stand are observed.

    All are paid the step, so that waiting ones are, too. Nothing is observed while all drive.
    """

    def __init__(self, config=None):
        config = config or {}
        self.length = config.get("length", 12)
        self.ids = [str(i) for i in range(NUM_SHUTTLES)]
        self.observation_space = spaces.Dict({i: flat(8) for i in self.ids})
        self.action_space = spaces.Dict({i: spaces.Discrete(3) for i in self.ids})

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.t = 0
        self.left = dict.fromkeys(self.ids, 0)
        return self._observe(), {}

    def step(self, action_dict):
        assert set(action_dict) == {i for i in self.ids if self.left[i] == 0}
        for i, action in action_dict.items():
            self.left[i] = int(action) + 1
        self.t += 1
        for i in self.ids:
            self.left[i] -= 1
        over = {"__all__": self.t >= self.length}
        return self._observe(), dict.fromkeys(self.ids, float(self.t)), over, {}, {}

    def _observe(self):
        number = np.float32(self.t)
        return {i: np.full(8, number + int(i) / 10) for i in self.ids if self.left[i] == 0}


class Duel:
    """Two players with integer ids move in turn, four moves in all; the last mover wins.

    The winner is not observed at the last step, the loser's reward comes without an observation
    of the player that earned it, and the mask rules all but one action out.
    """

    def __init__(self, config=None):
        self._agent_ids = {0, 1}
        part = {"observations": spaces.Discrete(4), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
        self.observation_space = spaces.Dict(part)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.moves = 0
        return self._see(), {}

    def step(self, action_dict):
        (player,) = action_dict
        assert player == self.moves % 2
        assert action_dict[player] == self.moves % 3
        self.moves += 1
        if self.moves == 4:
            return {0: self._row()}, {0: -1.0, 1: 1.0}, {"__all__": True}, {"__all__": False}, {}
        return self._see(), {}, {"__all__": False}, {"__all__": False}, {}

    def _see(self):
        return {self.moves % 2: self._row()}

    def _row(self):
        mask = np.eye(3, dtype=np.int8)[self.moves % 3]
        return {"observations": self.moves % 4, "action_mask": mask}


class Spawning:
    """Cars and bikes whose ids are counted on for ever; one car leaves as the next one comes.

    A car lives three steps and sees when it came and its age. The bike stays. Paid is the age.
    """

    def __init__(self, config=None):
        self.count = 0
        self.observation_space, self.action_space = flat(2), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t, self.born = 0, {}
        self.bike = f"bike_{self.count}"
        self.born[self.bike] = 0
        self._spawn()
        return self._see(), {}

    def step(self, action_dict):
        assert set(action_dict) == set(self.born)
        self.t += 1
        seen = self._see()
        rewards = {a: float(self.t - t) for a, t in self.born.items()}
        ends = {a: True for a, t in self.born.items() if a != self.bike and self.t - t == 3}
        for agent in ends:
            del self.born[agent]
        if ends:
            self._spawn()
            seen = {**self._see(), **{a: seen[a] for a in ends}}
        return seen, rewards, {**ends, "__all__": self.t == 7}, {"__all__": False}, {}

    def _spawn(self):
        self.count += 1
        self.born[f"car_{self.count}"] = self.t

    def _see(self):
        return {a: np.array([t, self.t - t], np.float32) for a, t in self.born.items()}


class Former:
    """The interface of years ago: no seed, four dictionaries, rewards of None, a time limit."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Discrete(30), spaces.Discrete(2)

    def reset(self):
        self.t = 0
        return {"a": 0, "b": 0}

    def step(self, action_dict):
        self.t += 1
        over = self.t == 4
        info = {"a": {"TimeLimit.truncated": over}, "b": {}}
        seen = dict.fromkeys(action_dict, self.t)
        return seen, {"a": 1.0, "b": None}, {"a": over, "b": over, "__all__": over}, info


class Gamblers:
    """Draws from both global generators, as many published environments do."""

    possible_agents = ("a", "b")

    def __init__(self, config=None):
        self.observation_spaces = dict.fromkeys("ab", flat(2))
        self.action_spaces = dict.fromkeys("ab", spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self._see(), {}

    def step(self, action_dict):
        self.t += 1
        rewards = {"a": random.random(), "b": np.random.normal()}  # noqa: NPY002
        return self._see(), rewards, {"__all__": self.t == 5}, {"__all__": False}, {}

    def _see(self):
        return {agent: np.array([random.random(), np.random.rand()]) for agent in "ab"}  # noqa: NPY002


class Restless(Gamblers):
    """Draws what nobody can seed."""

    def _see(self):
        return dict.fromkeys("ab", np.array([random.SystemRandom().random(), 0.0]))


class Breaking(Gamblers):
    """Fails at the third step of an episode as `how` says."""

    def __init__(self, config=None):
        super().__init__()
        self.how, self.calls = (config or {}).get("how"), 0

    def step(self, action_dict):
        self.calls += 1
        answer = super().step(action_dict)
        if self.t == 3 and self.calls > 60:
            if self.how == "raise":
                raise KeyError("no such lane")
            if self.how == "exit":
                os._exit(3)
            if self.how == "wide":
                answer[0]["b"] = np.zeros(5)
        return answer
