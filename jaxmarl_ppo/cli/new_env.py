"""`jaxmarl-ppo new-env`: a template of a custom environment, and its test."""

import importlib.resources
import importlib.util
import keyword
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from jaxmarl_ppo.cli import session
from jaxmarl_ppo.cli.arguments import Operand

# What stands in the templates for the names of module and class.
MODULE, CLASS = "my_env", "MyEnv"
TEMPLATES = {f"{MODULE}.py": "my_env.py.txt", f"test_{MODULE}.py": "test_my_env.py.txt"}


@dataclass(frozen=True)
class NewEnvOptions:
    """Write a template of an environment, a game of two players in turn, and its test.

    It can be trained as it is; its comments state the contract of an environment.

    Attributes:
        name: name of the new module, such as `tag_game`; its class is then `TagGame`.
        dir: folder to write into.
    """

    name: Annotated[str | None, Operand("NAME")] = None
    dir: Path = Path(".")


def main(args: Sequence[str], prog: str = "jaxmarl-ppo new-env") -> int:
    """Write the two files and explain how to use them.

    Raises:
        ValueError: If the name cannot be used, the folder does not exist, or the file does.
    """
    options = session.parse(NewEnvOptions, args, prog)
    if options.name is None:
        raise ValueError(f"{prog} takes the name of the new module; see {prog} --help")
    path, test_path = write_env(options.name, options.dir)
    env = shlex.quote(f"{path}:{class_name(options.name)}")
    run_dir = shlex.quote(f"runs/{options.name}")
    session.show(f"wrote {path} and {test_path}; next:")
    session.show(f"  jaxmarl-ppo check-env {env}")
    session.show(f"  python -m pytest {shlex.quote(str(test_path))}")
    session.show(f"  jaxmarl-ppo train {env} --run-dir {run_dir}")
    session.show(f"  jaxmarl-ppo evaluate {run_dir} --env {env}")
    return 0


def write_env(name: str, folder: Path) -> tuple[Path, Path]:
    """Write an environment and its test, and return their paths.

    Raises:
        ValueError: If the name cannot be used, the folder does not exist, or the file does.
    """
    check_name(name)
    if not folder.is_dir():
        raise ValueError(f"folder {str(folder)!r} does not exist")
    texts = {
        folder / target.replace(MODULE, name): _fill_in(template, name)
        for target, template in TEMPLATES.items()
    }
    for path in texts:
        if path.exists() or path.is_symlink():
            raise ValueError(f"{str(path)!r} exists; choose another name or remove it")
    if importlib.util.find_spec(name) is not None:
        raise ValueError(f"name {name!r}: there is a module of that name already; choose another")
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:  # never over what came meanwhile
            file.write(text)
    path, test_path = texts
    return path, test_path


def check_name(name: str) -> None:
    """Reject what cannot be the name of a new module.

    Raises:
        ValueError: If it is no identifier, or means something already.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(
            f"name {name!r} must be that of a Python module: letters, digits and underscores, "
            "beginning with a letter, such as 'tag_game'"
        )
    import jaxmarl_envs

    taken = {
        "a word of Python's": keyword.iskeyword(name),
        "a module of Python's": name in sys.stdlib_module_names,
        "a package of this library": name in ("jaxmarl_ppo", "jaxmarl_envs"),
        "a registered environment": name in jaxmarl_envs.all_names(),
        "what pytest takes for a test": name.startswith("test_"),
    }
    for what, is_so in taken.items():
        if is_so:
            raise ValueError(f"name {name!r} is {what}; choose another, such as 'my_{name}'")


def class_name(name: str) -> str:
    """Write a module's name as that of its class: `tag_game` becomes `TagGame`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _fill_in(template: str, name: str) -> str:
    files = importlib.resources.files("jaxmarl_ppo.cli") / "new_env_templates"
    text = (files / template).read_text(encoding="utf-8")
    names = {MODULE: name, CLASS: class_name(name)}
    return re.sub("|".join(names), lambda found: names[found[0]], text)
