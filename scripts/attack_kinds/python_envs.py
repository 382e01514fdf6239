"""Environments in plain Python that hang, end, fork, print or read, in workers and without."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

from attack_kinds.attempts import TINY, Attempt, Ended, is_alive, newest_steps, start, wait

# A step may take so long, and no command may last longer than the second number.
STEP_TIMEOUT_S = 3
LIMIT_S = 90
CODE = """
import os, subprocess, sys, time
from gymnasium.spaces import Box, Discrete

BAD = {bad!r}

class Game:
    agents = possible_agents = ["a", "b"]
    observation_spaces = {{a: Box(0, 1, (2,)) for a in agents}}
    action_spaces = {{a: Discrete(2) for a in agents}}
    steps = 0

    def __init__(self, config=None):
        pass

    def see(self):
        return {{a: [0.5, 0.5] for a in self.agents}}

    def reset(self, *, seed=None, options=None):
        self.time = 0
        # Resets alone say little: there are many before the first step is learnt from.
        if "reset" in BAD and Game.steps > 40:
            misbehave()
        return self.see(), {{}}

    def step(self, actions):
        self.time += 1
        Game.steps += has_begun()
        if "reset" not in BAD and Game.steps > (0 if "print" in BAD else 40):
            misbehave()
        over = {{"__all__": self.time >= 10}}
        return self.see(), dict.fromkeys(self.agents, 1.0), over, {{"__all__": False}}, {{}}


def has_begun():
    # Before, it is tried out.
    return os.path.exists("run/config.json")


def misbehave():
{how}
"""
HOW = {
    "hang in step": "time.sleep(1e6)",
    "hang in reset": "time.sleep(1e6)",
    "busy loop": "while True: pass",
    "hang without the interpreter": "import ctypes; ctypes.PyDLL(None).sleep(1000000)",
    "input": "input('your move? ')",
    "read standard input": "sys.stdin.buffer.read()",
    "os._exit": "os._exit(3)",
    "sys.exit": "sys.exit(3)",
    "abort": "os.abort()",
    "kill itself": "os.kill(os.getpid(), 9)",
    "kill its group": "os.killpg(os.getpgrp(), 9)",
    "raise": "raise KeyError('mine')",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "endless recursion": "def f(): f()\n    f()",
    "fork and exit": "subprocess.Popen(['sleep', '600']); os._exit(4)",
    "fork and hang": "subprocess.Popen(['sleep', '600']); time.sleep(1e6)",
    "os.fork and exit": "pid = os.fork()\n    if pid == 0: time.sleep(600)\n    os._exit(5)",
    "close all descriptors": "os.closerange(0, 256)",
    "print": "print('x' * 1000)",
    "print to descriptor 1": "os.write(1, b'y' * 1000)",
}
# Those after which training is to go on to its end.
HARMLESS = ("print", "print to descriptor 1", "read standard input")


def bad_environments(place: Path) -> Iterator[Attempt]:
    """Train on environments that misbehave in their workers; what was learnt must be saved."""
    for name in HOW:
        folder = place / name.replace(" ", "_")
        words = _words(folder, name, workers=2)
        ended = wait(start(words, folder), folder, LIMIT_S)
        yield Attempt("bad environments", name, _wrong(name, ended, folder), ended.last)
    for name in ("hang in step", "input", "raise", "print"):
        folder = place / f"{name.replace(' ', '_')}_in_place"
        ended = wait(start(_words(folder, name, workers=0), folder), folder, LIMIT_S)
        yield Attempt(
            "bad environments", f"{name}, without workers", _wrong(name, ended, folder), ended.last
        )


def signals_while_hung(place: Path) -> Iterator[Attempt]:
    """Send signals to a command whose environment hangs without a time limit."""
    for name, sent in {
        "one SIGTERM": [signal.SIGTERM],
        "one Ctrl-C": [signal.SIGINT],
        "two Ctrl-C": [signal.SIGINT, signal.SIGINT],
        "kill -9": [signal.SIGKILL],
    }.items():
        for workers in (2, 0):
            folder = place / f"{name.replace(' ', '_')}_{workers}"
            words = _words(folder, "hang in step", workers, limit="None")
            process = start(words, folder)
            _until_hung(folder)
            began = time.monotonic()
            for number in sent:
                process.send_signal(number)
                time.sleep(0.5)
            ended = wait(process, folder, 45)
            wrong = "" if ended.status is not None else "hung after the signal"
            wrong = wrong or (f"left {len(ended.left)} processes" if ended.left else "")
            if not wrong and name == "one SIGTERM" and not _is_saved(folder / "run"):
                wrong = "nothing was saved"
            said = f"{time.monotonic() - began:.1f} s; {ended.last}"
            yield Attempt("signals while hung", f"{name}, {workers} workers", wrong, said)


def _words(folder: Path, name: str, workers: int, limit: str = str(STEP_TIMEOUT_S)) -> list[str]:
    folder.mkdir()
    code = CODE.format(bad=name, how="    open('misbehaved', 'w').close()\n    " + HOW[name])
    (folder / "game.py").write_text(code)
    options = [f"step_timeout={limit}", f"num_workers={workers}"]
    pairs = [word for option in options for word in ("--env-kwargs", option)]
    steps = ["--total-env-steps", "320", "--checkpoints.every-env-steps", "32"]
    return ["train", "game.py:Game", *TINY, *steps, *pairs, "--run-dir", "run"]


def _wrong(name: str, ended: Ended, folder: Path) -> str:
    if ended.status is None:
        return f"hung for more than {LIMIT_S} s"
    if ended.left:
        return f"left {len(ended.left)} processes: {[is_alive(pid) for pid in ended.left]}"
    if name in HARMLESS:
        expected = {"print": "x" * 1000, "print to descriptor 1": "y" * 1000}.get(name, "")
        lost = "" if expected in ended.out + ended.errors else "what it printed was lost"
        return f"status {ended.status}: {ended.last}" if ended.status else lost
    if not (folder / "misbehaved").exists():
        return "it never misbehaved"
    if ended.status == 0:
        return "it went on as if nothing had happened"
    saved = _is_saved(folder / "run")
    told = "environment" in ended.errors.lower()
    return "" if saved and told else f"saved: {saved}, told: {told}, {ended.last}"


def _is_saved(run: Path) -> bool:
    """Tell whether a run has left policies, or a checkpoint to resume from."""
    return (run / "params").exists() or newest_steps(run) >= 0


def _until_hung(folder: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not (folder / "misbehaved").exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the environment never came to its end")
        time.sleep(0.1)
    time.sleep(1.0)
