"""Rows of a test as the table that a rollout leaves."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_ppo.credit.decision_table import tabulate
from jaxmarl_ppo.ppo.minibatches import TrainingTable
from jaxmarl_ppo.types import Decisions


class TrainingRows(NamedTuple):
    """Holds decisions with what they are trained on, `[1 + T, S]` of one environment."""

    decisions: Decisions
    advantage: jax.Array
    target: jax.Array


def training_table(rows: TrainingRows, trainable: jax.Array) -> TrainingTable:
    """Make a table of rows, of which the first were open when the rollout began."""
    rows = jax.tree.map(jnp.asarray, rows)
    open_rows = jax.tree.map(lambda x: x[:1], rows.decisions)
    new_rows = jax.tree.map(lambda x: x[1:, None], rows.decisions)
    return TrainingTable(
        decisions=tabulate(open_rows, new_rows),
        advantage=rows.advantage.ravel(),
        target=rows.target.ravel(),
        trainable=jnp.asarray(trainable).ravel(),
    )
