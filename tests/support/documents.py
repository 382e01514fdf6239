"""Python code of the documents, run as it stands."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python_blocks(path):
    """List the blocks of a document that are run: code of other libraries stands in `py`."""
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


def run_blocks(path):
    """Run all blocks of a document in one namespace, which is returned."""
    blocks = python_blocks(path)
    assert blocks
    namespace = {"__name__": path.stem}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)
    return namespace
