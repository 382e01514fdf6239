"""Tic-tac-toe and its relatives: k in a row on a board of any size, two players taking turns."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.drawing.stones import cell_name, stone_sign
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.tic_tac_toe.baselines import Script, best_moves, scripts
from jaxmarl_envs.tic_tac_toe.board import AGENTS, Board, Params, State, is_int
from jaxmarl_envs.tic_tac_toe.drawing import draw_board

ILLEGAL_MODES = ("lose", "random")


class TicTacToe(MultiAgentEnv[State, Params]):
    """The (m, n, k)-game: the first player with `k` stones in a row, column or diagonal wins.

    Slots are `x`, who moves first, and `o`. Each slot's features are three planes over the board:
    its own stones, the opponent's stones, and 1 everywhere when it is its turn. An action is the
    row-major index of a cell. At the step that ends the game, both lives terminate; the winner
    receives 1 and the loser -1, or both 0 in a draw. `info["metrics"]` then has a 1 in `win`,
    `draw` or `loss` of each slot.

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
    agents = AGENTS

    def __init__(
        self,
        size: int | tuple[int, int] = 3,
        k: int = 3,
        planes: bool = False,
        illegal: str = "lose",
    ) -> None:
        self.board = Board(*_sides(size), k, planes)
        self.stones_in_a_row = self.board.k
        if illegal not in ILLEGAL_MODES:
            raise ValueError(f"illegal={illegal!r}: valid choices: {', '.join(ILLEGAL_MODES)}")
        self.illegal = illegal

    @property
    def max_actors(self) -> int:
        """Count who can move at one step: one player."""
        return 1

    @property
    def baselines(self) -> Mapping[str, Script]:
        """Return the scripted policies `minimax` and `win_block`, on boards that can be solved."""
        return scripts(self.board)

    @property
    def default_params(self) -> Params:
        """Return an empty struct, since there are no numeric parameters."""
        return Params()

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Observation, State]:
        """Begin with an empty board and x to move; takes no chance from `key`."""
        state = State(
            stones=jnp.zeros((2, self.board.num_words), jnp.uint32),
            ply=jnp.int32(0),
            over=jnp.bool_(False),
        )
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> StepResult[State]:
        """Place the mover's stone; a game that is over stays as it is.

        `action` is `[2]` int.
        """
        x_moves = state.ply % 2 == 0
        empty = ~(state.stones[0] | state.stones[1]) & self.board.full  # [W]
        stone = self.board.stone(jnp.where(x_moves, action[0], action[1]))  # [W]
        legal = ((stone & empty) != 0).any()
        if self.illegal == "random":
            stone = jnp.where(legal, stone, self.board.stone(self.board.random_cell(key, empty)))
            legal = jnp.bool_(True)
        placed = legal & ~state.over
        to_move = jnp.stack([x_moves, ~x_moves])  # [A]
        added = jnp.where(placed & to_move[:, None], stone, jnp.uint32(0))  # [A, W]
        stones = state.stones | added
        mine = jnp.where(x_moves, stones[0], stones[1])  # [W]
        lined_up = ((mine & self.board.lines) == self.board.lines).all(-1).any()

        ply = state.ply + placed
        won = placed & lined_up
        lost = ~legal & ~state.over
        drawn = placed & ~lined_up & (ply == self.board.num_cells)
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

    @property
    def action_names(self) -> tuple[str, ...]:
        """Name the cells as on a chess board, the first row at the top."""
        return tuple(cell_name(cell, self.board.cols) for cell in range(self.board.num_cells))

    def render(self, state: State, params: Params | None = None, last_action: Any = None) -> str:
        """Draw the board, with the last move and the line that has won."""
        del params
        return draw_board(self.board, state, last_action)

    def sign(self, agent: str) -> str:
        """Return a player's stone."""
        return stone_sign(self.agent_index(agent))

    def best_actions(self, state: State, params: Params | None = None) -> np.ndarray | None:
        """Find the moves that keep the position's value, on boards that can be solved."""
        del params
        return best_moves(self.board, state)

    def cells(self, state: State) -> jax.Array:
        """Return the board, 0 where x has a stone and 1 where o has one."""
        held = (state.stones[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1  # [2, W, 32]
        x_has, o_has = held.reshape(2, -1)[:, : self.board.num_cells].astype(jnp.int32)
        return (x_has + 2 * o_has - 1).reshape(self.board.rows, self.board.cols)

    def observe(self, state: State) -> Observation:
        """Show a position to both players; see `Board.observe`."""
        return self.board.observe(state)

    def observation_space(self, agent: str, params: Params) -> Box:
        """Return the space of zeros and ones, `[rows * cols * 3]` or `[rows, cols, 3]`."""
        self.agent_index(agent)
        return Box(0.0, 1.0, self.board.feature_shape)

    def action_space(self, agent: str, params: Params) -> Discrete:
        """Return one action for each cell."""
        self.agent_index(agent)
        return Discrete(self.board.num_cells)

    def horizon(self, params: Params) -> int:
        """Bound a game by the number of cells, as a full board ends it."""
        return self.board.num_cells


def _sides(size: int | tuple[int, int]) -> tuple[int, int]:
    sides = size if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(is_int(side) and side >= 1 for side in sides):
        raise ValueError(
            f"size={size!r}: size must be a positive integer, or (rows, cols) of positive integers"
        )
    return int(sides[0]), int(sides[1])
