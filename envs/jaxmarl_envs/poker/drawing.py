"""The table of a small poker game: cards, bets and pot, all of them face up."""

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas
from jaxmarl_envs.poker.rules import AGENTS, Rules

_CARD = (38.0, 54.0)


def draw_table(rules: Rules, cards: np.ndarray, node: int) -> str:
    """Draw both players with their cards and bets, and the public card.

    Cards are drawn face up, also those that a player does not see.

    Args:
        rules: of the game.
        cards: `[2 or 3]` int, ranks.
        node: of the betting.
    """
    betting = rules.betting
    canvas = Canvas(320, 176)
    canvas.rect(6, 6, 308, 142, "field", corner=8)
    names = [rules.ranks[rank] for rank in cards]
    over, folded = bool(betting.over[node]), int(betting.folded[node])
    for slot, (agent, x) in enumerate(zip(AGENTS, (52.0, 268.0), strict=True)):
        acts = not over and betting.mover[node] == slot
        canvas.agent(slot, x, 24, 9, str(slot + 1), hollow=not acts)
        _draw_card(canvas, x, 70, names[slot], "faint" if folded == slot else "ink")
        words = "folded" if folded == slot else f"paid {betting.paid[node, slot]}"
        canvas.text(x, 110, words, 11)
        canvas.text(x, 126, f"{agent} to act" if acts else agent, 11, "faint", bold=acts)
    if rules.has_public:
        seen = bool(betting.public[node])
        _draw_card(canvas, 160, 70, names[2] if seen else "", "ink")
        canvas.text(160, 26, "public card" if seen else "not turned up", 10, "faint")
    canvas.text(160, 126, f"pot {betting.paid[node].sum()}", 13, bold=True)
    bets = _bets(betting.history[node])
    canvas.text(10, 162, bets, 11, "faint", "start")
    held = "; ".join(f"{a} has {name}" for a, name in zip(AGENTS, names[:2], strict=True))
    turn = "over" if over else f"{AGENTS[betting.mover[node]]} to act"
    public = f"; public card {names[2]}" if betting.public[node] else ""
    end = "" if folded < 0 else f", {AGENTS[folded]} folded"
    return canvas.to_svg(f"{held}{public}; pot {betting.paid[node].sum()}; {bets}; {turn}{end}")


def _draw_card(canvas: Canvas, x: float, y: float, name: str, hue: str) -> None:
    width, height = _CARD
    dashed = not name
    left, top = x - width / 2, y - height / 2
    if dashed:
        corners = [(left, top), (left + width, top), (left + width, top + height)]
        canvas.path(
            [*corners, (left, top + height)], stroke="edge", line=1.2, closed=True, dashed=True
        )
        return
    canvas.rect(left, top, width, height, "paper", "edge", 1.2, 4)
    canvas.text(x, y, name, 22, hue, bold=True)


def _bets(history: np.ndarray) -> str:
    """Write the calls and raises of each round, `[R, B, 2]`."""
    rounds = []
    for index, row in enumerate(history, 1):
        said = [("call", "raise")[int(place.argmax())] for place in row if place.any()]
        if said:
            rounds.append(
                f"round {index}: {', '.join(said)}" if len(history) > 1 else " ".join(said)
            )
    return "; ".join(rounds) or "no bets yet"
