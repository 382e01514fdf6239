"""Exact values of policies in phantom tic-tac-toe, over all of its 5,990,669 information states.

The game has some 10^10 histories: a player's rejected tries fall between those of the other in many
orders. What one player can have tried depends on the other's stones alone, though, so the tries of
both combine freely, given the order in which stones were placed. There are 209,088 such orders in
which somebody wins, and at most 266 ways for a player to have found stones of the other on the way.

Letters: `I` information states of both players, `N` cells, `B` boards, `W` ways.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.phantom_tic_tac_toe.env import LINES, State
from jaxmarl_envs.sequence_form import NOT_ACTED, Endings, SequenceForm
from jaxmarl_envs.tic_tac_toe.board import AGENTS


class _Ways(NamedTuple):
    """How a player can have got to boards by its own tries."""

    at: np.ndarray  # [B, W] int32: its sequence, or its information state
    found: list[frozenset[int]]  # [W]: which of the other's stones it has found, by their move


class _Level(NamedTuple):
    """Information states of one player with equally many stones and tries since the last one."""

    mover: int
    parent: np.ndarray  # [level] int32, the sequences that they follow
    after_stone: bool  # whether these ended with a stone, and not with a try that was rejected


class InformationTable(SequenceForm):
    """All information states of the game, by the number of stones and of tries since the last one.

    An information state is which cells a player has tried, in which order, and which of them the
    other held. The table takes 1.3 GB, and about ten seconds to make.

    Args:
        lines: `[lines, N]` bool, the cells of each line that wins.

    Attributes:
        mover: `[I]` int8, the slot that is to act.
        action_mask: `[I, N]` bool, the cells that it has not tried.
    """

    def __init__(self, lines: np.ndarray = LINES) -> None:
        self._num_cells = lines.shape[1]
        self._found: list[_Level] = []
        endings = self._enumerate(lines)
        sizes = [len(level.parent) for level in self._found]
        self._tries = self._replay()
        super().__init__(
            AGENTS,
            mover=np.repeat(np.array([level.mover for level in self._found], np.int8), sizes),
            action_mask=self._tries == 0,
            parent=np.concatenate([level.parent for level in self._found]),
            levels=[0, *np.cumsum(sizes)],
            endings=endings,
        )

    def states(self, rows: slice | np.ndarray = slice(None)) -> State:
        """Return a state of the environment in each information state, with leading axis `rows`.

        The other player's stones and tries are left out, so only the mover's observation holds.
        """
        moves = self.mover[rows, None] == np.arange(2)  # [rows, A]
        tries = np.where(moves[..., None], self._tries[rows, None], 0)
        return State(
            stones=jnp.asarray(tries > 0),
            tried=jnp.asarray(np.abs(tries), jnp.int32),
            turn=jnp.asarray(self.mover[rows], jnp.int32),
            over=jnp.zeros(len(moves), bool),
        )

    def _enumerate(self, lines: np.ndarray) -> list[Endings]:
        """List information states and the endings that somebody wins, a move at a time."""
        boards = np.zeros((1, 0), np.int8)  # [B, moves]: the cells of the stones, in their order
        ways = [_Ways(np.full((1, 1), NOT_ACTED, np.int32), [frozenset()]) for _ in AGENTS]
        endings = []
        for move in range(self._num_cells):
            if not len(boards):
                break
            mover = move % 2
            turn = self._turn(boards, ways[mover], mover)
            taken = (boards[:, :, None] == np.arange(self._num_cells)).any(1)  # [B, N]
            before, cell = np.nonzero(~taken)
            boards = np.concatenate([boards[before], cell[:, None].astype(np.int8)], 1)
            ways[mover] = _Ways(self._sequence(turn.at[before], cell[:, None]), turn.found)
            ways[1 - mover] = ways[1 - mover]._replace(at=ways[1 - mover].at[before])
            own = (boards[:, mover::2, None] == np.arange(self._num_cells)).any(1)
            won = (own[:, None] | ~lines).all(-1).any(1)  # [B]
            first, second = (each.at[won] for each in ways)
            endings.append(Endings(np.full(won.sum(), 1.0 - 2 * mover), (first, second)))
            boards = boards[~won]
            ways = [each._replace(at=each.at[~won]) for each in ways]
        return [each for each in endings if len(each.payoff)]

    def _turn(self, boards: np.ndarray, ways: _Ways, mover: int) -> _Ways:
        """Let the mover try cells that the other holds; return where it may then place a stone."""
        others = range(1 - mover, boards.shape[1], 2)
        tries = [ways._replace(at=self._number(ways.at, mover, after_stone=True))]
        while True:
            at, found = tries[-1]
            more = [(way, stone) for way, known in enumerate(found) for stone in others
                    if stone not in known]  # fmt: skip
            if not more:
                break
            way, stone = np.array(more).T
            rejected = self._sequence(at[:, way], boards[:, stone])
            after = self._number(rejected, mover, after_stone=False)
            tries.append(_Ways(after, [found[way] | {stone} for way, stone in more]))
        return _Ways(
            np.concatenate([each.at for each in tries], 1),
            [known for each in tries for known in each.found],
        )

    def _number(self, sequence: np.ndarray, mover: int, after_stone: bool) -> np.ndarray:
        """Make a level of the information states that follow sequences `[B, W]`; return theirs."""
        low = sequence.min()
        seen = np.zeros(sequence.max() - low + 1, bool)
        seen[sequence - low] = True
        first = sum(len(level.parent) for level in self._found)
        parent = (low + np.flatnonzero(seen)).astype(np.int32)
        self._found.append(_Level(mover, parent, after_stone))
        return (np.cumsum(seen, dtype=np.int32) + np.int32(first - 1))[sequence - low]

    def _sequence(self, info: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return the sequences in which cells are tried in information states."""
        return 1 + info * np.int32(self._num_cells) + cell.astype(np.int32)

    def _replay(self) -> np.ndarray:
        """Number each cell's try, `[I, N]` int8: from 1, negative if rejected, 0 for no try."""
        num_info_states = sum(len(level.parent) for level in self._found)
        tries = np.zeros((num_info_states, self._num_cells), np.int8)
        begin = 0
        for level in self._found:
            rows = np.arange(begin, begin := begin + len(level.parent))
            if level.parent[0] == NOT_ACTED:
                continue
            info, cell = np.divmod(level.parent - 1, self._num_cells)
            count = (tries[info] != 0).sum(1, dtype=np.int8) + 1
            tries[rows] = tries[info]
            tries[rows, cell] = count if level.after_stone else -count
        return tries
