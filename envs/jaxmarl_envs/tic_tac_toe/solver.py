"""Exact values of policies for small (m, n, k)-games, over the table of all reachable positions.

Perfect information makes every quantity here one backward pass over the table, without sampling:
what two policies make of a game, the most that anyone can win against a policy, and hence its
exploitability. Letters: `S` positions, `D` decisions (positions at which the game is not over, in
the same order), `N` cells.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.policy_table import checked_policy, most_probable, uniform_over
from jaxmarl_envs.tic_tac_toe.board import AGENTS, Board, State, to_bitboard, winning_lines

MAX_CELLS = 12

_SIGN = np.array([1, -1])  # turns x's value into that of slot 0 and of slot 1


class Outcome(NamedTuple):
    """Probabilities of a game's result as x sees it."""

    win: float
    draw: float
    loss: float


class GameTable:
    """Every position that legal moves can reach, ordered by ply.

    A *policy* is a `[D, N]` table of probabilities, a row for each decision whoever makes it, so
    that one table plays both seats. Illegal cells have probability 0.

    Args:
        board: the game's board; `planes` shapes the observations.

    Attributes:
        ply: `[S]` int, stones on the board.
        result: `[S]` int8, 1 where x has won, -1 where o has, else 0.
        terminal: `[S]` bool.
        decisions: `[D]` int, the position of each decision.
        mover: `[D]` int, the slot that moves: 0 for x, 1 for o.
        action_mask: `[D, N]` bool, the empty cells.
        successor: `[D, N]` int, the position that a move leads to, -1 where it is illegal.

    Raises:
        ValueError: the board has more than `MAX_CELLS` cells.
    """

    def __init__(self, board: Board) -> None:
        if board.num_cells > MAX_CELLS:
            raise ValueError(
                f"a {board.rows} x {board.cols} board has too many positions to list: at most "
                f"{MAX_CELLS} cells can be solved, such as 3 x 3 or 3 x 4"
            )
        self.board = board
        self._bit = 1 << np.arange(board.num_cells)  # [N]
        # Indexed by a set of cells as an integer: does it hold a line?
        lines = self._bit[winning_lines(board.rows, board.cols, board.k)].sum(1)  # [L]
        sets = np.arange(1 << board.num_cells)[:, None]
        self._has_line = ((sets & lines) == lines).any(1)  # [2 ** N] bool
        self._enumerate()

    @property
    def num_positions(self) -> int:
        """Count the positions, `S`."""
        return self.ply.size

    @property
    def num_decisions(self) -> int:
        """Count the decisions, `D`."""
        return self.decisions.size

    def num_games(self) -> tuple[int, int, int]:
        """Count the games (sequences of moves) that x wins, that are drawn, and that o wins."""

        def add_up(rows: slice, children: np.ndarray) -> np.ndarray:
            return (children * self.action_mask[rows, :, None]).sum(1)

        x, draw, o = self._backward(self._ends().astype(np.int64), add_up)[0]
        return int(x), int(draw), int(o)

    def states(self) -> State:
        """Return the environment's state of every position, with leading axis `S`."""
        cells = (self._stones[:, :, None] & self._bit) != 0  # [S, 2, N]
        return State(
            stones=jnp.asarray(to_bitboard(cells)),
            ply=jnp.asarray(self.ply, jnp.int32),
            over=jnp.asarray(self.terminal),
        )

    def observations(self) -> tuple[jax.Array, jax.Array]:
        """Show every decision to its mover: `(features [D, ...], action_mask [D, N])`."""
        states = jax.tree.map(lambda x: x[self.decisions], self.states())
        obs = jax.jit(jax.vmap(self.board.observe))(states)
        row = np.arange(self.num_decisions)
        return obs.features[row, self.mover], obs.action_mask[row, self.mover]

    def expected_outcome(self, policy_x: np.ndarray, policy_o: np.ndarray) -> Outcome:
        """Compute the probabilities that x wins, draws and loses when these two play.

        Args:
            policy_x: `[D, N]`; only the rows of x's decisions matter.
            policy_o: `[D, N]`; only the rows of o's decisions matter.

        Raises:
            ValueError: For a table that is not a policy.
        """
        x_moves = self.mover[:, None] == 0
        policy = np.where(x_moves, self._checked(policy_x), self._checked(policy_o))

        def average(rows: slice, children: np.ndarray) -> np.ndarray:
            return np.einsum("dn,dnj->dj", policy[rows], children)

        return Outcome(*map(float, self._backward(self._ends(), average)[0]))

    def best_response_value(self, policy: np.ndarray, seat: str) -> float:
        """Compute the most that `seat` can expect when `policy [D, N]` has the other seat.

        A win counts 1, a draw 0, a loss -1.

        Raises:
            ValueError: For a table that is not a policy, or an unknown seat.
        """
        if seat not in AGENTS:
            raise ValueError(f"seat={seat!r}: valid choices: {', '.join(AGENTS)}")
        slot = AGENTS.index(seat)
        policy = self._checked(policy)

        def respond(rows: slice, children: np.ndarray) -> np.ndarray:
            if self.mover[rows.start] == slot:
                return np.where(self.action_mask[rows], children, -np.inf).max(1)
            return (policy[rows] * children).sum(1)

        return float(self._backward(_SIGN[slot] * self.result.astype(float), respond)[0])

    def exploitability(self, policy: np.ndarray) -> float:
        """Average the best response's value against `policy [D, N]` over both seats.

        Half of NashConv (Lanctot et al. 2017): 0 exactly for optimal play from the empty board,
        at most 1.
        """
        return sum(self.best_response_value(policy, seat) for seat in AGENTS) / 2

    def values(self) -> np.ndarray:
        """Compute what x gets from each position, `[S]` float, when both play optimally."""

        def optimum(rows: slice, children: np.ndarray) -> np.ndarray:
            sign = _SIGN[self.mover[rows.start]]
            return sign * np.where(self.action_mask[rows], sign * children, -np.inf).max(1)

        return self._backward(self.result.astype(float), optimum)

    def uniform_policy(self) -> np.ndarray:
        """Assign every legal move the same probability, `[D, N]`."""
        return uniform_over(self.action_mask)

    def minimax_policy(self) -> np.ndarray:
        """Make the policy, `[D, N]`, uniform over the moves that keep the position's value."""
        children = _SIGN[self.mover][:, None] * self.values()[self.successor]
        children = np.where(self.action_mask, children, -np.inf)
        return uniform_over(children == children.max(1, keepdims=True))

    def win_block_policy(self) -> np.ndarray:
        """Make the policy that wins at once, else blocks, else plays any move, `[D, N]`.

        Among moves that serve equally it is uniform.
        """
        own, other = (
            self._stones[self.decisions, slot][:, None] | self._bit
            for slot in (self.mover, 1 - self.mover)
        )
        win = self.action_mask & self._has_line[own]  # [D, N]
        block = self.action_mask & self._has_line[other]  # [D, N]
        chosen = np.where(block.any(1, keepdims=True), block, self.action_mask)
        return uniform_over(np.where(win.any(1, keepdims=True), win, chosen))

    def greedy(self, policy: np.ndarray) -> np.ndarray:
        """Make the policy that always plays the most probable move of `policy [D, N]`.

        Among equally probable moves it plays the first one.
        """
        return most_probable(self._checked(policy))

    def _enumerate(self) -> None:
        num_cells, bit = self.board.num_cells, self._bit
        full = (1 << num_cells) - 1
        # A position is the integer x | o << N; all positions of one ply are found at a time.
        level = np.zeros(1, np.int64)
        levels, masks, successors = [], [], []
        first = 0  # index of the level's first position
        while level.size:
            x, o = level & full, level >> num_cells
            going = ~(self._has_line[x] | self._has_line[o])
            empty = going[:, None] & ((x | o)[:, None] & bit == 0)  # [level, N]
            is_decision = empty.any(1)
            shift = num_cells * (len(levels) % 2)
            after = (level[:, None] | bit << shift)[empty]
            level_after, index = np.unique(after, return_inverse=True)
            successor = np.full(empty.shape, -1)
            successor[empty] = first + level.size + index
            levels.append(level)
            masks.append(empty[is_decision])
            successors.append(successor[is_decision])
            first, level = first + level.size, level_after

        codes = np.concatenate(levels)
        self._stones = np.stack([codes & full, codes >> num_cells], 1)  # [S, 2]
        self.ply = np.repeat(np.arange(len(levels)), [level.size for level in levels])
        x_won, o_won = self._has_line[self._stones].astype(np.int8).T
        self.result = x_won - o_won
        self.terminal = (self.result != 0) | (self.ply == num_cells)
        self.decisions = np.flatnonzero(~self.terminal)
        self.mover = self.ply[self.decisions] % 2
        self.action_mask = np.concatenate(masks)
        self.successor = np.concatenate(successors)
        bounds = np.cumsum([0] + [len(mask) for mask in masks if len(mask)])
        self._plies = [slice(first, end) for first, end in pairwise(bounds)]

    def _backward(
        self, leaves: np.ndarray, combine: Callable[[slice, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Fill the decisions' rows of `leaves [S, ...]`, from the last ply to the first.

        `combine(rows, children)` gets the decisions of one ply as a slice of `D`, and their
        successors' values `[rows, N, ...]`, arbitrary at illegal cells; it returns `[rows, ...]`.
        """
        values = leaves.copy()
        for rows in reversed(self._plies):
            values[self.decisions[rows]] = combine(rows, values[self.successor[rows]])
        return values

    def _ends(self) -> np.ndarray:
        """Mark results at terminal positions, `[S, 3]` float: x wins, draw, o wins; else zeros."""
        result = self.result[:, None] == np.array([1, 0, -1])
        return (result & self.terminal[:, None]).astype(float)

    def _checked(self, policy: np.ndarray) -> np.ndarray:
        return checked_policy(policy, self.action_mask, "moves")
