"""A page for watching episodes step by step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.spaces import is_bound
from jaxmarl_ppo.evaluation.replay import Replay
from jaxmarl_ppo.pages.page import Page, describe_env, make_page, read_static

# Number of an agent's actions shown with probabilities.
MAX_ACTIONS = 9
STATIC = ("base.css", "replay.css", "base.js", "chart.js", "replay_cards.js", "replay.js")


def replay_page(
    replays: Sequence[Replay],
    env: MultiAgentEnv,
    title: str,
    facts: Sequence[tuple[str, str]] = (),
    elo: Mapping[str, float] | None = None,
) -> Page:
    """Make a page of episodes.

    Args:
        replays: the episodes.
        env: that they were played in.
        title: of the page.
        facts: further facts: pairs of name and value.
        elo: ratings of players by name, if any.
    """
    return page_of({"title": title, "facts": facts, **replay_data(replays, env, elo)})


def page_of(data: Mapping[str, Any]) -> Page:
    """Make a page of episodes from plain data: `title`, `facts`, and `replay_data`."""
    body = f"{read_static('head.html')}<main>{read_static('replay.html')}</main>"
    return make_page(data["title"], body, (*STATIC, "replay_page.js"), data)


def replay_data(
    replays: Sequence[Replay], env: MultiAgentEnv, elo: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Convert episodes to plain data for the page's script."""
    layout = replays[0].layout if replays else None
    return {
        **describe_env(env),
        **({} if layout is None or layout.is_choice else {"layout": _describe_layout(layout)}),
        "elo": {name: round(rating) for name, rating in (elo or {}).items()},
        "episodes": [_episode(replay) for replay in replays],
    }


def _describe_layout(layout: ActionLayout) -> dict[str, Any]:
    """Say where the options of choices begin in a mask, and the bounds of each agent's numbers.

    None stands for no bound: JSON has no infinite numbers.
    """
    return {
        "starts": list(layout.starts),
        "bounds": [
            [
                [_round(x) if is_bound(x) else None for x in pair]
                for pair in zip(own.low, own.high, strict=True)
            ]
            for own in layout.factors
        ],
    }


def _episode(replay: Replay) -> dict[str, Any]:
    # Most of a picture is unchanged from the previous step: every line is stored once.
    lines: dict[str, int] = {}
    frames = [
        [lines.setdefault(line, len(lines)) for line in drawing.split("\n")]
        for drawing in replay.drawings
    ]
    # A scripted policy that gives the same action for all decisions is uninformative.
    telling = [
        name
        for name, x in replay.suggested.items()
        if replay.layout.is_choice and replay.acts.any() and np.ptp(x[replay.acts]) > 0
    ]
    return {
        "interest": list(replay.interest),
        "names": list(replay.names),
        "remembers": list(replay.remembers),
        "reference": replay.reference,
        "lines": list(lines),
        "frames": frames,
        "steps": [
            [_slot(replay, t, slot, telling) for slot in range(replay.players.shape[1])]
            for t in range(replay.num_steps)
        ],
    }


def _slot(replay: Replay, t: int, slot: int, telling: Sequence[str]) -> dict[str, Any] | None:
    """Describe one agent's step; None for an empty slot."""
    if not replay.alive[t, slot]:
        return None
    found: dict[str, Any] = {
        "player": int(replay.players[t, slot]),
        "reward": _round(replay.reward[t, slot]),
    }
    if replay.terminated[t, slot] or replay.truncated[t, slot]:
        found["end"] = "terminated" if replay.terminated[t, slot] else "truncated"
    if not replay.acts[t, slot]:
        return found
    found["first"] = bool(replay.is_first[t, slot])
    for name in ("value", "entropy"):
        number = getattr(replay, name)[t, slot]
        if np.isfinite(number):
            found[name] = _round(number)
    if not replay.layout.is_choice:
        return {**found, **_factors(replay, t, slot)}
    action = replay.action[t, slot]
    found["action"] = int(action)
    best = None if replay.best is None else replay.best[t, slot]
    if replay.probs is not None and np.isfinite(replay.probs[t, slot]).any():
        found["probs"] = _top(replay.probs[t, slot], replay.action_mask[t, slot], int(action), best)
    if best is not None and best.any():
        found["mistake"] = not bool(best[int(action)])
        found["best"] = np.nonzero(best)[0][:MAX_ACTIONS].tolist()
        if best[replay.action_mask[t, slot]].all():
            found["all_best"] = True
    suggested = {name: int(replay.suggested[name][t, slot]) for name in telling}
    if best is None and replay.reference in suggested:
        found["advice"] = suggested.pop(replay.reference)
    if suggested and best is None:
        found["scripts"] = suggested
    return found


def _factors(replay: Replay, t: int, slot: int) -> dict[str, Any]:
    """Describe an agent's action of several factors.

    Returns:
        `action`: all factors in order; `choices`: of each the option taken, and the most likely
        options with probabilities where a network decided; `numbers`.
    """
    layout, own = replay.layout, replay.layout.factors[slot]
    chosen, numbers = (x[t, slot] for x in layout.split(replay.action))
    numbers = [_round(x) for x in numbers[: own.low.size]]
    choices = []
    for start, count, option in zip(layout.starts, own.counts, chosen.tolist(), strict=False):
        found: dict[str, Any] = {"taken": option}
        if replay.probs is not None and np.isfinite(replay.probs[t, slot]).any():
            options = slice(start, start + count)
            mask = replay.action_mask[t, slot, options]
            found["probs"] = _top(replay.probs[t, slot, options], mask, option, None)
        choices.append(found)
    action = [*(choice["taken"] for choice in choices), *numbers]
    return {"action": action, "choices": choices, "numbers": numbers}


def _top(
    probs: np.ndarray, mask: np.ndarray, action: int, best: np.ndarray | None
) -> list[list[Any]]:
    """List the most likely legal actions, and the one taken: action, probability, is it best."""
    legal = np.nonzero(mask)[0]
    order = legal[np.argsort(-probs[legal], kind="stable")][:MAX_ACTIONS].tolist()
    if action not in order:
        order[-1] = action
    return [[k, _round(probs[k]), *([bool(best[k])] if best is not None else [])] for k in order]


def _round(number: Any) -> float:
    return float(f"{float(number):.3g}")
