"""Rules of small two-player limit poker, and all betting that they allow as a table.

Letters: `V` nodes of the betting, `N` actions, `R` rounds, `B` actions that a round can have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import jax
import numpy as np

AGENTS = ("first", "second")
ACTIONS = ("fold", "call", "raise")
FOLD, CALL, RAISE = range(len(ACTIONS))
NOBODY = -1


@dataclass(frozen=True)
class _Node:
    """A point in the betting, whatever the cards are."""

    rounds: tuple[str, ...] = ("",)  # of each round begun, its calls "c" and raises "r"
    paid: tuple[int, int] = (1, 1)  # in antes, by each player
    folded: int = NOBODY  # who has
    over: bool = False

    @property
    def mover(self) -> int:
        """Return whose turn it is: the first player begins every round."""
        return len(self.rounds[-1]) % 2


@dataclass(frozen=True)
class Rules:
    """A deck, and how it is bet on.

    Both players pay an ante and get a card of their own. In every round the first player begins;
    whoever is to act calls (if there is nothing to pay, checks), raises, or folds where there is
    something to pay. With two rounds a public card is turned up between them. Then the higher card
    wins, and a pair with the public card beats all others; equal cards share the pot.

    Attributes:
        ranks: names of the cards, ascending.
        copies: cards of each rank.
        raises: of each round, by how many antes a raise raises.
        max_raises: in a round, by both players together.
    """

    ranks: tuple[str, ...]
    copies: int
    raises: tuple[int, ...]
    max_raises: int

    @property
    def num_cards(self) -> int:
        """Count the cards of a deal: one each, and the public one if there is one."""
        return 2 + self.has_public

    @property
    def has_public(self) -> bool:
        """Return whether there is a public card."""
        return len(self.raises) > 1

    @property
    def round_length(self) -> int:
        """Count the actions that a round can have at most, `B`: a check, raises, a call or fold."""
        return self.max_raises + 2

    @cached_property
    def deals(self) -> np.ndarray:
        """List all deals, equally likely, `[deals, cards]` int: each one's rank, the public one."""
        deck = np.repeat(np.arange(len(self.ranks)), self.copies)
        return np.array(list(permutations(deck, self.num_cards)), np.int32)

    @cached_property
    def betting(self) -> "Betting":
        """Make the table of the betting."""
        return _enumerate(self)

    def strength(self, cards: jax.Array) -> jax.Array:
        """Rank both hands of deals, `[..., cards]` to `[..., 2]` int."""
        own = cards[..., :2]
        return own + len(self.ranks) * (own == cards[..., 2:3]) if self.has_public else own

    def children(self, node: _Node) -> Mapping[int, _Node]:
        """Find what the allowed actions at a node lead to; nothing where the betting is over."""
        if node.over:
            return {}
        me, index = node.mover, len(node.rounds) - 1
        bets, level = node.rounds[-1], max(node.paid)
        found = {CALL: self._called(node)}
        if node.paid[me] < level:
            found[FOLD] = _Node(node.rounds, node.paid, folded=me, over=True)
        if bets.count("r") < self.max_raises:
            paid = [level + self.raises[index] if i == me else p for i, p in enumerate(node.paid)]
            found[RAISE] = _Node((*node.rounds[:-1], bets + "r"), (paid[0], paid[1]))
        return found

    def _called(self, node: _Node) -> _Node:
        bets = node.rounds[-1]
        level = max(node.paid)
        rounds, paid = (*node.rounds[:-1], bets + "c"), (level, level)
        # A first check leaves the turn to the other; any other call ends the round.
        if not bets:
            return _Node(rounds, paid)
        if len(rounds) == len(self.raises):
            return _Node(rounds, paid, over=True)
        return _Node((*rounds, ""), paid)


@dataclass(frozen=True)
class Betting:
    """Every node of the betting; node 0 is its beginning, and children come after their parents.

    Attributes:
        child: `[V, N]` int32, where an action leads to; an action that is not allowed leads to
            where a call does, and all stay where the betting is over.
        legal: `[V, N]` bool; nothing where the betting is over.
        mover: `[V]` int32, the slot whose turn it is.
        paid: `[V, 2]` int32, in antes.
        folded: `[V]` int32, who has; -1 for nobody.
        over: `[V]` bool.
        public: `[V]` bool, whether the public card can be seen.
        history: `[V, R, B, 2]` bool, whether the action at each place was a call, and a raise.
    """

    child: np.ndarray
    legal: np.ndarray
    mover: np.ndarray
    paid: np.ndarray
    folded: np.ndarray
    over: np.ndarray
    public: np.ndarray
    history: np.ndarray

    @cached_property
    def depth(self) -> int:
        """Count the actions of the longest betting."""
        depth = np.zeros(len(self.over), int)
        for node in np.flatnonzero(~self.over):
            reached = self.child[node][self.legal[node]]
            depth[reached] = np.maximum(depth[reached], depth[node] + 1)
        return int(depth.max())


def _enumerate(rules: Rules) -> Betting:
    nodes, child = [_Node()], []
    for node in nodes:  # which grows meanwhile
        after = rules.children(node)
        index = dict(zip(after, range(len(nodes), len(nodes) + len(after)), strict=True))
        child.append([index.get(a, index.get(CALL, len(child))) for a in range(len(ACTIONS))])
        nodes += after.values()
    history = np.zeros((len(nodes), len(rules.raises), rules.round_length, 2), bool)
    for row, node in zip(history, nodes, strict=True):
        for index, bets in enumerate(node.rounds):
            for place, action in enumerate(bets):
                row[index, place, "cr".index(action)] = True
    legal = [[action in rules.children(node) for action in range(len(ACTIONS))] for node in nodes]
    return Betting(
        child=np.array(child, np.int32),
        legal=np.array(legal),
        mover=np.array([node.mover for node in nodes], np.int32),
        paid=np.array([node.paid for node in nodes], np.int32),
        folded=np.array([node.folded for node in nodes], np.int32),
        over=np.array([node.over for node in nodes]),
        public=np.array([len(node.rounds) > 1 for node in nodes]),
        history=history,
    )


# Kuhn 1950, "A simplified two-person poker".
KUHN = Rules(ranks=("J", "Q", "K"), copies=1, raises=(1,), max_raises=1)
# Southey et al. 2005, "Bayes' bluff: opponent modelling in poker".
LEDUC = Rules(ranks=("J", "Q", "K"), copies=2, raises=(2, 4), max_raises=2)
