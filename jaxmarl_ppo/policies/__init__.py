"""Policies and players: who can hold an agent slot, and the actions that they choose."""
