"""Self-contained pages: style, script and data in one file that loads and sends nothing.

Data are packed numbers and strings. Whatever they hold, the page's content security policy allows
only its own script, by checksum.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.drawing.svg import page_style
from jaxmarl_ppo.machine.files import write_atomically

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
<script type="application/gzip" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Page:
    """Holds a page, which notebooks display inline.

    Attributes:
        html: of the complete page.
    """

    html: str

    def save(self, path: str | Path) -> Path:
        """Write the page into a file; return its path."""
        write_atomically(Path(path), self.html.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" '
            'style="width:100%;height:700px;border:0" title="Page"></iframe>'
        )


def make_page(
    title: str, body: str, static: Sequence[str], data: Any, connects: bool = False
) -> Page:
    """Make a page.

    Args:
        title: of the page, as plain words.
        body: HTML.
        static: names of its style (`.css`) and script (`.js`) files.
        data: for its script, as JSON values.
        connects: whether it may connect to its server.
    """
    style = "\n".join(read_static(name) for name in static if name.endswith(".css"))
    style = f"{page_style()}\n{style}"
    script = "\n".join(read_static(name) for name in static if name.endswith(".js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    if connects:
        policy += "; connect-src 'self'"
    html = _TEMPLATE.format(
        policy=policy, title=escape(title), style=style, body=body, data=pack(data), script=script
    )
    return Page(html)


def describe_env(env: MultiAgentEnv) -> dict[str, Any]:
    """Describe an environment for a page: its agents and the names of actions."""
    return {
        "agents": [{"name": name, "sign": env.sign(name)} for name in env.agents],
        "actions": None if env.action_names is None else list(env.action_names),
    }


def pack(data: Any) -> str:
    """Write data as compressed JSON, in characters without meaning in HTML."""
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def read_static(name: str) -> str:
    """Read a file of this package."""
    return (resources.files("jaxmarl_ppo.pages") / "static" / name).read_text("utf-8")
