"""Small environments whose optima are known, each for one thing that agents can do.

`lives` has lives of every kind, `probes` those that ask one thing of a trainer, `together`
one for agents that decide as one, `factored` actions of several choices and numbers, `small` the
rest.
"""

from jaxmarl_envs.toy.factored import CombinationLock, Convoy
from jaxmarl_envs.toy.lives import Basic, EarlyDone, FlexAgents, RoundRobin
from jaxmarl_envs.toy.probes import DelayedReward, RememberCue, TruncationOnly, ValueOnly
from jaxmarl_envs.toy.small import MultiSpaces, PressYourLuck, Relay
from jaxmarl_envs.toy.together import TwoStep

__all__ = [
    "Basic",
    "CombinationLock",
    "Convoy",
    "DelayedReward",
    "EarlyDone",
    "FlexAgents",
    "MultiSpaces",
    "PressYourLuck",
    "Relay",
    "RememberCue",
    "RoundRobin",
    "TruncationOnly",
    "TwoStep",
    "ValueOnly",
]
