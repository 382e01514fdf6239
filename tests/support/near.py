"""List the tests that the changes since a commit can affect, which `make near` runs.

    python tests/support/near.py [COMMIT]

A change affects the tests of its own folder, those of every folder that imports from it, directly
or not, and `tests/whole`. Without a commit, changes are those that are not committed yet.
"""

import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from import_graph import INDICES, ROOT, import_graph, modules

PACKAGES = (Path("jaxmarl_ppo"), Path("envs/jaxmarl_envs"))
# Read by every test.
COMMON = {
    "pyproject.toml",
    "envs/pyproject.toml",
    "constraints.txt",
    "Makefile",
    "tests/conftest.py",
}


def changed_since(commit):
    """Paths that differ from a commit, and new ones, relative to the repository."""
    commands = (
        ["git", "diff", "--name-only", commit],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    lines = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for command in commands
    )
    return {Path(name) for text in lines for name in text.splitlines()}


def affected_tests(changed):
    """Paths of the tests that changed files can affect, files or folders, sorted."""
    found = set()
    folders = set()
    for path in changed:
        package = next((each for each in PACKAGES if each in path.parents), None)
        if path.as_posix() in COMMON or path.parts[:2] == ("tests", "support"):
            return [Path("tests")]
        if package is not None:
            folders.add((package, path.relative_to(package).parts[0]))
        elif path.parts[0] == "tests":
            found.add(path)
        else:  # documents, records and scripts
            found |= {Path("tests/whole"), *tests_of_script(path)}
    for name in affected(folders):
        package, _, rest = name.partition(".")
        folder = "envs" if package == "jaxmarl_envs" else rest.partition(".")[0]
        found |= {Path("tests", folder), Path("tests/whole")}
    there = sorted(path for path in found if (ROOT / path).exists())
    return [path for path in there if not set(path.parents) & set(there)]


def tests_of_script(path):
    """Paths of the tests that name a script."""
    name = re.compile(rf"\b{path.stem}\b")
    tests = (ROOT / "tests").rglob("test_*.py") if path.suffix == ".py" else ()
    return {test.relative_to(ROOT) for test in tests if name.search(test.read_text())}


def affected(folders):
    """Names of modules in folders of the packages, and of all that import from these."""
    graph = whole_graph()
    tops = {".".join((package.name, Path(folder).stem)) for package, folder in folders}
    reached = {name for name in graph if any(f"{name}.".startswith(f"{top}.") for top in tops)}
    while True:
        more = {name for name, others in graph.items() if (others - INDICES) & reached} - reached
        if not more - INDICES:
            return reached
        reached |= more - INDICES


@functools.cache
def whole_graph():
    """What each module of both packages imports, as they are installed."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package.name)
        found |= modules(Path(spec.submodule_search_locations[0]))
    return import_graph(found)


if __name__ == "__main__":
    near = affected_tests(changed_since(*sys.argv[1:2] or ["HEAD"]))
    print(*(near or ["tests/whole/test_imports.py"]))
