"""Ticks: environments and players, one step after the other."""
