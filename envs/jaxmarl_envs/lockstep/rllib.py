"""Classes of RLlib's interface, stepped as its documents say."""

from collections.abc import Iterable, Mapping
from typing import Any

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import as_gymnasium
from jaxmarl_envs.adapters.incoming.own_randomness import OwnRandomness
from jaxmarl_envs.adapters.incoming.rllib_game import RawEnv, kind_of
from jaxmarl_envs.lockstep.original import Chosen, Reported
from jaxmarl_envs.lockstep.plain import PlainOriginal


class RLlibOriginal(PlainOriginal):
    """A `MultiAgentEnv` of RLlib; ids that go on for ever take the first free place of their kind.

    A place that becomes free at a step is taken at that step only if no other is free.
    """

    def _own_spaces(self) -> Iterable[tuple[Any, tuple[Any, Any]]]:
        return ((agent, self._spaces_of(agent)) for agent in self.game.roster.slots or ())

    def _spaces_of(self, agent: Any) -> tuple[Any, Any]:
        """Find an agent's spaces, in whichever way a class says them."""
        found = []
        for kind in ("observation", "action"):
            by_agent = getattr(self.env, f"{kind}_spaces", None)
            get = getattr(self.env, f"get_{kind}_space", None)
            if by_agent and agent in by_agent:
                space = by_agent[agent]
            elif callable(get):
                space = get(agent)
            else:
                space = getattr(self.env, f"{kind}_space")
                space = space[agent] if agent in (getattr(space, "spaces", None) or ()) else space
            found.append(as_gymnasium(agent, space))
        return found[0], found[1]

    def _begin(self, seed: int | None) -> Reported:
        self._raw = RawEnv(self.env, OwnRandomness(self.game.roster.draws_from_random))
        seen, infos = self._raw.reset(seed or 0)
        self.living: dict[Any, None] = {}
        self.places: dict[Any, str] = {}  # by id, also of agents that are gone
        roster = self.game.roster
        listed = self.env.agents if roster.lists_agents else roster.slots or ()
        self._enter([*seen, *listed], freed=())
        return self._see(seen, infos, {})

    def _name(self, agent: Any) -> str:
        return self.places[agent]

    def _enter(self, agents: Iterable[Any], freed: Iterable[str]) -> None:
        roster, order = self.game.roster, list(map(str, self.game.names))
        for agent in agents:
            if agent in self.living:
                continue
            name = str(agent)
            if roster.slots is None:
                taken = {self.places[other] for other in self.living}
                own = (order[slot] for slot in roster.kinds[kind_of(agent, roster.kinds)])
                free = [place for place in own if place not in taken]
                name = min(free, key=lambda place: (place in freed, order.index(place)))
                self.spaces[name] = self._spaces_of(agent)
            self.places[agent] = name
            self.living[agent] = None

    def _advance(self, chosen: Mapping[str, Chosen]) -> Reported:
        actions = {agent: self._action(agent, chosen) for agent in self.acting}
        seen, rewards, terminated, truncated, infos = self._raw.step(actions)
        paid = {agent: reward for agent, reward in rewards.items() if agent in self.places}
        self._pay({agent: reward for agent, reward in paid.items() if reward is not None})
        both = (truncated, "truncated"), (terminated, "terminated")
        ended = {a: kind for flags, kind in both if flags.get("__all__") for a in self.living}
        ended |= {a: kind for flags, kind in both for a in self.living if flags.get(a)}
        self.living = {agent: None for agent in self.living if agent not in ended}
        flagged = {agent for flags, _ in both for agent, flag in flags.items() if flag}
        if "__all__" in flagged:
            return self._see({}, infos, ended)
        listed = self.env.agents if self.game.roster.lists_agents else ()
        new = [*seen, *(agent for agent in listed if agent not in self.places)]
        freed = {self.places[agent] for agent in ended}
        self._enter((agent for agent in new if agent not in flagged), freed)
        return self._see(seen, infos, ended)

    def _see(
        self, seen: Mapping[Any, Any], infos: Mapping[Any, Any], ended: Mapping[Any, str]
    ) -> Reported:
        self.acting = [agent for agent in seen if agent in self.living]
        # Of a place that another agent has taken at once, the last observation is not compared.
        retaken = {self.places[a] for a in ended} & {self.places[a] for a in self.living}
        shown = {a: row for a, row in seen.items() if a in self.living or a in ended}
        shown = {a: row for a, row in shown.items() if self.places[a] not in retaken}
        own = {agent: info for agent, info in infos.items() if agent in self.living}
        return self._report(shown, own, self.acting, ended, is_over=not self.living)
