"""Exact values in sequence form against plain recursion, and against equilibria by programming."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

from jaxmarl_envs.phantom_tic_tac_toe import InformationTable as PhantomTable
from jaxmarl_envs.poker import InformationTable as PokerTable
from jaxmarl_envs.poker import KuhnPoker, LeducHoldem

# Lines of boards so small that every history can be listed, by the number of cells.
BOARDS = {
    "two_pairs": (4, [(0, 1), (2, 3)]),
    "two_pairs_and_a_cell": (5, [(0, 1), (2, 3)]),
    "a_pair_and_a_triple": (5, [(0, 1), (2, 3, 4)]),
    "three_triples": (5, [(0, 1, 2), (2, 3, 4), (0, 2, 4)]),
}


def lines_of(board):
    num_cells, lines = BOARDS[board]
    return np.array([[cell in line for cell in range(num_cells)] for line in lines])


def random_policy(table, seed):
    weights = np.random.default_rng(seed).exponential(size=table.action_mask.shape)
    weights = weights * table.action_mask
    return weights / weights.sum(1, keepdims=True)


# ---- Phantom tic-tac-toe on small boards, history by history -------------------------------------


class Plain:
    """Histories as two lists of tries `(cell, was placed)`; no way of sharing any of them."""

    def __init__(self, lines):
        self.num_cells = lines.shape[1]
        self.lines = [set(np.flatnonzero(line)) for line in lines]

    def stones(self, tries):
        return {cell for cell, placed in tries if placed}

    def mover(self, tries):
        return sum(len(self.stones(own)) for own in tries) % 2

    def result(self, tries):
        """Return what x has won; None while the game goes on."""
        for own, sign in zip(tries, (1, -1), strict=True):
            if any(line <= self.stones(own) for line in self.lines):
                return sign
        full = sum(len(self.stones(own)) for own in tries) == self.num_cells
        return 0 if full else None

    def legal(self, own):
        return [cell for cell in range(self.num_cells) if cell not in dict(own)]

    def act(self, tries, cell):
        mover = self.mover(tries)
        placed = cell not in self.stones(tries[1 - mover])
        return tuple(
            (*own, (cell, placed)) if slot == mover else own for slot, own in enumerate(tries)
        )

    def value(self, tries, policies):
        """Compute what x wins from here on."""
        result = self.result(tries)
        if result is not None:
            return result
        mover = self.mover(tries)
        own = tries[mover]
        return sum(
            policies[mover][mover, own][cell] * self.value(self.act(tries, cell), policies)
            for cell in self.legal(own)
        )

    def best_response_value(self, reached, slot, policy):
        """Compute the most that `slot` can win from histories `[(tries, weight)]` on."""
        decisions, total = {}, 0.0
        while reached:
            tries, weight = reached.pop()
            result, mover = self.result(tries), self.mover(tries)
            if result is not None:
                total += weight * result * (1 - 2 * slot)
            elif mover == slot:
                decisions.setdefault(tries[slot], []).append((tries, weight))
            else:
                odds = policy[mover, tries[mover]]
                reached += [
                    (self.act(tries, cell), weight * odds[cell])
                    for cell in self.legal(tries[mover])
                ]
        return total + sum(
            max(
                self.best_response_value(
                    [(self.act(tries, cell), weight) for tries, weight in alike], slot, policy
                )
                for cell in self.legal(own)
            )
            for own, alike in decisions.items()
        )

    def information_states(self, tries, found):
        if self.result(tries) is None:
            mover = self.mover(tries)
            found.add((mover, tries[mover]))
            for cell in self.legal(tries[mover]):
                self.information_states(self.act(tries, cell), found)
        return found


def keys_of(table):
    """Write each information state as the plain game does."""
    states = table.states()
    rows = np.arange(table.num_info_states)
    tried = np.asarray(states.tried)[rows, table.mover]
    stones = np.asarray(states.stones)[rows, table.mover]
    keys = []
    for mover, order, own in zip(table.mover, tried, stones, strict=True):
        cells = [int(order.argsort()[place]) for place in range(-(order > 0).sum(), 0)]
        keys.append((int(mover), tuple((cell, bool(own[cell])) for cell in cells)))
    return keys


@pytest.mark.parametrize("board", BOARDS)
def test_small_boards_have_the_values_of_plain_recursion(board):
    lines = lines_of(board)
    table, plain, start = PhantomTable(lines), Plain(lines), ((), ())
    keys = keys_of(table)
    assert len(set(keys)) == table.num_info_states
    assert set(keys) == plain.information_states(start, set())
    first, second = (random_policy(table, seed) for seed in range(2))
    by_key = [dict(zip(keys, policy, strict=True)) for policy in (first, second)]
    assert table.expected_value(first, second) == pytest.approx(
        plain.value(start, by_key), abs=1e-12
    )
    for slot, seat in enumerate("xo"):
        other = by_key[1 - slot]
        found = table.best_response_value((first, second)[1 - slot], seat)
        assert found == pytest.approx(
            plain.best_response_value([(start, 1.0)], slot, other), abs=1e-12
        )


# ---- Equilibria ----------------------------------------------------------------------------------


def equilibrium(table):
    """Solve a game by linear programming: the first player's policy, and what it wins per game.

    Variables are the first player's probabilities of its sequences and, for each information state
    of the second player, the most that the first can win from there on.
    """
    num_info, num_actions = table.action_mask.shape
    num_sequences = 1 + table.action_mask.size
    sequence = 1 + np.arange(table.action_mask.size).reshape(num_info, num_actions)
    first, second = (np.flatnonzero(table.mover == slot) for slot in range(2))

    def matrix(rows, cols, values=1.0):
        rows, cols, values = map(np.ravel, np.broadcast_arrays(rows, cols, values))
        shape = (num_sequences, num_sequences + num_info)
        return coo_array((values, (rows, cols)), shape).tocsr()

    # For each sequence of the second player: the value before it, less that of what follows.
    gap = matrix(sequence[second], num_sequences + second[:, None])
    gap -= matrix(table.parent[second], num_sequences + second)
    for endings in table.endings:
        own, other = endings.ways
        gap -= matrix(other[:, :, None], own[:, None], endings.payoff[:, None, None])
    # Sequences out of an information state of the first player add up to the one into it.
    adds_up = matrix(first[:, None], sequence[first]) - matrix(first, table.parent[first])
    upper = np.concatenate([[1.0], table.action_mask.ravel(), np.full(num_info, np.inf)])
    lower = np.concatenate([[1.0], np.zeros(sequence.size), np.full(num_info, -np.inf)])
    taken = sequence[table.action_mask & (table.mover == 1)[:, None]]
    found = linprog(
        gap[[0]].toarray()[0],
        A_ub=gap[taken],
        b_ub=np.zeros(len(taken)),
        A_eq=adds_up[first],
        b_eq=np.zeros(len(first)),
        bounds=np.stack([lower, upper], 1),
    )
    weights = np.maximum(found.x[sequence], 0) + 1e-15 * table.action_mask
    return weights / weights.sum(1, keepdims=True), -found.fun


GAMES = {
    "kuhn_poker": (lambda: PokerTable(KuhnPoker()), -1 / 18),
    "leduc_holdem": (lambda: PokerTable(LeducHoldem()), -0.085606),  # as in OpenSpiel
    # x wins unless o meets its first stone or the cell beside it: two cells of four.
    "two_pairs": (lambda: PhantomTable(lines_of("two_pairs")), 1 / 2),
    "a_pair_and_a_triple": (lambda: PhantomTable(lines_of("a_pair_and_a_triple")), 0),
}


@pytest.mark.parametrize(("make", "known"), GAMES.values(), ids=list(GAMES))
def test_no_response_to_an_equilibrium_wins_more_than_the_value_of_the_game(make, known):
    table = make()
    policy, value = equilibrium(table)
    assert value == pytest.approx(known, abs=1e-6)
    seats = table.agents
    assert -table.best_response_value(policy, seats[1]) == pytest.approx(value, abs=1e-6)
    # Any other policy gives both sides of the value away.
    other = random_policy(table, 0)
    assert -table.best_response_value(other, seats[1]) < value - 0.01
    assert table.best_response_value(other, seats[0]) > value + 0.01


@pytest.mark.parametrize(("make", "known"), GAMES.values(), ids=list(GAMES))
def test_a_best_response_wins_what_it_is_said_to(make, known):
    table = make()
    policy = random_policy(table, 1)
    for slot, seat in enumerate(table.agents):
        response = table.best_response(policy, seat)
        pair = (response, policy) if slot == 0 else (policy, response)
        won = (1 - 2 * slot) * table.expected_value(*pair)
        assert won == pytest.approx(table.best_response_value(policy, seat), abs=1e-12)
        assert won > (1 - 2 * slot) * table.expected_value(policy, policy) + 0.01
