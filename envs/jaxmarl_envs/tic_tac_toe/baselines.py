"""Scripted players for boards that can be solved: perfect play, and win-else-block play."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import Observation
from jaxmarl_envs.tic_tac_toe.env import Params, State, TicTacToe
from jaxmarl_envs.tic_tac_toe.solver import MAX_CELLS, GameTable

Script = Callable[[State, Observation, Params, jax.Array], jax.Array]


def scripts(env: TicTacToe) -> Mapping[str, Script]:
    """`minimax` draws among the moves that keep the position's value, `win_block` wins at once,
    else blocks, else moves at random; none on boards that cannot be solved.
    """
    if env.num_cells > MAX_CELLS:
        return {}
    build = cache(partial(_tables, env))
    return {name: partial(_play, env, build, name) for name in ("minimax", "win_block")}


def _tables(env: TicTacToe) -> Mapping[str, Any]:
    """Move probabilities `[D + 1, N]` by script, and the row of each board in base 3."""
    table = GameTable(env)
    states = jax.tree.map(lambda x: x[table.decisions], table.states())
    boards = np.asarray(jax.jit(jax.vmap(env.board))(states))
    rows = np.full(3**env.num_cells, table.num_decisions)  # positions without a decision: the last
    rows[boards.reshape(table.num_decisions, -1) @ _powers(env)] = np.arange(table.num_decisions)
    policies = {"minimax": table.minimax_policy(), "win_block": table.win_block_policy()}
    spare = np.full((1, env.num_cells), 1.0 / env.num_cells)
    padded = {name: np.concatenate([policy, spare]) for name, policy in policies.items()}
    return {"rows": rows.astype(np.int32), **padded}


def _play(
    env: TicTacToe,
    build: Callable[[], Mapping[str, Any]],
    name: str,
    state: State,
    obs: Observation,
    params: Params,
    key: jax.Array,
) -> jax.Array:
    """A move for whoever's turn it is, `[2]`."""
    del obs, params
    with jax.ensure_compile_time_eval():
        tables = build()
    code = env.board(state).astype(jnp.int32).ravel() @ jnp.asarray(_powers(env))
    probabilities = jnp.asarray(tables[name], jnp.float32)[jnp.asarray(tables["rows"])[code]]
    return jnp.broadcast_to(jax.random.categorical(key, jnp.log(probabilities)), (2,))


def _powers(env: TicTacToe) -> np.ndarray:
    return 3 ** np.arange(env.num_cells, dtype=np.int32)
