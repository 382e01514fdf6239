"""Reading and checking entries of a run's log."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxmarl_ppo.config.parsing import check_depth

_MAX_DIGITS = 18  # what 64 bits hold
_NUMBERS = ("wall_s", "env_steps_per_s", "decisions_per_s", "peak_memory_mb", "rollout_share")
# Numbers of an entry that have other names in older logs.
FORMER_NAMES = {"decisions_per_tick": "decisions_per_step"}
# Tables of a group's entry beside the means.
_SPREAD = ("iqm", "ci95_low", "ci95_high")


def parse_line(line: bytes) -> dict[str, Any]:
    """Read a line of strict JSON: a table, whose numbers are finite.

    Raises:
        ValueError: If it is none.
    """
    try:
        entry = json.loads(line, parse_int=_int, parse_float=_float, parse_constant=_float)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(entry, dict):
        raise ValueError("it is no table")
    check_depth(entry, "it")
    return entry


def present_names(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the numbers of an older log's entry to their present names."""
    return {FORMER_NAMES.get(key, key): value for key, value in entry.items()}


def is_entry(entry: Mapping[str, Any]) -> bool:
    """Check that a line is a valid entry of a log or of evaluations."""
    return (
        _is_count(entry.get("env_steps"))
        and all(_is_count(entry[key]) for key in ("iteration", "decisions") if key in entry)
        and all(_is_number(entry.get(key)) for key in _NUMBERS)
        and _is_table(entry.get("seconds", {}), _is_count_of_seconds)
        and _has_results(entry)
        and all(
            _is_table(entry.get(key, {})) and _has_results(entry.get(key, {})) for key in _SPREAD
        )
        and _is_league(entry.get("league", {}))
    )


def _has_results(entry: Mapping[str, Any]) -> bool:
    """Return whether agents and policies have tables, with numbers where they are drawn."""

    def is_result(own: Any) -> bool:
        return _is_table(own) and _is_number(own.get("return_mean"))

    return all(
        _is_table(entry.get(key, {}), is_result) for key in ("agents", "policies")
    ) and is_result(entry.get("all", {}))


def _is_league(league: Any) -> bool:
    if not _is_table(league):
        return False
    players = league.get("players", [])
    if not isinstance(players, list) or not all(isinstance(name, str) for name in players):
        return False

    def is_matrix(rows: Any, is_cell: Callable[[Any], bool]) -> bool:
        return (
            isinstance(rows, list)
            and len(rows) == len(players)
            and all(
                isinstance(row, list) and len(row) == len(players) and all(map(is_cell, row))
                for row in rows
            )
        )

    def is_pool(pool: Any) -> bool:
        taken = pool.get("added_at", []) if _is_table(pool) else None
        return isinstance(taken, list) and all(map(_is_count, taken))

    return (
        (not players or is_matrix(league.get("win_rate"), _is_number))
        and ("games" not in league or is_matrix(league["games"], _is_there))
        and _is_table(league.get("elo", {}), _is_there)
        and _is_table(league.get("pools", {}), is_pool)
    )


def _is_table(value: Any, of: Callable[[Any], bool] = lambda _: True) -> bool:
    return isinstance(value, Mapping) and all(map(of, value.values()))


def _is_there(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return value is None or _is_there(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_count_of_seconds(value: Any) -> bool:
    return _is_there(value) and value >= 0


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not finite")
    return number
