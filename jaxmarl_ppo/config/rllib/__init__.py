"""Configurations of RLlib's PPO, translated into this package's."""
