"""Every command that the documents show is one: its words, its options, its values."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from jaxmarl_envs.adapters import MissingExtraError
from jaxmarl_ppo.cli import bench, resume, session, sweep, train
from jaxmarl_ppo.cli.main import COMMANDS, main
from jaxmarl_ppo.runs import loggers
from jaxmarl_ppo.sweeps.sweep import Sweep
from jaxmarl_ppo.training import trainer

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(path):
    """List the words of every line of a shell block that calls our command."""
    blocks = re.findall(r"```bash\n(.*?)```", path.read_text(), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[1:] for line in words if line[:1] == ["jaxmarl-ppo"]]


SHOWN = [path for path in DOCUMENTS if commands(path)]


class ReachedError(Exception):
    """The command knew what to do, and would have begun."""


def reached(*args, **kwargs):
    raise ReachedError


@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
@pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host_worker.UnrepeatableEnvironmentWarning"
)
@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_every_command_that_is_shown_would_begin(path, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JAXMARL_PPO_TRACEBACK", "1")
    monkeypatch.chdir(tmp_path)
    # Runs that are named need not be there, loggers' packages neither, and nothing is trained or
    # measured.
    monkeypatch.setattr(session, "existing_run", reached)
    monkeypatch.setattr(session, "use_cpu_cores", lambda *args: None)
    for command in (train, resume):
        monkeypatch.setattr(command, "launch", reached)
        monkeypatch.setattr(command, "launch_on_ray", reached)
    monkeypatch.setattr(session, "enable_compilation_cache", lambda: None)
    monkeypatch.setattr(loggers, "make_loggers", lambda names: names)
    monkeypatch.setattr(trainer.Trainer, "__init__", reached)
    monkeypatch.setattr(sweep, "read_search_file", reached)
    monkeypatch.setattr(Sweep, "resume", reached)
    # What a search and members that learn from each other would have left, and a file of theirs.
    for left in ("runs/search/best.toml", "runs/pbt/best.toml", "pbt.toml"):
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_text('env = "tic_tac_toe"\n')
    for name in ("measure", "compare", "scaling", "compile_ahead"):
        monkeypatch.setattr(bench, name, reached)
    for words in commands(path):
        assert words[0] in COMMANDS, words
        typed, file = words, None
        if ">" in words:
            typed, file = words[: words.index(">")], tmp_path / words[-1]
        # VMAS has an environment of its own, in which tests/envs/adapters/test_vmas.py trains it.
        missing = words[:2] == ["train", "vmas"] and find_spec("vmas") is None
        with pytest.raises(MissingExtraError if missing else (ReachedError, SystemExit)) as stop:
            main(typed)
        assert missing or isinstance(stop.value, ReachedError) or stop.value.code in (0, None), (
            words
        )
        out = capsys.readouterr().out
        if file is not None:
            file.write_text(out)


def test_the_documents_show_commands():
    shown = {words[0] for path in SHOWN for words in commands(path)}
    assert shown == set(COMMANDS)
