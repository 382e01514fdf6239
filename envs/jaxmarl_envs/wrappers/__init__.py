"""Environments made of others."""

from jaxmarl_envs.wrappers.groups import Grouped, grouped
from jaxmarl_envs.wrappers.joined import Joined, joined

__all__ = ["Grouped", "Joined", "grouped", "joined"]
