"""Policies and players: what can hold an agent slot, and how it chooses actions."""
