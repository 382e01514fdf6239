"""Tic-tac-toe in plain Python: `jaxmarl_envs.make("tic_tac_toe")`."""

from collections.abc import Sequence

import numpy as np

NUM_CELLS = 9
FULL = (1 << NUM_CELLS) - 1
LINES = [0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124]
_CELLS = np.arange(NUM_CELLS)
# A board is a number whose bit `c` is the row-major cell `c`.
UNPACKED = ((np.arange(FULL + 1)[:, None] >> _CELLS) & 1).astype(np.float32)  # [512, 9]
HAS_LINE = [any(board & line == line for line in LINES) for board in range(FULL + 1)]


class TicTacToeTwin:
    """A cell that is taken loses the game for who chose it."""

    agents = ("x", "o")
    feature_widths = (3 * NUM_CELLS,) * 2
    num_actions = NUM_CELLS
    bounds = (0.0, 1.0)
    truncated = False

    def __init__(self) -> None:
        self.set_state([0, 0], 0)

    def reset(self, rng: np.random.Generator) -> None:
        """An empty board, with no chance in it."""
        self.set_state([0, 0], 0)

    def set_state(self, stones: list[int], ply: int) -> None:
        """Begin at a position that nobody has won.

        Args:
            stones: the boards of x and of o.
            ply: stones on the board.
        """
        self.stones, self.ply, self.over = stones, ply, False

    def step(self, actions: Sequence[int]) -> Sequence[float]:
        """Place the mover's stone."""
        if self.over:
            return (0.0, 0.0)
        mover = self.ply % 2
        stone = 1 << actions[mover]
        if (self.stones[0] | self.stones[1]) & stone:
            self.over, winner = True, 1 - mover
            return (1.0, -1.0) if winner == 0 else (-1.0, 1.0)
        self.stones[mover] |= stone
        self.ply += 1
        if HAS_LINE[self.stones[mover]]:
            self.over = True
            return (1.0, -1.0) if mover == 0 else (-1.0, 1.0)
        self.over = self.ply == NUM_CELLS
        return (0.0, 0.0)

    def acting(self) -> Sequence[int]:
        """The mover."""
        return () if self.over else (self.ply % 2,)

    def features(self, agent: int) -> np.ndarray:
        """Per cell: own stone, the opponent's, and 1 if this agent is to move."""
        planes = np.empty((NUM_CELLS, 3), np.float32)
        planes[:, 0] = UNPACKED[self.stones[agent]]
        planes[:, 1] = UNPACKED[self.stones[1 - agent]]
        planes[:, 2] = not self.over and self.ply % 2 == agent
        return planes.reshape(-1)

    def action_mask(self, agent: int) -> np.ndarray:
        """The empty cells for the mover, everything for who waits."""
        moves = not self.over and self.ply % 2 == agent
        return UNPACKED[FULL & ~(self.stones[0] | self.stones[1]) if moves else FULL]
