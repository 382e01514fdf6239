"""Make the site of the same pages that are read in the repository.

The site begins with the README, and has no sources: what links to them there is plain text here.
Recorded episodes, `docs/replays/*.json.gz`, become the pages that `jaxmarl-ppo watch` writes.
"""

import gzip
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from jaxmarl_ppo.pages.replay_page import page_of

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Give the text of a page, with links that hold on the site."""
    root = Path(config["config_file_path"]).parent
    here = page.file.src_uri
    if here == "index.md":
        markdown = (root / "README.md").read_text("utf-8")
        page.meta["hide"] = ["toc"]  # its column is needed for the comments in long lines of code
    known = {file.src_uri for file in files}
    return _LINK.sub(lambda link: _on_site(link, here, known), markdown)


def on_post_build(config: Any) -> None:
    """Write a page for each file of recorded episodes."""
    for path in sorted((Path(config["docs_dir"]) / "replays").glob("*.json.gz")):
        page = page_of(json.loads(gzip.decompress(path.read_bytes())))
        name = path.name.removesuffix(".json.gz")
        page.save(Path(config["site_dir"]) / "replays" / f"{name}.html")


def _on_site(link: re.Match[str], here: str, known: set[str]) -> str:
    image, words, target = link.groups()
    path, hash_sign, anchor = target.partition("#")
    if "://" in target or not path:
        return link[0]
    if here == "index.md":
        path = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    elif path == "../README.md":
        path = "index.md"
    if posixpath.normpath(posixpath.join(posixpath.dirname(here), path)) not in known:
        return words
    return f"{image}[{words}]({path}{hash_sign}{anchor})"
