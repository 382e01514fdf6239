"""Run configuration, checked as soon as it is made."""
