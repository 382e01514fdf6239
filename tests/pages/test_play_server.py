"""What the server of the page tells whom, and what it refuses."""

import contextlib
import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import jax
import pytest
from hybrid_env_deploy import Hybrid
from playing import served, tables_of
from probe_envs import tiny_learner
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from jaxmarl_ppo.pages.game_table import Table
from jaxmarl_ppo.pages.play_server import (
    MAX_AT_TABLE,
    MAX_TABLES,
    RejectedError,
    read_message,
    serve,
)
from jaxmarl_ppo.pages.server import MAX_MESSAGE_BYTES


@pytest.fixture(scope="module")
def address():
    with served(tables_of("tic_tac_toe", "minimax")) as found:
        yield found


def socket_address(address, table=None):
    parts = urlsplit(address)
    query = "" if table is None else f"?table={table}"
    return f"ws://{parts.netloc}{parts.path}ws{query}"


class Visitor:
    """Speaks as the page does."""

    def __init__(self, address, table=None, origin=None):
        parts = urlsplit(address)
        origin = f"http://{parts.netloc}" if origin is None else origin
        self.stack = contextlib.ExitStack()
        connection = connect(socket_address(address, table), origin=origin or None)
        self.socket = self.stack.enter_context(connection)
        first = self.hear()
        self.table, self.error = first.get("table"), first.get("error")
        self.view = self.hear() if self.table else None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def hear(self):
        return json.loads(self.socket.recv(timeout=30))

    def say(self, **message):
        self.socket.send(json.dumps(message))
        return self.hear()


def fetch(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.status, dict(response.headers), response.read().decode()


def status(url, **headers):
    try:
        return fetch(url, **headers)[0]
    except urllib.error.HTTPError as error:
        return error.code


def test_it_listens_on_this_machine_alone_and_only_to_who_knows_the_address(address):
    parts = urlsplit(address)
    assert parts.hostname == "127.0.0.1"
    code, headers, page = fetch(address)
    assert code == 200
    assert "no-referrer" in headers["referrer-policy"]
    assert "no-store" in headers["cache-control"]
    assert "connect-src 'self'" in page
    root = f"http://{parts.netloc}"
    for path in ("/", "/ws", parts.path[:-2] + "/", parts.path + "nothing", "/../" + parts.path):
        assert status(root + path) == 404
    assert len(parts.path) > 20
    with pytest.raises(InvalidStatus), connect(f"ws://{parts.netloc}/ws", origin=root):
        pass


def test_another_host_in_the_address_is_refused(address):
    """As where a name of somebody else's is made to point here."""
    assert status(address, Host="example.org") == 400


@pytest.mark.parametrize("origin", ["http://example.org", "null", ""])
def test_pages_from_elsewhere_cannot_connect(address, origin):
    with pytest.raises(InvalidStatus), connect(socket_address(address), origin=origin or None):
        pass


def test_a_game_over_the_wire(address):
    with Visitor(address) as one:
        assert one.view["mine"] == []
        view = one.say(do="begin", seats=[0])
        assert view["mine"] == [0]
        assert view["turn"] == [0]
        while not view["over"]:
            hints = one.say(do="hint", slot=0)
            assert hints["slot"] == 0
            view = one.say(do="act", slot=0, action=hints["hints"]["best"][0])
        assert view["agents"][0]["return"] == 0.0
        view = one.say(do="undo", slot=0)
        assert not view["over"]


def test_a_side_that_nobody_can_play_is_not_taken():
    """And an option of every choice goes over the wire."""
    learner = tiny_learner(Hybrid(), None)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    with served(lambda: Table(learner, population)) as address, Visitor(address) as one:
        one.socket.send(json.dumps({"do": "begin", "seats": [1]}))
        assert "people can play picker, pair" in one.hear()["error"]
        assert one.say(do="undo", slot=1) == {"error": "that side is not yours"}
        view = one.say(do="begin", seats=[3])
        assert view["mine"] == [3]
        assert view["legal"] == {"3": [[0, 1], [1, 2]]}
        view = one.say(do="act", slot=3, action=[1, 2])
        assert view["agents"][3]["return"] == 21.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"do": "begin"}',
        '{"do": "begin", "seats": [0], "more": 1}',
        '{"do": "begin", "seats": 0}',
        '{"do": "begin", "seats": [true]}',
        '{"do": "begin", "seats": [2]}',
        '{"do": "begin", "seats": [-1]}',
        '{"do": "act", "slot": 0, "action": 1.5}',
        '{"do": "act", "slot": 0, "action": "1"}',
        '{"do": "act", "slot": 7, "action": 1}',
        '{"do": "act", "slot": 0, "action": [1, 1.5]}',
        '{"do": "act", "slot": 0, "action": [[1]]}',
        '{"do": "undo", "slot": [0]}',
        '{"do": "leave"}',
        '{"do": ["act"]}',
        '{"do": "hint", "slot": null}',
        "[" * 500 + "]" * 500,
    ],
)
def test_what_is_no_message_ends_the_connection(address, text):
    with pytest.raises(RejectedError):
        read_message(text, 2)
    with Visitor(address) as one:
        one.socket.send(text)
        with pytest.raises(ConnectionClosed):
            one.hear()
        assert one.socket.close_code == 1008
    with Visitor(address) as other:  # and everybody else plays on
        assert other.view is not None


