"""Names from files in the terminal and in pictures: text, whatever is in them."""

import ast
import io
import json
import sys
from pathlib import Path

from command_line import status_of
from rich.table import Table
from rich.text import Text

import jaxmarl_ppo
from jaxmarl_ppo.evaluation.tables import plot_cross_play
from jaxmarl_ppo.machine.terminal import PlainConsole
from jaxmarl_ppo.runs.curve import plot_curve

ODD = ("[bold]loud[/bold]", "[/]", "\x1b[31mred", ":smile:", "$\\frac$", "tab\tbed")
SHOWN = ("[bold]loud[/bold]", "[/]", "\\x1b[31mred", ":smile:")


def test_names_are_shown_as_text():
    table = Table(title="[/] \x1b[2J")
    table.add_column("[red]agent")
    for name in ODD:
        table.add_row(name)
    console = PlainConsole(file=io.StringIO(), width=60)
    console.print(table)
    console.print(Text("\x1b]0;title\x07"), *ODD)
    written = console.file.getvalue()
    assert "\x1b" not in written
    assert "\x07" not in written
    for name in (*SHOWN, "[/] \\x1b[2J", "[red]agent", "\\x1b]0;title"):
        assert name in written


def test_a_display_still_steers_its_own_terminal():
    console = PlainConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text("green", style="green"))
    console.show_cursor(False)
    assert "\x1b[32mgreen" in console.file.getvalue()
    assert "\x1b[?25l" in console.file.getvalue()


def test_pictures_have_no_formulas(tmp_path):
    agents = ["$\\frac$", "$", "_hidden", "a$b$c"]
    rows = {agent: {"return_mean": float(k)} for k, agent in enumerate(agents)}
    history = [{"env_steps": step, "agents": rows} for step in (1, 2)]
    plot_curve(history, agents, "$\\nosuchcommand$", tmp_path / "curve.png")
    side = {"agents": agents[:1], "players": agents}
    means = [[float(i + j) for i in range(4)] for j in range(4)]
    report = {"rows": side, "columns": side, "returns": {agents[0]: {"mean": means}}}
    plot_cross_play(report, "$\\nosuchcommand$", tmp_path / "cross.png")
    for name in ("curve.png", "cross.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


# What is safe to print as it is: JSON and tables of TOML, in which control characters are escaped,
# and words of our own.
SAFE = {"printable", "dump_json", "dumps", "print_settings"}
OWN_WORDS = {"USAGE", "__version__"}


def is_safe(printed):
    if isinstance(printed, ast.JoinedStr):
        return all(is_safe(x.value) for x in printed.values if isinstance(x, ast.FormattedValue))
    if isinstance(printed, ast.Call):
        name = printed.func.attr if isinstance(printed.func, ast.Attribute) else printed.func.id
        return name in SAFE
    return isinstance(printed, ast.Constant) or getattr(printed, "id", None) in OWN_WORDS


def test_nothing_is_printed_that_was_not_made_printable():
    calls = []
    for path in Path(jaxmarl_ppo.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print":
                calls.append((path.name, node.lineno, all(map(is_safe, node.args))))
            # Who draws without `PlainConsole` lets names steer the terminal.
            elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Console":
                calls.append((path.name, node.lineno, False))
    assert len(calls) > 5
    assert [call for call in calls if not call[-1]] == []


ENV = """
from jaxmarl_envs.toy import Relay

class Odd(Relay):
    name = "[/]odd"
    agents = (":smile: $a$", "\\x1b]0;b")
"""


def test_every_command_shows_odd_names(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "odd_names.py").write_text(ENV)
    small = "--num-envs 4 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 2"
    for words in (
        "check-env odd_names.py:Odd --num-steps 8 --num-envs 2",
        f"train odd_names.py:Odd {small} --total-env-steps 64 --run-dir run --no-check-env",
        "evaluate run --episodes 2 --env odd_names.py:Odd",
        "export run --env odd_names.py:Odd --agent nobody",
        "watch run --env odd_names.py:Odd --episodes 1",
    ):
        status = status_of(words)
        written = "".join(capfd.readouterr())
        assert status == (2 if "nobody" in words else 0), written
        assert "\x1b" not in written
        if words.startswith(("evaluate", "export", "check-env")):
            assert ":smile: $a$" in written
            assert "\\x1b]0;b" in written
    for page in ("report.html", "watch.html"):
        assert "\x1b" not in (tmp_path / "run" / page).read_text()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env"]["name"] == "[/]odd"
    sys.modules.pop("odd_names", None)
