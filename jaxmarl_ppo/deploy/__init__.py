"""A policy taken out of its run, to act with."""
