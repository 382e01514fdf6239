"""Environments made of others."""

from jaxmarl_envs.wrappers.groups import Grouped, grouped

__all__ = ["Grouped", "grouped"]
