"""Phantom tic-tac-toe, with exact values of policies."""

from jaxmarl_envs.phantom_tic_tac_toe.env import LINES, Params, PhantomTicTacToe, State
from jaxmarl_envs.phantom_tic_tac_toe.solver import InformationTable

__all__ = ["LINES", "InformationTable", "Params", "PhantomTicTacToe", "State"]
