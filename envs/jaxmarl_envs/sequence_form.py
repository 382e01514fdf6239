"""Exact values of policies in zero-sum games of imperfect information for two, in sequence form.

Koller, Megiddo and von Stengel 1996, "Efficient computation of equilibria for extensive two-person
games". A *sequence* is all that a player has seen and done up to and including one of its actions.
It is an information state and an action, so sequence `1 + i * N + a` is action `a` in information
state `i`; sequence 0 is that of a player that has not acted yet. The value of two policies and of a
best response are sums over sequences, and never list the histories that share them.

Letters: `I` information states of both players, `N` actions, `Q = 1 + I * N` sequences, `Z`
endings, `W` ways.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxmarl_envs.policy_table import checked_policy, most_probable, uniform_over

NOT_ACTED = 0  # the sequence of a player that has not acted


class Endings(NamedTuple):
    """Ends of games, each of which stands for many histories.

    A player's *ways* to an ending are sequences, of which every one can be paired with every way of
    the other player: each pair is one history.
    """

    payoff: np.ndarray  # [Z] float: what the first player wins, times the probability of chance
    ways: tuple[np.ndarray, np.ndarray]  # [Z, W] int each, the sequences of either player


class SequenceForm:
    """A game for two in which nobody forgets what it saw and did.

    A *policy* is an `[I, N]` table of probabilities, a row for each information state of either
    player, so that one table plays both seats. Illegal actions have probability 0.

    Args:
        agents: the first player, whose winnings are the payoff, and the second, who pays them.
        mover: `[I]` int, the slot that acts.
        action_mask: `[I, N]` bool.
        parent: `[I]` int, the mover's sequence before each information state.
        levels: where groups of consecutive information states begin, and `I`. All of a group have
            the same mover, and their parents are in earlier groups.
        endings: those of all games, in groups of equal numbers of ways; ones without a payoff may
            be left out.
    """

    def __init__(
        self,
        agents: tuple[str, str],
        mover: np.ndarray,
        action_mask: np.ndarray,
        parent: np.ndarray,
        levels: Sequence[int],
        endings: Sequence[Endings],
    ) -> None:
        self.mover, self.action_mask = mover, action_mask
        self.parent, self.endings = parent, endings
        self.agents = agents
        self._levels = [slice(*bounds) for bounds in pairwise(levels)]

    @property
    def num_info_states(self) -> int:
        """Count the information states of both players, `I`."""
        return len(self.mover)

    def expected_value(self, first: np.ndarray, second: np.ndarray) -> float:
        """Compute what `first` wins per game from the first seat against `second`.

        Args:
            first: `[I, N]`; only the rows of the first player's information states matter.
            second: `[I, N]`; only those of the second player matter.

        Raises:
            ValueError: For a table that is not a policy.
        """
        reached = [self._reached(self._reach(policy), slot) for slot, policy in
                   enumerate((first, second))]  # fmt: skip
        return float(
            sum(
                (endings.payoff * by_first * by_second).sum()
                for endings, by_first, by_second in zip(self.endings, *reached, strict=True)
            )
        )

    def best_response_value(self, policy: np.ndarray, seat: str) -> float:
        """Compute the most that `seat` can win per game when `policy [I, N]` has the other seat.

        Raises:
            ValueError: For a table that is not a policy, or an unknown seat.
        """
        return float(self._respond(policy, seat)[NOT_ACTED])

    def best_response(self, policy: np.ndarray, seat: str) -> np.ndarray:
        """Make a deterministic policy, `[I, N]`, that wins `best_response_value` from `seat`.

        Rows of the other seat take the first legal action.

        Raises:
            ValueError: For a table that is not a policy, or an unknown seat.
        """
        rows = self._respond(policy, seat)[1:].reshape(self.action_mask.shape)
        return most_probable(np.where(self.action_mask, rows, -np.inf))

    def exploitability(self, policy: np.ndarray) -> float:
        """Average the best response's winnings against `policy [I, N]` over both seats.

        Half of NashConv (Lanctot et al. 2017): 0 exactly for an equilibrium.
        """
        return sum(self.best_response_value(policy, seat) for seat in self.agents) / 2

    def uniform_policy(self) -> np.ndarray:
        """Assign every legal action the same probability, `[I, N]`."""
        return uniform_over(self.action_mask)

    def greedy(self, policy: np.ndarray) -> np.ndarray:
        """Make the policy that always takes the most probable action of `policy [I, N]`.

        Among equally probable actions it takes the first one.
        """
        return most_probable(self._checked(policy))

    def _reach(self, policy: np.ndarray) -> np.ndarray:
        """Compute the probability that a player takes all actions of its sequence, `[Q]`."""
        policy, num_actions = self._checked(policy), self.action_mask.shape[1]
        reach = np.ones(1 + policy.size)
        for rows in self._levels:
            taken = reach[self.parent[rows], None] * policy[rows]
            reach[1 + rows.start * num_actions : 1 + rows.stop * num_actions] = taken.ravel()
        return reach

    def _reached(self, reach: np.ndarray, slot: int) -> Iterator[np.ndarray]:
        """Add up how often a player's actions allow the endings of each group, `[Z]`."""
        for endings in self.endings:
            yield reach[endings.ways[slot]].sum(1)

    def _respond(self, policy: np.ndarray, seat: str) -> np.ndarray:
        """Compute the most that `seat` wins after each of its own sequences, `[Q]`.

        Values are weighted by how often chance and the other player allow them.
        """
        if seat not in self.agents:
            raise ValueError(f"seat={seat!r}: valid choices: {', '.join(self.agents)}")
        slot = self.agents.index(seat)
        value = np.zeros(1 + self.action_mask.size)
        reached = self._reached(self._reach(policy), 1 - slot)
        for endings, by_other in zip(self.endings, reached, strict=True):
            ways, won = endings.ways[slot], endings.payoff * by_other * (1 - 2 * slot)
            sums = np.bincount(ways.ravel(), np.repeat(won, ways.shape[1]))
            value[: len(sums)] += sums
        rows_of_value = value[1:].reshape(self.action_mask.shape)  # a view
        for rows in reversed(self._levels):
            if self.mover[rows.start] == slot:
                best = np.where(self.action_mask[rows], rows_of_value[rows], -np.inf).max(1)
                np.add.at(value, self.parent[rows], best)
        return value

    def _checked(self, policy: np.ndarray) -> np.ndarray:
        return checked_policy(policy, self.action_mask, "actions")
