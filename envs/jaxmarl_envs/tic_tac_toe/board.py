"""The board of an (m, n, k)-game: its cells and lines, positions on it, and how they look.

Letters: `A` players, `W` words of a bitboard, `L` winning lines.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import Observation
from jaxmarl_envs.threefry import unrolled

AGENTS = ("x", "o")

_WORD = 32  # cells per word of a bitboard


@struct.dataclass
class Params:
    """No numbers to set: the board, `k` and the rule on illegal moves are structure."""


@struct.dataclass
class State:
    """A position, cell `c` of the row-major board as bit `c % 32` of word `c // 32`."""

    stones: jax.Array  # [2, W] uint32: the cells of x, the cells of o
    ply: jax.Array  # [] int32: stones on the board; x moves on even plies
    over: jax.Array  # [] bool


def winning_lines(rows: int, cols: int, k: int) -> np.ndarray:
    """List every `k` cells in a row, column or diagonal, `[L, k]` int, as row-major indices."""
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


@dataclass(frozen=True)
class Board:
    """A board of `rows` by `cols` cells on which `k` stones in a row win.

    Attributes:
        rows: at least 1.
        cols: at least 1.
        k: at most the longer side.
        planes: whether features keep the board's two axes.

    Raises:
        ValueError: an attribute is out of its range.
    """

    rows: int
    cols: int
    k: int
    planes: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "cols"):
            if not is_int(getattr(self, name)) or getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be a positive integer")
        longest = max(self.rows, self.cols)
        if not is_int(self.k) or not 1 <= self.k <= longest:
            raise ValueError(
                f"k={self.k!r} on a {self.rows} x {self.cols} board: k must be an integer from 1 "
                f"to {longest}, the longer side"
            )
        if not isinstance(self.planes, bool):
            raise ValueError(f"planes={self.planes!r}: planes must be True or False")

    @property
    def num_cells(self) -> int:
        """Count the cells, `N`, which are the actions."""
        return self.rows * self.cols

    @property
    def num_words(self) -> int:
        """Count the words of a bitboard, `W`, which hold a bit for every cell."""
        return self.full.size

    @cached_property
    def full(self) -> np.ndarray:
        """Make the bitboard `[W]` uint32 of all cells."""
        return to_bitboard(np.ones(self.num_cells, bool))

    @cached_property
    def lines(self) -> np.ndarray:
        """Make the bitboards `[L, W]` uint32 of the winning lines."""
        lines = winning_lines(self.rows, self.cols, self.k)  # [L, k]
        return to_bitboard((lines[:, :, None] == np.arange(self.num_cells)).any(1))

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Return the shape of a slot's features: flat, or as planes."""
        return (self.rows, self.cols, 3) if self.planes else (self.num_cells * 3,)

    def observe(self, state: State) -> Observation:
        """Show a position to both players.

        Features are zeros and ones, `[A, rows * cols * 3]` or `[A, rows, cols, 3]`.
        """
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
        action_mask = self.unpack(jnp.where(acts, ~taken, everything))  # [A, cells]
        return Observation(
            features=features.reshape(2, *self.feature_shape),
            action_mask=action_mask,
            alive=alive,
            agent_mask=agent_mask,
        )

    def cells(self, state: State) -> jax.Array:
        """Draw the position as `[rows, cols]` int8: 0 empty, 1 x, 2 o."""
        x, o = self.unpack(state.stones).astype(jnp.int8)
        return (x + 2 * o).reshape(self.rows, self.cols)

    def unpack(self, boards: jax.Array) -> jax.Array:
        """Unpack `[..., W]` words into `[..., cells]` bool."""
        bits = (boards[..., None] >> jnp.arange(_WORD, dtype=jnp.uint32)) & 1  # [..., W, 32]
        return bits.reshape(*boards.shape[:-1], -1)[..., : self.num_cells] != 0

    def _word_of(self, cell: np.ndarray, boards: jax.Array) -> jax.Array:
        """Pick the words of `boards [..., W]` that hold the cells `cell [C]`, `[..., C or 1]`."""
        words = boards[..., :1]
        for index in range(1, self.num_words):
            words = jnp.where(cell // _WORD == index, boards[..., index, None], words)
        return words

    def stone(self, cell: jax.Array) -> jax.Array:
        """Make the bitboard `[W]` of one cell, empty where there is no such word."""
        here = cell // _WORD == np.arange(self.num_words)
        return jnp.where(here, jnp.uint32(1) << (cell % _WORD).astype(jnp.uint32), jnp.uint32(0))

    def random_cell(self, key: jax.Array, empty: jax.Array) -> jax.Array:
        """Draw one of the cells of the bitboard `empty [W]` uniformly."""
        return jax.random.categorical(unrolled(key), jnp.where(self.unpack(empty), 0.0, -jnp.inf))


def is_int(value: object) -> bool:
    """Return whether `value` is a whole number; a bool is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
