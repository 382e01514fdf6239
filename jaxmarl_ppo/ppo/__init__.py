"""Proximal policy optimisation of a bank of policies: loss and update."""
