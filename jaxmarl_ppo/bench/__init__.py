"""How fast training is, and what fraction of the machine that is."""
