"""Local web server of pages: for this machine only, with a secret in the address."""

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

HOSTS = ("127.0.0.1", "localhost")
MAX_MESSAGE_BYTES = 1024  # of what a page may send
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}


def serve_app(
    make_app: Callable[[str, int], Any],
    port: int,
    tell: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Serve an application on this machine only, until interrupted.

    Args:
        make_app: makes the ASGI application from the secret that begins every path, and the port.
        port: of this machine; 0 for any that is free.
        tell: called with the address once it can be opened.
        stop: also ends it.

    Raises:
        ValueError: If the port is taken.
    """
    import uvicorn

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOSTS[0], port))
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be used ({error.strerror}); choose another"
            ) from None
        listener.listen()  # now, so that the announced address can be opened
        port = listener.getsockname()[1]
        secret = secrets.token_urlsafe(16)

        @contextlib.asynccontextmanager
        async def announce(app: Any) -> AsyncIterator[None]:
            del app
            tell(f"http://{HOSTS[0]}:{port}/{secret}/")
            ends = asyncio.create_task(_end(server, stop)) if stop is not None else None
            yield
            if ends is not None:
                ends.cancel()

        app = make_app(secret, port)
        app.router.lifespan_context = announce
        config = uvicorn.Config(
            app,
            log_level="warning",
            ws_max_size=MAX_MESSAGE_BYTES,
            server_header=False,
            access_log=False,
        )
        server = uvicorn.Server(config)
        server.run(sockets=[listener])


async def _end(server: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        await asyncio.sleep(0.1)
    server.should_exit = True
