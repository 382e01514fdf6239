"""Which modules of the two packages import which, read from their source."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Names that are looked up only when somebody asks for them: an index, not a dependency.
INDICES = {"jaxmarl_ppo", "jaxmarl_ppo.__main__", "jaxmarl_envs.registry"}


def modules(root):
    """Paths of all modules of a package, by full name; a folder goes by the name of the folder."""
    found = {}
    for path in root.rglob("*.py"):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path, known):
    """Full names of what a file imports: anywhere in it, for type checkers, and by name.

    Args:
        path: the file.
        known: names of modules.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            # `from package import module` imports the module.
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = full & known
            found |= inner | ({node.module} if len(inner) < len(full) else set())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # What `import_module` and entry points are given.
            found |= {node.value.partition(":")[0]} & known
    return found


def import_graph(all_modules):
    """Modules that each module imports, by name."""
    known = all_modules.keys()
    return {name: (imported(path, known) & known) - {name} for name, path in all_modules.items()}
