"""What documents and docstrings refer to by name is there."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
SOURCES = [*ROOT.glob("jaxmarl_ppo/**/*.py"), *ROOT.glob("envs/jaxmarl_envs/**/*.py")]
# Folders that paths start from, besides that of the file.
FROM = [ROOT, ROOT / "jaxmarl_ppo", ROOT / "envs" / "jaxmarl_envs"]
FOLDERS = "|".join(sorted({path.name for root in FROM for path in root.iterdir() if path.is_dir()}))


def exists(name):
    """Return whether there is a module of this dotted name, or something in one."""
    module, found = name, []
    while module:
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            found.insert(0, last)
            continue
        for part in found:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def names_in_reference():
    pages = ROOT.glob("docs/reference/*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)}


def test_the_reference_names_what_is_there():
    assert len(names_in_reference()) > 30
    assert [name for name in names_in_reference() if not exists(name)] == []


@pytest.mark.parametrize(
    "package",
    ["jaxmarl_envs", "jaxmarl_ppo", "jaxmarl_ppo.deploy", "jaxmarl_ppo.evaluation"],
)
def test_every_public_name_is_in_the_reference(package):
    module, there = importlib.import_module(package), names_in_reference()
    public = set(module.__all__) - {"PRESETS", "__version__"}  # without a docstring
    homes = {name: getattr(module, name).__module__ for name in public}
    missing = {n for n, home in homes.items() if not {home, f"{home}.{n}"} & there}
    assert len(public) > 2
    assert missing == set()


def test_paths_of_our_modules_are_there():
    seen, missing = 0, []
    for file in [*DOCUMENTS, *SOURCES]:
        for path in re.findall(rf"`((?:{FOLDERS})/[\w/]+\.py)`", file.read_text()):
            seen += 1
            if not any((root / path).is_file() for root in FROM):
                missing.append(f"{file.relative_to(ROOT)}: {path}")
    assert seen > 30
    assert missing == []
