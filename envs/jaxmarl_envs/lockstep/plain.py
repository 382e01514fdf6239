"""Originals in plain Python, stepped as the documents of Gymnasium and PettingZoo say.

Every episode has an object of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from jaxmarl_envs.adapters.incoming.gymnasium_spaces import as_gymnasium
from jaxmarl_envs.lockstep.original import Chosen, Original, Reported
from jaxmarl_envs.lockstep.spaces import action_of, legal_of, numbers_of


class PlainOriginal(Original):
    """What all of them have in common.

    Args:
        make_game: makes a game of the adapter, of which the environment within is taken.
    """

    def __init__(self, make_game: Callable[[], Any]) -> None:
        self._make_game = make_game
        game = make_game()
        self.horizon, self.at_time_limit = game.horizon, getattr(game, "at_time_limit", None)

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin an episode on a new object."""
        game = self._make_game()
        self.game, self.env = game, game.env
        self._joint = any(spaces.joint for spaces in game.spaces)
        self.time = 0
        self.spaces = {
            str(agent): tuple(as_gymnasium(agent, space) for space in pair)
            for agent, pair in self._own_spaces()
        }
        self.earned = dict.fromkeys(map(str, game.names), 0.0)
        return self._begin(seed)

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Advance one step."""
        self.time += 1
        return self._advance(chosen)

    def _own_spaces(self) -> Iterable[tuple[Any, tuple[Any, Any]]]:
        """Yield agents with their observation and action spaces."""
        raise NotImplementedError

    def _begin(self, seed: int | None) -> Reported:
        raise NotImplementedError

    def _advance(self, chosen: Mapping[str, Chosen]) -> Reported:
        raise NotImplementedError

    def _name(self, agent: Any) -> str:
        """Return what the adapter calls an agent."""
        return str(agent)

    def _named(self, values: Mapping[Any, Any]) -> dict[str, Any]:
        return {self._name(agent): value for agent, value in values.items()}

    def _pay(self, rewards: Mapping[Any, Any]) -> None:
        """Add rewards, as float32 each."""
        for agent, reward in rewards.items():
            self.earned[self._name(agent)] += float(np.asarray(reward, np.float32).item())

    def _action(self, agent: Any, chosen: Mapping[str, Chosen]) -> Any:
        name = self._name(agent)
        return action_of(self.spaces[name][1], chosen.get(name), self._joint)

    def _report(
        self,
        seen: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        acts: Iterable[Any],
        ended: Mapping[Any, str],
        is_over: bool,
        earned: Iterable[Any] | None = None,
    ) -> Reported:
        shown, own_infos = self._named(seen), self._named(infos)
        names, legal = {self._name(agent) for agent in acts}, {}
        for name in names:
            rows = (
                legal_of(self.spaces[name][1], source.get(name)) for source in (shown, own_infos)
            )
            row = next((row for row in rows if row is not None), None)
            if row is not None and not self._joint:
                legal[name] = row
        paid = self.earned if earned is None else map(self._name, earned)
        return Reported(
            observations={
                name: numbers_of(self.spaces[name][0], row) for name, row in shown.items()
            },
            acting=names,
            action_masks=legal,
            returns={name: self.earned[name] for name in paid},
            ends=self._named(ended),
            is_over=is_over,
        )


class SingleOriginal(PlainOriginal):
    """An `Env` of one agent."""

    def _own_spaces(self) -> Iterable[tuple[Any, tuple[Any, Any]]]:
        return [("agent", (self.env.observation_space, self.env.action_space))]

    def _begin(self, seed: int | None) -> Reported:
        self.living = dict.fromkeys(self.spaces)
        seen, info = self.env.reset(seed=seed)
        return self._see(seen, info, {})

    def _advance(self, chosen: Mapping[str, Chosen]) -> Reported:
        actions = [self._action(agent, chosen) for agent in self.spaces]
        seen, rewards, terminated, truncated, info = self.env.step(self._joined(actions))
        ended = {}
        parts = map(self._each, (rewards, terminated, truncated))
        for agent, *own in zip(self.spaces, *parts, strict=True):
            reward, is_terminated, is_truncated = (np.asarray(x).item() for x in own)
            self.earned[agent] += float(np.float32(reward))
            if agent in self.living and (is_terminated or is_truncated):
                ended[agent] = "terminated" if is_terminated else "truncated"
                del self.living[agent]
        return self._see(seen, info, ended)

    def _see(self, seen: Any, info: Any, ended: Mapping[str, str]) -> Reported:
        return self._report({"agent": seen}, {"agent": info}, self.living, ended, not self.living)

    def _joined(self, actions: list[Any]) -> Any:
        return actions[0]

    def _each(self, value: Any) -> list[Any]:
        return [value]


class TeamOriginal(SingleOriginal):
    """An `Env` of several agents: Tuples, and a list of rewards."""

    def _own_spaces(self) -> Iterable[tuple[Any, tuple[Any, Any]]]:
        pairs = zip(self.env.observation_space, self.env.action_space, strict=True)
        return [(f"agent_{index}", pair) for index, pair in enumerate(pairs)]

    def _see(self, seen: Any, info: Any, ended: Mapping[str, str]) -> Reported:
        masks = info.get("action_mask") if isinstance(info, Mapping) else None
        infos = zip(self.spaces, masks, strict=True) if masks is not None else ()
        infos = {agent: {"action_mask": mask} for agent, mask in infos}
        rows = dict(zip(self.spaces, seen, strict=True))
        return self._report(rows, infos, self.living, ended, not self.living)

    def _joined(self, actions: list[Any]) -> Any:
        return tuple(actions)

    def _each(self, value: Any) -> list[Any]:
        return list(value) if np.ndim(value) else [value] * len(self.spaces)


class ParallelOriginal(PlainOriginal):
    """A `ParallelEnv` of PettingZoo."""

    def _own_spaces(self) -> Iterable[tuple[Any, tuple[Any, Any]]]:
        env = self.env
        return [(a, (env.observation_space(a), env.action_space(a))) for a in env.possible_agents]

    def _begin(self, seed: int | None) -> Reported:
        seen, infos = self.env.reset(seed=seed)
        self.ended: dict[Any, str] = {}
        self.acting = [agent for agent in self.env.agents if agent in seen]
        return self._report(seen, infos, self.acting, {}, is_over=False)

    def _advance(self, chosen: Mapping[str, Chosen]) -> Reported:
        actions = {agent: self._action(agent, chosen) for agent in self.acting}
        seen, rewards, terminated, truncated, infos = self.env.step(actions)
        self._pay(rewards)
        ended = {agent: "truncated" for agent, flag in truncated.items() if flag}
        ended |= {agent: "terminated" for agent, flag in terminated.items() if flag}
        ended = {agent: kind for agent, kind in ended.items() if agent not in self.ended}
        self.ended |= ended
        living = [agent for agent in self.env.agents if agent not in self.ended]
        self.acting = [agent for agent in living if agent in seen]
        return self._report(seen, infos, self.acting, ended, is_over=not living)


class TurnBasedOriginal(ParallelOriginal):
    """An `AECEnv` of PettingZoo: whoever is selected asks `last()` and acts."""

    def _begin(self, seed: int | None) -> Reported:
        self.env.reset(seed=seed)
        return self._until_an_action()

    def _advance(self, chosen: Mapping[str, Chosen]) -> Reported:
        self.env.step(self._action(self.env.agent_selection, chosen))
        return self._until_an_action()

    def _until_an_action(self) -> Reported:
        """Let those leave whose lives have ended, and report who acts next."""
        env, shown, ended = self.env, {}, {}
        while env.agents:
            agent = env.agent_selection
            seen, reward, terminated, truncated, info = env.last()
            shown[agent] = seen
            self.earned[str(agent)] += float(reward)
            if not terminated and not truncated:
                return self._report(shown, {agent: info}, [agent], ended, False, earned=shown)
            ended[agent] = "terminated" if terminated else "truncated"
            env.step(None)
        return self._report(shown, {}, (), ended, True, earned=shown)
