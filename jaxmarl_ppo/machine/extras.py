"""Extras: groups of packages that only some features need."""


def how_to_install(*extras: str) -> str:
    """Write the command that installs extras of the trainer, which no package index has."""
    return f"pip install ./envs '.[{','.join(extras)}]' in a clone of the repository"
