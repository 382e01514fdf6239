"""Covert communication in plain Python: `jaxmarl_envs.make("crypto")`."""

from collections.abc import Sequence

import numpy as np

NUM_SYMBOLS = 4
SILENCE = NUM_SYMBOLS
MAX_STEPS = 25
EVE, BOB, ALICE = range(3)

_SYMBOLS = np.eye(NUM_SYMBOLS + 1, NUM_SYMBOLS, dtype=np.float32)  # the last one is silence
_NUM_BITS = 2
_ALL = np.ones(NUM_SYMBOLS, np.float32)
# All that anybody can ever see, so that observing is looking up.
_EVE_SEES = list(_SYMBOLS)  # [message]
_BOB_SEES = [[np.concatenate([_SYMBOLS[key], heard]) for heard in _SYMBOLS] for key in (0, 1)]
_ALICE_SEES = [[np.concatenate([_SYMBOLS[g], _SYMBOLS[key]]) for key in (0, 1)] for g in (0, 1)]


class CryptoTwin:
    """Alice speaks, Bob (who shares a key with her) and Eve guess, all at every step."""

    agents = ("eve_0", "bob_0", "alice_0")
    feature_widths = (NUM_SYMBOLS, 2 * NUM_SYMBOLS, 2 * NUM_SYMBOLS)
    num_actions = NUM_SYMBOLS
    bounds = (0.0, 1.0)

    def __init__(self) -> None:
        self.set_state(0, 0)

    def reset(self, rng: np.random.Generator) -> None:
        """Draw goal and key."""
        goal, key = rng.integers(_NUM_BITS, size=2).tolist()
        self.set_state(goal, key)

    def set_state(self, goal: int, key: int) -> None:
        """Begin with this goal and this key, each 0 or 1."""
        self.goal, self.key, self.message, self.time = goal, key, SILENCE, 0
        self.over = self.truncated = False

    def step(self, actions: Sequence[int]) -> Sequence[float]:
        """All speak at once; a wrong symbol is 2 away from the goal in squared distance."""
        eve_error = 0.0 if actions[EVE] == self.goal else 2.0
        bob_error = 0.0 if actions[BOB] == self.goal else 2.0
        self.message = actions[ALICE]
        self.time += 1
        self.over = self.truncated = self.time >= MAX_STEPS
        good = eve_error - bob_error
        return (-eve_error, good, good)

    def acting(self) -> Sequence[int]:
        """Everybody."""
        return () if self.over else (EVE, BOB, ALICE)

    def features(self, agent: int) -> np.ndarray:
        """Eve hears Alice's words, Bob has the key too, Alice has goal and key."""
        if agent == EVE:
            return _EVE_SEES[self.message]
        if agent == BOB:
            return _BOB_SEES[self.key][self.message]
        return _ALICE_SEES[self.goal][self.key]

    def action_mask(self, agent: int) -> np.ndarray:
        """Everything is legal."""
        return _ALL
