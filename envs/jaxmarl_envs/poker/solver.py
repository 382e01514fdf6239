"""Exact values of policies in small poker games, over all of their information states.

Both players see all betting, so an information state is a node of it together with the mover's own
card and the public one. Letters: `V` nodes, `D` deals that differ, `I` information states, `N`
actions.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.poker.env import Poker, State
from jaxmarl_envs.poker.rules import AGENTS
from jaxmarl_envs.sequence_form import NOT_ACTED, Endings, SequenceForm


class InformationTable(SequenceForm):
    """All information states of a game, in the order of its betting; values are in antes.

    Args:
        env: the game.

    Attributes:
        deals: `[D, cards]` int, the deals by rank.
        chance: `[D]` float, how probable each of them is.
        node: `[I]` int, of the betting.
        mover: `[I]` int, the slot that is to act.
        action_mask: `[I, N]` bool.
        info: `[V, D]` int, the information state of the mover at each node of a deal; -1 where the
            betting is over.
    """

    def __init__(self, env: Poker) -> None:
        self.env = env
        betting = env.rules.betting
        self.deals, counts = np.unique(env.rules.deals, axis=0, return_counts=True)
        self.chance = counts / counts.sum()
        levels = self._tell_apart()
        sequence = self._sequences()
        mover = betting.mover[self.node]
        over = np.flatnonzero(betting.over)
        won = self.chance * self._winnings(over)  # [over, D]
        first, second = (each[over].reshape(-1, 1) for each in sequence)
        super().__init__(
            AGENTS,
            mover,
            action_mask=betting.legal[self.node],
            parent=sequence[mover, self.node, self._example],
            levels=levels,
            endings=[Endings(won.ravel(), (first, second))],
        )

    def states(self, rows: slice | np.ndarray = slice(None)) -> State:
        """Return a state of the environment in each information state, with leading axis `rows`."""
        cards = self.deals[self._example[rows]]
        return State(jnp.asarray(cards, jnp.int32), jnp.asarray(self.node[rows], jnp.int32))

    def _tell_apart(self) -> list[int]:
        """Number the information states; return where those of each node begin, and `I`."""
        betting, rules = self.env.rules.betting, self.env.rules
        ranks = len(rules.ranks)
        self.info = np.full((len(betting.over), len(self.deals)), -1)
        levels, nodes, examples = [0], [], []
        for node in np.flatnonzero(~betting.over):
            sees = self.deals[:, betting.mover[node]]
            if betting.public[node]:
                sees = sees + ranks * self.deals[:, 2]
            _, first, which = np.unique(sees, return_index=True, return_inverse=True)
            self.info[node] = levels[-1] + which
            levels.append(levels[-1] + len(first))
            nodes.append(np.full(len(first), node))
            examples.append(first)
        self.node = np.concatenate(nodes)
        self._example = np.concatenate(examples)  # [I]: a deal in which each occurs
        return levels

    def _sequences(self) -> np.ndarray:
        """Find the sequence of each player at every node of a deal, `[2, V, D]`."""
        betting = self.env.rules.betting
        sequence = np.full((len(AGENTS), *self.info.shape), NOT_ACTED)
        for node in np.flatnonzero(~betting.over):
            for action in np.flatnonzero(betting.legal[node]):
                child = betting.child[node, action]
                sequence[:, child] = sequence[:, node]
                taken = 1 + self.info[node] * betting.legal.shape[1] + action
                sequence[betting.mover[node], child] = taken
        return sequence

    def _winnings(self, nodes: np.ndarray) -> np.ndarray:
        """Compute what the first player wins at each node for each deal, `[nodes, D]`, in antes."""
        states = State(
            cards=jnp.asarray(np.tile(self.deals, (len(nodes), 1))),
            node=jnp.asarray(np.repeat(nodes, len(self.deals)), jnp.int32),
        )
        won = jax.jit(jax.vmap(self.env.winnings))(states)[:, 0]
        return np.asarray(won, np.float64).reshape(len(nodes), -1)