def test_long_messages_and_bytes_end_the_connection(address):
    for message in ("x" * (MAX_MESSAGE_BYTES + 1), b"{}"):
        with Visitor(address) as one:
            one.socket.send(message)
            with pytest.raises(ConnectionClosed):
                one.hear()


def test_what_cannot_be_done_is_said_to_who_asked_alone(address):
    with Visitor(address) as one, Visitor(address) as other:
        assert one.table != other.table
        assert "not yours" in one.say(do="act", slot=0, action=0)["error"]
        assert "choose a side" in one.say(do="begin", seats=[])["error"]
        one.say(do="begin", seats=[0])
        assert "not legal" in one.say(do="act", slot=0, action=1_000_000)["error"]
        assert "nothing to undo" in one.say(do="undo", slot=0)["error"]
        assert "not yours" in one.say(do="undo", slot=1)["error"]
        with pytest.raises(TimeoutError):
            other.socket.recv(timeout=0.3)


def test_tables_share_nothing(address):
    with Visitor(address) as one, Visitor(address) as other:
        one.say(do="begin", seats=[0])
        moved = one.say(do="act", slot=0, action=4)
        view = other.say(do="begin", seats=[0])
        assert view["picture"] != moved["picture"]
        assert view["people"] == 1


def test_two_at_a_table_play_each_other(address):
    with Visitor(address) as one, Visitor(address, one.table) as two:
        assert one.hear()["people"] == 2
        one.say(do="begin", seats=[0])
        two.hear()
        assert "somebody else" in two.say(do="begin", seats=[0])["error"]
        seen = two.say(do="begin", seats=[1])
        assert seen["legal"] == {}
        assert one.hear()["legal"]["0"] == list(range(9))
        for visitor, other, slot, action in (
            (one, two, 0, 0),
            (two, one, 1, 3),
            (one, two, 0, 1),
            (two, one, 1, 4),
            (one, two, 0, 2),
        ):
            wrong = other.say(do="act", slot=1 - slot, action=8)
            assert f"turn of {'xo'[slot]}" in wrong["error"]
            view = visitor.say(do="act", slot=slot, action=action)
            assert other.hear()["picture"] == view["picture"]
        assert view["over"]
        assert [agent["return"] for agent in view["agents"]] == [1.0, -1.0]
        two.stack.close()
        assert one.hear()["people"] == 1


def test_no_table_is_found_by_guessing(address):
    with Visitor(address, "guess") as one:
        assert one.table is None
        assert "no such table" in one.error


def test_tables_and_seats_at_them_are_limited(address):
    visitors = [Visitor(address)]
    try:
        visitors += [Visitor(address, visitors[0].table) for _ in range(MAX_AT_TABLE - 1)]
        late = Visitor(address, visitors[0].table)
        visitors.append(late)
        assert "full" in late.error
        visitors += [Visitor(address) for _ in range(MAX_TABLES - 1)]
        assert all(visitor.table for visitor in visitors[-MAX_TABLES + 1 :])
        visitors.append(Visitor(address))
        assert "taken" in visitors[-1].error
    finally:
        for visitor in visitors:
            visitor.stack.close()


def test_a_port_that_is_taken_is_said(address):
    port = urlsplit(address).port
    with pytest.raises(ValueError, match=f"port {port} cannot be used"):
        serve(tables_of("tic_tac_toe"), "", port, print)
