"""Measures of single scenarios, beyond returns."""
