"""Proximal policy optimisation of a policy group: loss and update."""
