"""Environments made of others."""
