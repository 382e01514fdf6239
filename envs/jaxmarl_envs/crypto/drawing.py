"""Drawing of `crypto`: what each agent says to whom, and what it guessed."""

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas

_PLACES = {"alice": (60.0, 60.0), "bob": (260.0, 60.0), "eve": (160.0, 160.0)}
_INDEX = {"eve": 0, "bob": 1, "alice": 2}


def draw_talk(
    goal: int, secret: int, spoken: np.ndarray | None, heard: np.ndarray, time: int
) -> str:
    """Draw the three with what they know and what they said at the step before.

    Args:
        goal: the bit to tell.
        secret: the key that Alice and Bob share.
        spoken: `[3, 4]`, utterances of the step before; None where there was none.
        heard: `[4]`, Alice's last words.
        time: steps done.
    """
    canvas = Canvas(320, 226)
    canvas.rect(6, 6, 308, 196, "field", corner=8)
    words = _word(heard)
    canvas.arrow((84, 60), (232, 60), "ink", 1.6, 7)
    canvas.arrow((150, 66), (157, 132), "ink", 1.2, 7, dashed=True)
    canvas.text(158, 47, f"\u201c{words}\u201d" if time else "nothing said yet", 13, bold=True)
    for name, (x, y) in _PLACES.items():
        canvas.agent(_INDEX[name], x, y, 17, name[0].upper())
        canvas.text(x, y + 30 if name != "eve" else y + 29, name, 10, "faint")
    canvas.text(60, 26, f"goal {goal}, key {secret}", 11)
    canvas.text(260, 26, f"key {secret}", 11)
    right = []
    for name in ("bob", "eve"):
        if spoken is None:
            continue
        said = _word(spoken[_INDEX[name]])
        sign = 2.0 * (np.arange(4) == goal)[:2] - 1.0
        is_right = float((spoken[_INDEX[name]][:2] * sign).sum()) > 0
        right.append(f"{name} guessed {said}, {'right' if is_right else 'wrong'}")
        x, y = _PLACES[name]
        mark, hue = ("\u2713", "good") if is_right else ("\u2717", "bad")
        x, y = (x, y + 48) if name == "bob" else (x + 70, y)
        # A vector takes a line of its own.
        lines = [f"guessed {said} {mark}"] if len(said) < 8 else [f"guessed {mark}", said]
        for k, line in enumerate(lines):
            canvas.text(x, y + 14 * k, line, 12 - 2 * k, hue, bold=True)
    when = f", after what was said and guessed at step {time - 1}" if time else ""
    canvas.text(10, 214, f"step {time}{when}", 11, "faint", "start")
    said = f"alice said {words}" if time else "nothing said yet"
    return canvas.to_svg(f"Step {time}: goal {goal}, key {secret}; {'; '.join([said, *right])}")


def _word(utterance: np.ndarray) -> str:
    """Write a symbol as its number, and a vector as its four numbers."""
    utterance = np.asarray(utterance)
    if not utterance.any():
        return "silence"
    if sorted(utterance.tolist()) == [0.0, 0.0, 0.0, 1.0]:
        return str(int(utterance.argmax()))
    return " ".join(f"{x:.1f}" for x in utterance)
