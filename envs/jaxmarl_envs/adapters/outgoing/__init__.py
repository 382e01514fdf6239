"""Environments of this contract, stepped as other libraries do."""
