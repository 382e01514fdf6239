"""Runs whose results are recorded: to their end, or not at all."""

import sys

from jaxmarl_ppo import Trainer, TrainResult


def train_whole(trainer: Trainer) -> TrainResult:
    """Train to the end; what stops the run, such as a signal, ends the program."""
    result = trainer.train()
    if result.interrupted:
        sys.exit(f"stopped by {result.stopped_by} after {result.env_steps:,} environment steps")
    return result
