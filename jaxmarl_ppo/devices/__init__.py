"""Compilation and parallel execution on devices."""
