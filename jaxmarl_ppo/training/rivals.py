"""Evaluation of a group's members against the policies of other members."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population

# Keys of a report that are not averaged: times, and standard errors, which ignore how rivals
# differ.
_CLOCK = ("env_steps", "iteration", "wall_s")


class Rivals:
    """Puts other members' policies in the seats of some agents.

    Args:
        learner: of the members.
        agents: the seats' agents.

    Raises:
        ValueError: For an unknown agent, all agents, or policies that are shared with other agents
            or are not networks alone.
    """

    def __init__(self, learner: Learner, agents: Sequence[str]) -> None:
        players, env = learner.players, learner.env
        for agent in agents:
            if agent not in env.agents:
                raise ValueError(f"pbt.rivals names {agent!r}; valid: {', '.join(env.agents)}")
        theirs, others = set[int](), set[int]()
        for agent, policies in zip(env.agents, players.mapping.candidates, strict=True):
            (theirs if agent in agents else others).update(policies)
        if not others:
            raise ValueError("pbt.rivals names all agents, so that nobody is left to meet them")
        if theirs & others:
            name = players.policies[min(theirs & others)]
            raise ValueError(
                f"pbt.rivals={list(agents)} play with {name!r}, with which other agents play too"
            )
        self._rows: list[tuple[int, int]] = []  # policy group and row of each network
        for policy in sorted(theirs):
            if any(pool.policy == policy for pool in players.pools):
                raise ValueError(
                    f"pbt.rivals={list(agents)} play with {players.policies[policy]!r}, a pool of "
                    "snapshots, which others cannot meet"
                )
            player = players.first_player_of[policy]
            for index, policy_group in enumerate(players.policy_groups):
                if player in policy_group.players:
                    self._rows.append((index, player - policy_group.first_player))

    def against(self, own: Population, other: Population) -> Population:
        """Make the players of a member against another one.

        Args:
            own: the players of the first, on the host.
            other: those of the second.
        """
        policy_groups = list(own.policy_groups)
        for index, row in self._rows:

            def put(x, y, row=row):
                x = x.copy()
                x[row] = y[row]
                return x

            policy_groups[index] = jax.tree.map(
                put, policy_groups[index], other.policy_groups[index]
            )
        return own.replace(policy_groups=tuple(policy_groups))


def over_rivals(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise a member over all its opponents: mean, minimum and maximum of every number.

    Args:
        reports: evaluations: the member's own, and those against the policies of others.
    """
    return {name: _joined(reports, join) for name, join in _JOINS.items()}


_JOINS: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "least": min,
    "greatest": max,
}


def _joined(reports: Sequence[Mapping[str, Any]], join: Callable[[Sequence[float]], float]) -> Any:
    last = reports[-1]
    return {
        key: _joined([own[key] for own in reports], join)
        if isinstance(value, Mapping)
        else join([own[key] for own in reports])
        for key, value in last.items()
        if all(key in own for own in reports) and key not in _CLOCK and not key.endswith("_se")
    }
