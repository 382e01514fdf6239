"""Makes the site of the same pages that are read in the repository.

The site begins with the README, and has no sources: what links to them there is plain text here.
"""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Give the text of a page, with links that hold on the site."""
    root = Path(config["config_file_path"]).parent
    here = page.file.src_uri
    if here == "index.md":
        markdown = (root / "README.md").read_text("utf-8")
    known = {file.src_uri for file in files}
    return _LINK.sub(lambda link: _on_site(link, here == "index.md", known), markdown)


def _on_site(link: re.Match[str], is_readme: bool, known: set[str]) -> str:
    image, words, target = link.groups()
    path, hash_sign, anchor = target.partition("#")
    if "://" in target or not path:
        return link[0]
    if is_readme:
        path = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    elif path == "../README.md":
        path = "index.md"
    if path not in known:
        return words
    return f"{image}[{words}]({path}{hash_sign}{anchor})"
