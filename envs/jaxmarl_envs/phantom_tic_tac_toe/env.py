"""Phantom tic-tac-toe: players do not see each other's stones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.drawing.stones import cell_name, draw_stones, stone_sign, winning_line
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.tic_tac_toe.board import AGENTS, winning_lines

_SIDE, _CELLS = 3, 9
LINES = (winning_lines(_SIDE, _SIDE, _SIDE)[:, :, None] == np.arange(_CELLS)).any(1)  # [8, cells]
# Nine stones at most, and each player runs into at most four of the other's.
_MAX_TRIES = 17


@struct.dataclass
class Params:
    """No numeric parameters."""


@struct.dataclass
class State:
    """Stones, and what each player has tried; `A` players."""

    stones: jax.Array  # [A, 9] bool
    tried: jax.Array  # [A, 9] int32: the number of the try, from 1; 0 for a cell that was not
    turn: jax.Array  # [] int32: the slot that moves
    over: jax.Array  # [] bool


class PhantomTicTacToe(MultiAgentEnv[State, Params]):
    """Tic-tac-toe in which players do not see each other's stones.

    A move to a cell that the opponent holds is rejected: the mover learns that the cell is taken
    and moves again; the opponent learns nothing (`obstype=reveal-nothing` in OpenSpiel). Slots are
    `x`, who moves first, and `o`. An action is the row-major index of a cell; cells that the player
    has not tried yet are legal, and an illegal action loses at once. At the step that ends the
    game, both lives terminate; the winner receives 1 and the loser -1, or both 0 in a draw.
    `info["metrics"]` then has a 1 in `win`, `draw` or `loss` of each slot, and `refused` counts its
    rejected moves.

    A slot's features `[101]` are zeros and ones: its seat (2), its stones (9), the opponent's
    stones that it has found (9), and the cell of each of its attempts (9 x 9). They contain all
    that the player knows, in order, so a feed-forward policy loses nothing. For centralised critics
    `state` `[19]` has the stones of both players and whose turn it is.
    """

    name = "phantom_tic_tac_toe"
    agents = AGENTS

    @property
    def max_actors(self) -> int:
        """Count who can move at one step: one player."""
        return 1

    @property
    def default_params(self) -> Params:
        """Return an empty struct, since there are no numeric parameters."""
        return Params()

    @property
    def action_names(self) -> tuple[str, ...]:
        """Name the cells as on a chess board, the first row at the top."""
        return tuple(cell_name(cell, _SIDE) for cell in range(_CELLS))

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Observation, State]:
        """Begin with an empty board and x to move; takes no chance from `key`."""
        state = State(
            stones=jnp.zeros((2, _CELLS), bool),
            tried=jnp.zeros((2, _CELLS), jnp.int32),
            turn=jnp.int32(0),
            over=jnp.bool_(False),
        )
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> StepResult[State]:
        """Let the mover try a cell; a game that is over stays as it is.

        `action` is `[2]` int.
        """
        to_move = jnp.arange(2) == state.turn  # [A]
        cell = jnp.arange(_CELLS) == jnp.where(state.turn == 0, action[0], action[1])  # [cells]
        mine = to_move[:, None] & cell & ~state.over  # [A, cells]
        legal = (mine & (state.tried == 0)).any()
        refused = legal & (cell & state.stones.any(0)).any()
        placed = legal & ~refused
        count = (state.tried > 0).sum(-1, keepdims=True)  # [A, 1]
        stones = state.stones | (mine & placed)
        held = (to_move[:, None] & stones).any(0)  # [cells]: the mover's
        lined_up = placed & (held | ~LINES).all(-1).any()
        drawn = placed & ~lined_up & stones.any(0).all()
        lost = ~legal & ~state.over
        ended = lined_up | drawn | lost
        next_state = State(
            stones=stones,
            tried=jnp.where(mine & legal, count + 1, state.tried),
            turn=jnp.where(placed, 1 - state.turn, state.turn),
            over=state.over | ended,
        )
        win, loss = jnp.where(to_move, lined_up, lost), jnp.where(to_move, lost, lined_up)
        metrics = {
            "win": win,
            "draw": jnp.broadcast_to(drawn, (2,)),
            "loss": loss,
            "refused": to_move & refused,
        }
        info = {"metrics": {name: value.astype(jnp.float32) for name, value in metrics.items()}}
        reward = (win.astype(jnp.int32) - loss.astype(jnp.int32)).astype(jnp.float32)
        terminated = jnp.broadcast_to(ended, (2,))
        obs = self.observe(next_state)
        return obs, next_state, reward, terminated, jnp.zeros(2, bool), info

    def observe(self, state: State) -> Observation:
        """Show each player its own stones and what it has run into."""
        tries = jnp.arange(1, _CELLS + 1)[:, None] == state.tried[:, None]  # [A, tries, cells]
        met = (state.tried > 0) & ~state.stones
        parts = (jnp.eye(2, dtype=bool), state.stones, met, tries.reshape(2, -1))
        alive = jnp.broadcast_to(~state.over, (2,))
        acts = alive & (jnp.arange(2) == state.turn)
        return Observation(
            features=jnp.concatenate(parts, axis=-1).astype(jnp.float32),
            # All is allowed to those who do not act.
            action_mask=(state.tried == 0) | ~acts[:, None],
            alive=alive,
            agent_mask=acts,
            state=jnp.append(state.stones.ravel(), state.turn == 1).astype(jnp.float32),
        )

    def observation_space(self, agent: str, params: Params) -> Box:
        """Return the space of zeros and ones, `[101]`."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (2 + 2 * _CELLS + _CELLS * _CELLS,))

    def action_space(self, agent: str, params: Params) -> Discrete:
        """Return one action for each cell."""
        self.agent_index(agent)
        return Discrete(_CELLS)

    def horizon(self, params: Params) -> int:
        """Bound a game by nine stones and eight moves that are rejected."""
        return _MAX_TRIES

    def render(self, state: State, params: Params | None = None, last_action: Any = None) -> str:
        """Draw the stones of both, and frame the cell that was tried last."""
        del params, last_action
        stones, tried = np.asarray(state.stones), np.asarray(state.tried)
        cells = np.where(stones[0], 0, np.where(stones[1], 1, -1)).reshape(_SIDE, _SIDE)
        met = [
            ", ".join(cell_name(int(c), _SIDE) for c in np.flatnonzero((t > 0) & ~s)) or "nothing"
            for s, t in zip(stones, tried, strict=True)
        ]
        line = winning_line(cells, _SIDE)
        turn = "over" if bool(state.over) else f"{AGENTS[int(state.turn)]} to move"
        title = (
            f"x has {int(stones[0].sum())} stones and has run into {met[0]}; "
            f"o has {int(stones[1].sum())} and has run into {met[1]}; {turn}"
        )
        return draw_stones(cells, title, _last_tried(state), line)

    def sign(self, agent: str) -> str:
        """Return a player's stone."""
        return stone_sign(self.agent_index(agent))


def _last_tried(state: State) -> int | None:
    """Find the cell that was tried last; None before the first move."""
    stones, tried, turn = np.asarray(state.stones), np.asarray(state.tried), int(state.turn)
    cells = tried.argmax(-1)
    # Whose last try was rejected is still to move; else the other one has moved.
    refused = tried[turn].any() and not stones[turn, cells[turn]]
    player = turn if refused else 1 - turn
    return int(cells[player]) if tried[player].any() else None
