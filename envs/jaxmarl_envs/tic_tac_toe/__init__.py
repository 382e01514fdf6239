"""Tic-tac-toe and its relatives, with an exact solver for small boards."""

from jaxmarl_envs.tic_tac_toe.board import Board, Params, State, winning_lines
from jaxmarl_envs.tic_tac_toe.env import TicTacToe
from jaxmarl_envs.tic_tac_toe.solver import MAX_CELLS, GameTable, Outcome

__all__ = [
    "MAX_CELLS",
    "Board",
    "GameTable",
    "Outcome",
    "Params",
    "State",
    "TicTacToe",
    "winning_lines",
]
