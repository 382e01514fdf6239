"""Environments of other libraries, brought into this contract."""
