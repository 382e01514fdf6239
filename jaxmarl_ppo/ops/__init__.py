"""Array operations that know nothing of agents."""
