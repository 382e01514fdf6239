"""Tic-tac-toe and its relatives: k in a row on a board of any size, two players taking turns."""

import importlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import unrolled

ILLEGAL_MODES = ("lose", "random")

_WORD = 32  # cells per word of a bitboard


@struct.dataclass
class Params:
    """No numbers to set: the board, `k` and the rule on illegal moves are structure."""


@struct.dataclass
class State:
    """Cell `c` of the row-major board is bit `c % 32` of word `c // 32`; `W` words hold a board."""

    stones: jax.Array  # [2, W] uint32: the cells of x, the cells of o
    ply: jax.Array  # [] int32: stones on the board; x moves on even plies
    over: jax.Array  # [] bool


def winning_lines(rows: int, cols: int, k: int) -> np.ndarray:
    """Every `k` cells in a row, column or diagonal, `[L, k]` int, as row-major cell indices."""
    lines = [
        [(r + i * dr) * cols + c + i * dc for i in range(k)]
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1))
        for r in range(rows)
        for c in range(cols)
        if r + (k - 1) * dr < rows and 0 <= c + (k - 1) * dc < cols
    ]
    return np.unique(np.sort(np.asarray(lines), axis=1), axis=0)  # k = 1: each cell once, not four


def to_bitboard(cells: np.ndarray) -> np.ndarray:
    """Pack `[..., cells]` bool into `[..., W]` uint32 words, cell `32 w + b` at bit `b` of `w`."""
    cells = np.asarray(cells, bool)
    num_words = -(-cells.shape[-1] // _WORD)
    padding = [(0, 0)] * (cells.ndim - 1) + [(0, num_words * _WORD - cells.shape[-1])]
    bits = np.pad(cells, padding).reshape(*cells.shape[:-1], num_words, _WORD)
    return (bits.astype(np.uint32) << np.arange(_WORD, dtype=np.uint32)).sum(-1, dtype=np.uint32)


class TicTacToe(MultiAgentEnv[State, Params]):
    """The (m, n, k)-game: whoever first has `k` stones in a row, column or diagonal wins.

    Slots are `x`, who moves first, and `o`. Each slot's features are three planes over the board:
    its own stones, the opponent's stones, and 1 everywhere while it is to move. An action is the
    row-major index of a cell. On the tick that ends the game both lives terminate, the winner earns
    1 and the loser -1, or both 0 in a draw; `info["metrics"]` then has a 1 in `win`, `draw` or
    `loss` of each slot.

    Args:
        size: side of a square board, or `(rows, cols)`.
        k: stones in a row that win, at most the longer side.
        planes: features `[A, rows, cols, 3]` instead of the same numbers flat,
            `[A, rows * cols * 3]`.
        illegal: what a move outside `action_mask` does: `"lose"` ends the game as a loss for the
            mover, `"random"` plays a uniformly drawn legal move in its place.

    Raises:
        ValueError: an argument is out of its range.
    """

    name = "tic_tac_toe"
    agents = ("x", "o")

    def __init__(
        self,
        size: int | tuple[int, int] = 3,
        k: int = 3,
        planes: bool = False,
        illegal: str = "lose",
    ) -> None:
        self.rows, self.cols = _sides(size)
        longest = max(self.rows, self.cols)
        if not _is_int(k) or not 1 <= k <= longest:
            raise ValueError(
                f"k={k!r} on a {self.rows} x {self.cols} board: k must be an integer from 1 to "
                f"{longest}, the longer side"
            )
        if not isinstance(planes, bool):
            raise ValueError(f"planes={planes!r}: planes must be True or False")
        if illegal not in ILLEGAL_MODES:
            raise ValueError(f"illegal={illegal!r}: valid choices: {', '.join(ILLEGAL_MODES)}")
        self.k = int(k)
        self.planes = planes
        self.illegal = illegal
        lines = winning_lines(self.rows, self.cols, self.k)  # [L, k]
        on_line = (lines[:, :, None] == np.arange(self.num_cells)).any(1)  # [L, cells]
        self._lines = to_bitboard(on_line)  # [L, W] uint32
        self._board = to_bitboard(np.ones(self.num_cells, bool))  # [W] uint32

    @property
    def num_cells(self) -> int:
        """`N`: cells of the board, which are the actions."""
        return self.rows * self.cols

    @property
    def max_actors(self) -> int:
        """One player moves at a time."""
        return 1

    @property
    def baselines(self) -> Mapping[str, Any]:
        """`minimax` and `win_block`, on boards that can be solved."""
        return importlib.import_module("jaxmarl_envs.tic_tac_toe.baselines").scripts(self)

    @property
    def default_params(self) -> Params:
        """An empty struct."""
        return Params()

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Observation, State]:
        """An empty board with x to move; takes no chance from `key`."""
        state = State(
            stones=jnp.zeros((2, self._board.size), jnp.uint32),
            ply=jnp.int32(0),
            over=jnp.bool_(False),
        )
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> StepResult[State]:
        """Place the mover's stone; a game that is over stays as it is."""
        x_moves = state.ply % 2 == 0
        empty = ~(state.stones[0] | state.stones[1]) & self._board  # [W]
        stone = self._stone(jnp.where(x_moves, action[0], action[1]))  # [W]
        legal = ((stone & empty) != 0).any()
        if self.illegal == "random":
            stone = jnp.where(legal, stone, self._stone(self._random_cell(key, empty)))
            legal = jnp.bool_(True)
        placed = legal & ~state.over
        to_move = jnp.stack([x_moves, ~x_moves])  # [A]
        added = jnp.where(placed & to_move[:, None], stone, jnp.uint32(0))  # [A, W]
        stones = state.stones | added
        mine = jnp.where(x_moves, stones[0], stones[1])  # [W]
        lined_up = ((mine & self._lines) == self._lines).all(-1).any()

        ply = state.ply + placed
        won = placed & lined_up
        lost = ~legal & ~state.over
        drawn = placed & ~lined_up & (ply == self.num_cells)
        ended = won | lost | drawn
        next_state = State(stones=stones, ply=ply, over=state.over | ended)

        win = jnp.where(to_move, won, lost)  # [A]
        loss = jnp.where(to_move, lost, won)  # [A]
        earned = won.astype(jnp.int32) - lost.astype(jnp.int32)  # by the mover; no zero has a sign
        reward = jnp.where(to_move, earned, -earned).astype(jnp.float32)  # [A]
        terminated = jnp.broadcast_to(ended, (2,))
        metrics = {"win": win, "draw": jnp.broadcast_to(drawn, (2,)), "loss": loss}
        info = {"metrics": {name: value.astype(jnp.float32) for name, value in metrics.items()}}
        obs = self.observe(next_state)
        return obs, next_state, reward, terminated, jnp.zeros(2, bool), info

    def observe(self, state: State) -> Observation:
        """What both players see of a position."""
        x_moves = state.ply % 2 == 0
        alive = jnp.broadcast_to(~state.over, (2,))  # [A]
        agent_mask = alive & jnp.stack([x_moves, ~x_moves])  # [A]
        acts = agent_mask[:, None]
        nothing, everything = jnp.uint32(0), ~jnp.uint32(0)
        # Each number chooses its word, then takes its bit: joining planes of bits is slower.
        cell, plane = np.divmod(np.arange(3 * self.num_cells, dtype=np.uint32), 3)
        own, other = self._word_of(cell, state.stones), self._word_of(cell, state.stones[::-1])
        side = jnp.where(acts, everything, nothing)  # [A, 1]
        words = jnp.where(plane == 0, own, jnp.where(plane == 1, other, side))  # [A, cells * 3]
        features = ((words >> cell % _WORD) & 1).astype(jnp.float32)
        # All is allowed where nothing is played, so a full board's rows have True entries too.
        taken = state.stones[0] | state.stones[1]  # [W]
        action_mask = self._unpack(jnp.where(acts, ~taken, everything))  # [A, cells]
        return Observation(
            features=features.reshape(2, *self._feature_shape),
            action_mask=action_mask,
            alive=alive,
            agent_mask=agent_mask,
        )

    def board(self, state: State) -> jax.Array:
        """The position as `[rows, cols]` int8: 0 empty, 1 x, 2 o."""
        x, o = self._unpack(state.stones).astype(jnp.int8)
        return (x + 2 * o).reshape(self.rows, self.cols)

    def observation_space(self, agent: str, params: Params) -> Box:
        """Zeros and ones, `[rows * cols * 3]` or `[rows, cols, 3]`."""
        self.agent_index(agent)
        return Box(0.0, 1.0, self._feature_shape)

    def action_space(self, agent: str, params: Params) -> Discrete:
        """One action per cell."""
        self.agent_index(agent)
        return Discrete(self.num_cells)

    def horizon(self, params: Params) -> int:
        """A full board ends the game."""
        return self.num_cells

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (self.rows, self.cols, 3) if self.planes else (self.num_cells * 3,)

    def _unpack(self, boards: jax.Array) -> jax.Array:
        """`[..., W]` words to `[..., cells]` bool."""
        bits = (boards[..., None] >> jnp.arange(_WORD, dtype=jnp.uint32)) & 1  # [..., W, 32]
        return bits.reshape(*boards.shape[:-1], -1)[..., : self.num_cells] != 0

    def _word_of(self, cell: np.ndarray, boards: jax.Array) -> jax.Array:
        """The words of `boards [..., W]` in which the cells `cell [C]` lie, `[..., C or 1]`."""
        words = boards[..., :1]
        for index in range(1, self._board.size):
            words = jnp.where(cell // _WORD == index, boards[..., index, None], words)
        return words

    def _stone(self, cell: jax.Array) -> jax.Array:
        """The bitboard `[W]` of one cell, empty where there is no such word."""
        here = cell // _WORD == np.arange(self._board.size)
        return jnp.where(here, jnp.uint32(1) << (cell % _WORD).astype(jnp.uint32), jnp.uint32(0))

    def _random_cell(self, key: jax.Array, empty: jax.Array) -> jax.Array:
        """A uniform draw from the cells of the bitboard `empty [W]`."""
        return jax.random.categorical(unrolled(key), jnp.where(self._unpack(empty), 0.0, -jnp.inf))


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _sides(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = size if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(_is_int(side) and side >= 1 for side in sides):
        raise ValueError(
            f"size={size!r}: size must be a positive integer, or (rows, cols) of positive integers"
        )
    return int(sides[0]), int(sides[1])
