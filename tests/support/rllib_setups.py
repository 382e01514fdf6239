"""Five set-ups that people have trained with RLlib, as classes of their own kind, without Ray."""

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 3
LINES = [
    *(tuple(range(SIDE * row, SIDE * row + SIDE)) for row in range(SIDE)),
    *(tuple(range(column, SIDE * SIDE, SIDE)) for column in range(SIDE)),
    tuple(range(0, SIDE * SIDE, SIDE + 1)),
    tuple(range(SIDE - 1, SIDE * SIDE - 1, SIDE - 1)),
]


class ShuttleGrid:
    """Six shuttles on a ring, of which only those that are idle are observed.

    Ids are strings, a trip takes one to four steps, and a shuttle is paid as it arrives where it is
    to go.
    """

    def __init__(self, env_config=None):
        self.length = (env_config or {}).get("length", 24)
        self.agent_ids = [str(i) for i in range(6)]
        self.observation_space = spaces.Dict(
            {i: spaces.Box(-1.0, 1.0, (6,), np.float32) for i in self.agent_ids}
        )
        self.action_space = spaces.Dict({i: spaces.Discrete(3) for i in self.agent_ids})

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.t = 0
        self.at = self.rng.integers(8, size=6)
        self.goal = self.rng.integers(8, size=6)
        self.busy = np.zeros(6, int)
        return self._observe(), {}

    def step(self, action_dict):
        assert set(action_dict) == {i for i in self.agent_ids if not self.busy[int(i)]}
        rewards = {}
        for i, action in action_dict.items():
            self.busy[int(i)] = self.rng.integers(1, 5) if action else 1
            self.at[int(i)] = (self.at[int(i)] + (0, 1, -1)[action]) % 8
        self.t += 1
        for shuttle in range(6):
            self.busy[shuttle] -= 1
            if self.at[shuttle] == self.goal[shuttle] and not self.busy[shuttle]:
                rewards[str(shuttle)] = 1.0
                self.goal[shuttle] = self.rng.integers(8)
        over = {"__all__": self.t >= self.length}
        return self._observe(), rewards, over, {"__all__": False}, {}

    def _observe(self):
        seen = {}
        for shuttle in np.flatnonzero(self.busy == 0):
            angles = np.array([self.at[shuttle], self.goal[shuttle]]) * np.pi / 4
            identity = np.array([shuttle / 6, self.t / self.length])
            seen[str(shuttle)] = np.concatenate([np.sin(angles), np.cos(angles), identity])
            seen[str(shuttle)] = seen[str(shuttle)].astype(np.float32)
        return seen


class Board:
    """Tic-tac-toe in which both players are observed at every step, and one moves.

    Who is to move is part of what both see; the other's action is not heeded.
    """

    def __init__(self, config=None):
        self._agent_ids = [0, 1]
        part = spaces.Dict(
            {
                "observations": spaces.Box(0, 1, shape=(2 * SIDE**2 + 1,), dtype=int),
                "action_mask": spaces.Box(0, 1, shape=(SIDE**2,), dtype=int),
            }
        )
        self.observation_space = spaces.Dict(dict.fromkeys(range(2), part))
        self.action_space = spaces.Dict({i: spaces.Discrete(SIDE**2) for i in range(2)})

    def reset(self, seed=None, options=None):
        self.board, self.player = np.zeros(SIDE**2, int), 0
        return self._observe(), {}

    def step(self, action):
        self.board[action[self.player]] = self.player + 1
        won = any((self.board[list(line)] == self.player + 1).all() for line in LINES)
        reward = {i: (1.0 if i == self.player else -1.0) if won else 0.0 for i in range(2)}
        self.player = 1 - self.player
        over = bool(won or (self.board != 0).all())
        done = {0: over, 1: over, "__all__": over}
        return self._observe(), reward, done, {0: False, 1: False, "__all__": False}, {}

    def _observe(self):
        planes = [self.board == 1, self.board == 2, [self.player]]
        seen = np.concatenate(planes).astype(int)
        legal = (self.board == 0) if (self.board == 0).any() else np.ones(SIDE**2, bool)
        one = {"observations": seen, "action_mask": legal.astype(np.int8)}
        return {i: dict(one) for i in range(2)}


class CartPoles:
    """Poles that fall one after the other, each balanced by an agent of its own."""

    def __init__(self, config=None):
        self.carts = [gymnasium.make("CartPole-v1") for _ in range((config or {})["num_agents"])]
        self.possible_agents = list(range(len(self.carts)))
        self.observation_space = self.carts[0].observation_space
        self.action_space = self.carts[0].action_space

    def reset(self, *, seed=None, options=None):
        self.fallen = set()
        seeds = np.random.default_rng(seed).integers(2**31, size=len(self.carts)).tolist()
        return {i: cart.reset(seed=seeds[i])[0] for i, cart in enumerate(self.carts)}, {}

    def step(self, action_dict):
        found = {i: self.carts[i].step(action) for i, action in action_dict.items()}
        seen, rewards, terminateds, truncateds = (
            {i: part[number] for i, part in found.items()} for number in range(4)
        )
        self.fallen |= {i for i in found if terminateds[i] or truncateds[i]}
        all_fell = len(self.fallen) == len(self.carts)
        terminateds["__all__"], truncateds["__all__"] = all_fell, False
        return seen, rewards, terminateds, truncateds, {}


class ThenB:
    """A walks `leg` steps, then B goes on from where A has come to; A is paid for what B finds.

    Both are to get to the far end of a line, which takes every step of both. While A walks B is not
    observed, and A is not while B walks; the whole distance that is left at the end costs both.
    """

    def __init__(self, config=None):
        self.leg = (config or {}).get("leg", 3)
        self.possible_agents = ["A", "B"]
        box = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.observation_spaces = {"A": box, "B": box}
        self.action_spaces = {"A": spaces.Discrete(2), "B": spaces.Discrete(2)}

    def reset(self, *, seed=None, options=None):
        self.t = self.at = 0
        self.side = int(np.random.default_rng(seed).choice([-1, 1]))
        return self._observe(), {}

    def step(self, action_dict):
        (action,) = action_dict.values()
        self.at += 1 if action else -1
        self.t += 1
        over = self.t == 2 * self.leg
        left = float(abs(2 * self.leg * self.side - self.at))
        rewards = {"A": -left, "B": -left} if over else {}
        return self._observe(), rewards, {"__all__": over}, {"__all__": False}, {}

    def _observe(self):
        seen = np.array([self.at / (2 * self.leg), self.side, self.t / (2 * self.leg)], np.float32)
        return {"A" if self.t < self.leg else "B": seen}
