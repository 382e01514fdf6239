"""Environments and players, one step after the other."""
