"""What documents and docstrings refer to by name is there."""

import importlib
import re
from pathlib import Path

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


def test_the_reference_names_what_is_there():
    pages = ROOT.glob("docs/reference/*.md")
    names = [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]
    assert len(names) > 30
    assert [name for name in names if not exists(name)] == []


def test_paths_of_our_modules_are_there():
    seen, missing = 0, []
    for file in [*DOCUMENTS, *SOURCES]:
        for path in re.findall(rf"`((?:{FOLDERS})/[\w/]+\.py)`", file.read_text()):
            seen += 1
            if not any((root / path).is_file() for root in FROM):
                missing.append(f"{file.relative_to(ROOT)}: {path}")
    assert seen > 30
    assert missing == []
