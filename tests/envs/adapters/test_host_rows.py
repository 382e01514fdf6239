"""Rows of games in the memory of several processes, and messages beside them."""

import socket
from array import array

import numpy as np
import pytest

from jaxmarl_envs.adapters.incoming.host_channel import Channel
from jaxmarl_envs.adapters.incoming.host_rows import Frame, GameStep, Rows, RowSpec, shared_file
from jaxmarl_envs.adapters.incoming.host_worker import Games, Request

NUM_AGENTS = 2
SPEC = RowSpec(features=(NUM_AGENTS, 3), options=5, metrics=1)


@pytest.fixture
def ends():
    """The rows of one file, as its writer and its reader have them."""
    with shared_file() as file:
        yield Rows(SPEC, file), Rows(SPEC, file)


def random_arrays(specs, num_games, rng):
    return [(rng.random((num_games, *shape)) * 2).astype(dtype) for shape, dtype in specs]


def expect_same(found, expected):
    for own, other in zip(found, expected, strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("numbers", [[0], [2, 4, 6], [4, 0, 1], [6, 4, 2], [3, 3]])
def test_what_is_written_is_read_in_the_order_that_is_asked_for(ends, numbers):
    writer, reader = ends
    writer.reach(8)
    reader.reach(8)
    rng = np.random.default_rng(0)
    frame = Frame(*random_arrays(SPEC.frame, 8, rng))
    outcome = GameStep(*random_arrays(SPEC.outcome, 8, rng))
    writer.write(list(range(8)), frame, outcome)
    final, found_outcome, found = reader.read(numbers, [])
    expect_same(found, [column[numbers] for column in frame])
    expect_same(found_outcome, [column[numbers] for column in outcome])
    assert final is found


def test_games_with_a_final_observation_of_their_own_have_it(ends):
    writer, reader = ends
    writer.reach(8)
    reader.reach(8)
    rng = np.random.default_rng(0)
    now = Frame(*random_arrays(SPEC.frame, 8, rng))
    before = Frame(*random_arrays(SPEC.frame, 8, rng))
    writer.write(list(range(8)), now, None)
    for row in (6, 2):
        writer.keep_final(row, Frame(*(column[row] for column in before)))
    final, _, found = reader.read([2, 4, 6], [6, 2])
    expect_same(found, [column[[2, 4, 6]] for column in now])
    expected = [np.stack([b[2], n[4], b[6]]) for b, n in zip(before, now, strict=True)]
    expect_same(final, expected)


def test_arrays_of_a_row_stay_it_as_there_are_more_rows(ends):
    """A game keeps the arrays that it was given, however many others come."""
    writer, reader = ends
    writer.reach(1)
    mine = writer.frame.features[0]
    for num_rows in (2, 5, 1_000):
        reader.reach(num_rows)
        writer.reach(num_rows)
        mine[...] = num_rows
        writer.frame.features[num_rows - 1] = -num_rows
        found = reader.read([0, num_rows - 1], [])[2].features
        np.testing.assert_array_equal(found[0], np.full((NUM_AGENTS, 3), num_rows))
        np.testing.assert_array_equal(found[1], np.full((NUM_AGENTS, 3), -num_rows))


def test_evenly_spaced_rows_are_read_without_a_copy(ends):
    _, reader = ends
    reader.reach(8)
    assert np.shares_memory(reader.read([1, 3, 5], [])[2].features, reader.frame.features)
    assert not np.shares_memory(reader.read([1, 3, 6], [])[2].features, reader.frame.features)


def test_agents_that_see_nothing_and_have_no_metrics_have_rows():
    spec = RowSpec(features=(NUM_AGENTS, 0), options=1, metrics=0)
    with shared_file() as file:
        rows = Rows(spec, file)
        rows.reach(3)
        rows.frame.alive[:3] = True
        _, outcome, frame = rows.read([0, 1, 2], [])
    assert frame.features.shape == (3, NUM_AGENTS, 0)
    assert outcome.metrics.shape == (3, NUM_AGENTS, 0)
    assert not outcome.terminated.any()
    assert frame.alive.all()


class Succession:
    """A game in whose slots others live from the step on at which agents' lives end."""

    repeats, renews = True, False

    def write_to(self, features, action_mask, outcome):
        self.features, self.action_mask, self.outcome = features, action_mask, outcome

    def frame(self, features):
        flags = np.ones(NUM_AGENTS, bool)
        return Frame(features, self.action_mask, flags, flags)

    def reset(self, seed):
        self.features[...] = seed
        return self.frame(self.features)

    def step(self, action):
        last = self.frame(self.features + 0.5)
        self.features[...] += 1
        self.outcome.reward[...] = action
        return last, self.outcome, self.frame(self.features)


def test_successors_leave_the_last_observations_of_others():
    with shared_file() as file:
        rows = Rows(SPEC, file)
        games = Games(Succession, array("q", [0]), rows)
        begin = {0: (10, np.empty(0)), 1: (20, np.empty(0))}
        games.play(Request([0, 3], [0, 3], begin, None, None))
        actions = np.array([[1, 2], [3, 4]], np.int32)
        finals = games.play(Request([0, 3], [0, 3], {}, actions, [30, 40]))
        final, outcome, now = rows.read([0, 3], finals)
        np.testing.assert_array_equal(final.features[:, 0, 0], [10.5, 20.5])
        np.testing.assert_array_equal(now.features[:, 0, 0], [11, 21])
        np.testing.assert_array_equal(outcome.reward, actions)


def test_messages_are_sent_whole():
    own, theirs = socket.socketpair()
    sender, receiver = Channel(own), Channel(theirs)
    sent = np.arange(1_000)
    sender.send(sent)
    found = receiver.receive()
    np.testing.assert_array_equal(found, sent)
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()
