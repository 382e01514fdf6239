"""Exact values of policies in small poker games, over all of their information states.

Both players see all betting, so an information state is a node of it together with the mover's own
card and the public one. Everything here is a pass over the nodes with all deals side by side.
Letters: `V` nodes, `D` deals that differ, `I` information states, `N` actions.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.poker.env import Poker, State
from jaxmarl_envs.poker.rules import AGENTS
from jaxmarl_envs.policy_table import checked_policy, most_probable, uniform_over


class InformationTable:
    """All information states of a game, in the order of its betting.

    A *policy* is an `[I, N]` table of probabilities, a row for each information state of either
    player, so that one table plays both seats. Actions that are not allowed have probability 0.

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
        self._betting = betting = env.rules.betting
        self.deals, counts = np.unique(env.rules.deals, axis=0, return_counts=True)
        self.chance = counts / counts.sum()
        self._decisions = np.flatnonzero(~betting.over)
        self._tell_apart()
        ends = np.flatnonzero(betting.over)
        self._winnings = np.zeros(self.info.shape)  # [V, D]: the first player's, in antes
        states = State(
            cards=jnp.asarray(np.tile(self.deals, (len(ends), 1))),
            node=jnp.asarray(np.repeat(ends, len(self.deals)), jnp.int32),
        )
        won = np.asarray(jax.jit(jax.vmap(env.winnings))(states))[:, 0]
        self._winnings[ends] = won.reshape(len(ends), -1)

    @property
    def num_info_states(self) -> int:
        """Count the information states of both players, `I`."""
        return len(self.node)

    def states(self) -> State:
        """Return a state of the environment in each information state, with leading axis `I`."""
        cards = self.deals[self._example]
        return State(jnp.asarray(cards, jnp.int32), jnp.asarray(self.node, jnp.int32))

    def expected_value(self, first: np.ndarray, second: np.ndarray) -> float:
        """Compute what `first` wins per game from the first seat against `second`, in antes.

        Raises:
            ValueError: For a table that is not a policy.
        """
        policies = self._checked(first), self._checked(second)
        policy = np.where(self.mover[:, None] == 0, *policies)
        return float((self._reach(policy, AGENTS) * self._winnings).sum())

    def best_response_value(self, policy: np.ndarray, seat: str) -> float:
        """Compute the most that `seat` can win per game when `policy [I, N]` has the other seat.

        In antes.

        Raises:
            ValueError: For a table that is not a policy, or an unknown seat.
        """
        if seat not in AGENTS:
            raise ValueError(f"seat={seat!r}: valid choices: {', '.join(AGENTS)}")
        slot, betting = AGENTS.index(seat), self._betting
        others = [agent for agent in AGENTS if agent != seat]
        # Every value is weighed by how often chance and the other player allow it.
        values = self._reach(self._checked(policy), others) * self._winnings * (1 - 2 * slot)
        every_deal = np.arange(len(self.deals))
        for node in reversed(self._decisions):
            allowed = betting.legal[node]
            children = np.where(allowed[:, None], values[betting.child[node]], 0.0)  # [N, D]
            if betting.mover[node] != slot:
                values[node] = children.sum(0)
                continue
            # One choice for all deals that look alike.
            states, which = np.unique(self.info[node], return_inverse=True)
            alike = np.arange(len(states))[:, None] == which  # [states, D]
            worth = np.where(allowed, alike @ children.T, -np.inf)  # [states, N]
            values[node] = children[worth.argmax(1)[which], every_deal]
        return float(values[0].sum())

    def exploitability(self, policy: np.ndarray) -> float:
        """Average the best response's winnings against `policy [I, N]` over both seats, in antes.

        Half of NashConv (Lanctot et al. 2017): 0 exactly for an equilibrium.
        """
        return sum(self.best_response_value(policy, seat) for seat in AGENTS) / 2

    def uniform_policy(self) -> np.ndarray:
        """Assign every allowed action the same probability, `[I, N]`."""
        return uniform_over(self.action_mask)

    def greedy(self, policy: np.ndarray) -> np.ndarray:
        """Make the policy that always takes the most probable action of `policy [I, N]`.

        Among equally probable actions it takes the first one.
        """
        return most_probable(self._checked(policy))

    def _tell_apart(self) -> None:
        """Number the information states."""
        betting, rules = self._betting, self.env.rules
        ranks = len(rules.ranks)
        self.info = np.full((len(betting.over), len(self.deals)), -1)
        nodes, examples = [], []
        for node in self._decisions:
            sees = self.deals[:, betting.mover[node]]
            if betting.public[node]:
                sees = sees + ranks * self.deals[:, 2]
            _, first, which = np.unique(sees, return_index=True, return_inverse=True)
            self.info[node] = sum(map(len, nodes)) + which
            nodes.append(np.full(len(first), node))
            examples.append(first)
        self.node = np.concatenate(nodes)
        self.mover = betting.mover[self.node]
        self.action_mask = betting.legal[self.node]
        self._example = np.concatenate(examples)  # [I]: a deal in which each occurs

    def _reach(self, policy: np.ndarray, agents: tuple[str, ...] | list[str]) -> np.ndarray:
        """Compute how often chance and `agents`, by `policy`, allow each node of a deal, `[V, D]`.

        What others do counts as certain.
        """
        betting = self._betting
        reach = np.zeros(self.info.shape)
        reach[0] = self.chance
        for node in self._decisions:
            decides = AGENTS[betting.mover[node]] in agents
            for action in np.flatnonzero(betting.legal[node]):
                odds = policy[self.info[node], action] if decides else 1.0
                reach[betting.child[node, action]] = reach[node] * odds
        return reach

    def _checked(self, policy: np.ndarray) -> np.ndarray:
        return checked_policy(policy, self.action_mask, "actions")
