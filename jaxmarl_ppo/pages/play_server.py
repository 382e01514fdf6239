"""A local page for playing against policies and against other people.

Anyone who knows the address, which contains a secret, can open a table, or join another by its
name; other tables stay hidden. Any invalid message ends its connection.
"""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

from jaxmarl_ppo.pages.game_table import Table
from jaxmarl_ppo.pages.page import describe_env, make_page, read_static
from jaxmarl_ppo.pages.server import HEADERS, HOSTS, serve_app

STATIC = ("base.css", "play.css", "base.js", "play_socket.js", "play.js")
MAX_TABLES = 32
MAX_AT_TABLE = 16
# Requests to a table, and their arguments: integers, or lists of them.
MESSAGES = {"begin": ("seats",), "act": ("slot", "action"), "undo": ("slot",), "hint": ("slot",)}
POLICY_VIOLATION = 1008  # of RFC 6455


class RejectedError(Exception):
    """Raised when a message of the page is invalid, or its sender may not send it."""


class Room:
    """A table with its people."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.lock = threading.Lock()  # games are played in threads
        self.sockets: list[Any] = []
        # The holders of slots; a slot without a holder may be taken.
        self.holders: dict[int, Any] = {}

    def answer(self, socket: Any, message: dict[str, Any]) -> dict[str, Any]:
        """Handle a message; return the answer for its sender alone.

        Raises:
            RefusedError: If the sender may not send it.
            ValueError: If it cannot be done now.
        """
        with self.lock:
            if message["do"] == "begin":
                self._begin(socket, message["seats"])
                return {}
            slot = message["slot"]
            if self.holders.get(slot) is not socket:
                raise ValueError("that side is not yours")
            if message["do"] == "hint":
                return {"hints": self.table.hints(slot), "slot": slot}
            if message["do"] == "act":
                self.table.act(slot, message["action"])
            else:
                self.table.undo(slot)
        return {}

    def view(self, socket: Any) -> dict[str, Any]:
        """Return one person's view."""
        with self.lock:
            view = self.table.view()
        mine = [slot for slot, holder in self.holders.items() if holder is socket]
        view["mine"] = mine
        view["legal"] = {k: v for k, v in view["legal"].items() if int(k) in mine}
        view["people"] = len(self.sockets)
        return view

    def _begin(self, socket: Any, seats: list[int]) -> None:
        held = {slot: s for slot, s in self.holders.items() if s is not socket}
        if any(slot in held for slot in seats):
            raise ValueError("somebody else holds that side")
        if not held and not seats:
            raise ValueError("choose a side to play")
        holders = {**held, **dict.fromkeys(seats, socket)}
        self.table.begin(holders)
        self.holders = holders

    def leave(self, socket: Any) -> None:
        """Remove a person from the table; a policy takes over at the next game."""
        self.sockets.remove(socket)
        self.holders = {slot: s for slot, s in self.holders.items() if s is not socket}


def read_message(text: str, num_agents: int) -> dict[str, Any]:
    """Parse a message of the page.

    Raises:
        RefusedError: If it is anything else.
    """
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise RejectedError("no JSON") from None
    wanted = MESSAGES.get(message.get("do")) if _is_table(message) else None
    if wanted is None or message.keys() != {"do", *wanted}:
        raise RejectedError("no message of the page")
    for name in wanted:
        is_list = name == "seats" or (name == "action" and isinstance(message[name], list))
        numbers = message[name] if is_list else [message[name]]
        if not isinstance(numbers, list) or not all(type(x) is int for x in numbers):
            raise RejectedError(f"{name} is no whole number")
        if name != "action" and not all(0 <= x < num_agents for x in numbers):
            raise RejectedError(f"{name} is no slot")
    return message


def _is_table(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("do"), str)


def make_app(make_table: Callable[[], Table], title: str, secret: str, port: int) -> Any:
    """Make the ASGI application.

    Args:
        make_table: makes a separate table for everyone who does not join another's.
        title: names the opponent, for the page's title.
        secret: the first part of every path.
        port: that it is served on.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    rooms: dict[str, Room] = {}
    spare: list[Table] = [make_table()]
    env, layout = spare[0].env, spare[0].layout
    title = f"{env.name}: {title}"
    page = make_page(
        title,
        read_static("play.html"),
        STATIC,
        {
            "title": title,
            **describe_env(env),
            "starts": list(layout.starts),
            "playable": spare[0].playable,
        },
        connects=True,
    )
    origins = {f"http://{host}:{port}" for host in HOSTS}

    async def index(request: Request) -> HTMLResponse:
        del request
        return HTMLResponse(page.html, headers=HEADERS)

    async def tell_all(room: Room) -> None:
        for socket in list(room.sockets):
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await socket.send_json(await run_in_threadpool(room.view, socket))

    def enter(name: str | None) -> tuple[str, Room]:
        if name is not None:
            room = rooms.get(name)
            if room is None or len(room.sockets) >= MAX_AT_TABLE:
                raise RejectedError("no such table, or it is full")
            return name, room
        if len(rooms) >= MAX_TABLES:
            raise RejectedError("all tables are taken")
        name = secrets.token_urlsafe(9)
        rooms[name] = Room(spare.pop() if spare else make_table())
        return name, rooms[name]

    async def play(socket: WebSocket) -> None:
        if socket.headers.get("origin") not in origins:
            await socket.close(POLICY_VIOLATION)
            return
        await socket.accept()
        try:
            name, room = await run_in_threadpool(enter, socket.query_params.get("table"))
        except RejectedError as error:
            await socket.send_json({"error": str(error)})
            await socket.close(POLICY_VIOLATION)
            return
        room.sockets.append(socket)
        try:
            await socket.send_json({"table": name})
            await tell_all(room)
            while True:
                message = read_message(await socket.receive_text(), env.num_agents)
                try:
                    answer = await run_in_threadpool(room.answer, socket, message)
                except ValueError as error:
                    await socket.send_json({"error": str(error)})
                    continue
                if answer:
                    await socket.send_json(answer)
                else:
                    await tell_all(room)
        except (WebSocketDisconnect, KeyError):
            pass
        except RejectedError as error:
            with contextlib.suppress(RuntimeError):
                await socket.close(POLICY_VIOLATION, str(error))
        finally:
            room.leave(socket)
            if not room.sockets:
                del rooms[name]
            else:
                await tell_all(room)

    return Starlette(
        routes=[Route(f"/{secret}/", index), WebSocketRoute(f"/{secret}/ws", play)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))],
    )


def serve(
    make_table: Callable[[], Table],
    title: str,
    port: int,
    tell: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Serve the page until interrupted; see `serve_app`.

    Args:
        make_table: makes a separate table for everyone who does not join another's.
        title: names the opponent, for the page's title.
        port: of this machine; 0 for any that is free.
        tell: called with the address once it can be opened.
        stop: also ends it.

    Raises:
        ValueError: If the port is taken, or this cannot be played.
    """
    serve_app(lambda secret, port: make_app(make_table, title, secret, port), port, tell, stop)
