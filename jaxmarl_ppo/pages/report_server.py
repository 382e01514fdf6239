"""A report of runs in progress, served and updated continuously."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxmarl_ppo.pages.page import pack
from jaxmarl_ppo.pages.report import report_data, report_page
from jaxmarl_ppo.pages.server import HEADERS, HOSTS, serve_app

REFRESH_S = 5.0


def make_app(run_dirs: Sequence[str | Path], secret: str) -> Any:
    """Make the ASGI application of a report; `secret` is the first part of every path.

    Raises:
        ValueError: If a folder holds no run.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    def read() -> dict[str, Any]:
        return {**report_data(run_dirs), "refresh_s": REFRESH_S}

    read()

    def index(request: Request) -> Response:
        del request
        return HTMLResponse(report_page(read(), connects=True).html, headers=HEADERS)

    def data(request: Request) -> Response:
        del request
        return PlainTextResponse(pack(read()), headers=HEADERS)

    return Starlette(
        routes=[Route(f"/{secret}/", index), Route(f"/{secret}/data", data)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))],
    )


def serve_report(
    run_dirs: Sequence[str | Path],
    port: int,
    tell: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Serve the report of runs until interrupted; see `serve_app`.

    Raises:
        ValueError: If the port is taken, or a folder holds no run.
    """
    serve_app(lambda secret, port: make_app(run_dirs, secret), port, tell, stop)
