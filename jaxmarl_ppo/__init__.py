"""Multi-agent PPO in JAX."""
