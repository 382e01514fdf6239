"""Kuhn poker and Leduc hold'em, with exact values of policies."""

from jaxmarl_envs.poker.env import KuhnPoker, LeducHoldem, Params, Poker, State
from jaxmarl_envs.poker.rules import ACTIONS, AGENTS, KUHN, LEDUC, Betting, Rules
from jaxmarl_envs.poker.solver import InformationTable

__all__ = [
    "ACTIONS",
    "AGENTS",
    "KUHN",
    "LEDUC",
    "Betting",
    "InformationTable",
    "KuhnPoker",
    "LeducHoldem",
    "Params",
    "Poker",
    "Rules",
    "State",
]
