"""Configurations of other trainers, translated."""
