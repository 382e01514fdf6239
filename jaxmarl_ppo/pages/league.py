"""A league in a report: ratings over time and results, by snapshot rather than by place."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmarl_ppo.policies.snapshot_files import parse_name, snapshot_name

ELO = "league/elo/"


def elo_series(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """List every player's ratings over a log; a snapshot in another's place starts a new series."""
    found: dict[str, Any] = {}
    for entry in entries:
        league = entry.get("league") or {}
        for player, rating in league.get("elo", {}).items():
            name = ELO + _who(player, league)
            column = found.setdefault(name, {"steps": [], "values": []})
            column["steps"].append(entry["env_steps"])
            column["values"].append(float(f"{rating:.5g}"))
    return found


def league_table(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Tabulate a league's newest ratings and results, the best player first.

    Returns:
        `{"columns": [names], "rows": [[name, Elo, games, win rates against the columns]]}`, with
        None where two have not met. If snapshots meet only policies, those are the columns.
    """
    league = entries[-1].get("league") if entries else None
    if not league or not league.get("players"):
        return None
    players, rates, elo = league["players"], league["win_rate"], league.get("elo", {})
    names = [_who(player, league) for player in players]
    met = [[rate is not None for rate in row] for row in rates]
    order = [k for k in range(len(players)) if any(met[k])]
    order.sort(key=lambda k: -elo.get(players[k], 0.0))
    policies = [k for k in order if not _is_snapshot(names[k])]
    covered = all(not met[r][c] or r in policies or c in policies for r in order for c in order)
    columns = policies if policies and covered else order
    games = league.get("games")
    rows = [
        [
            names[k],
            round(elo[players[k]]) if players[k] in elo else None,
            None if games is None else round(sum(games[k])),
            *(rates[k][c] for c in columns),
        ]
        for k in order
    ]
    return {"columns": [names[c] for c in columns], "rows": rows}


def _who(player: str, league: Mapping[str, Any]) -> str:
    """Rename a snapshot that an older log names by its place, `past@2`, as newer ones do."""
    match = re.fullmatch(r"(.+)@(\d+)", player)
    added_at = league.get("pools", {}).get(match[1], {}).get("added_at", []) if match else []
    if not match or int(match[2]) >= len(added_at):
        return player
    return snapshot_name(match[1], added_at[int(match[2])])


def _is_snapshot(name: str) -> bool:
    return parse_name(name) is not None
