"""Originals of gymnax, JaxMARL and pgx, stepped by their own functions."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.adapters.incoming.jaxmarl_rules import GameRules, Hanabi
from jaxmarl_envs.lockstep.original import Chosen, Original, Reported
from jaxmarl_envs.observations import flatten, is_image


class GymnaxOriginal(Original):
    """Games of gymnax, one for each agent, none of which is stepped after its end.

    Args:
        env: what the adapter made of it.
        params: of the games.
    """

    def __init__(self, env: Any, params: Any) -> None:
        self.game, self.params, self.agents, self._observed = env.game, params, env.agents, env.seen
        self.horizon, self.at_time_limit = env.given_horizon, env.at_time_limit
        self._space = self.game.action_space(params)
        self._reset, self._step = jax.jit(self.game.reset_env), jax.jit(self.game.step_env)

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin all games."""
        self._states, self._earned, seen = {}, dict.fromkeys(self.agents, 0.0), {}
        for agent, own_key in zip(self.agents, self._split(key), strict=True):
            seen[agent], self._states[agent] = self._reset(own_key, self.params)
        return self._report(seen, {})

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Step the games that go on."""
        seen, ended = {}, {}
        for agent, own_key in zip(self.agents, self._split(key), strict=True):
            if agent not in self._states:
                continue
            choices, numbers = chosen[agent]
            action = choices[0] if choices.size else numbers.reshape(self._space.shape)
            result = self._step(own_key, self._states[agent], action, self.params)
            seen[agent], self._states[agent], reward, done, _ = result
            self._earned[agent] += float(reward)
            late = self._is_late(self._states[agent])
            if done or late:
                kind = "terminated" if done else "truncated"
                ended[agent] = "ended" if late is None else kind
        for agent in ended:
            del self._states[agent]
        return self._report(seen, ended)

    def follow(self, state: Any) -> None:
        """Go on from the adapter's states where they are the same up to rounding."""
        for slot, agent in enumerate(self.agents):
            if agent in self._states:
                own = jax.tree.map(lambda x, slot=slot: x[slot], state.games)
                self._states[agent] = nearest(self._states[agent], own)

    def _is_late(self, state: Any) -> bool | None:
        """Ask for the time limit; None where only `is_terminal` knows it."""
        if not hasattr(self.game, "is_truncated"):
            return None
        return bool(self.game.is_truncated(state, self.params))

    def _split(self, key: Any) -> Any:
        return jax.random.split(key, len(self.agents))

    def _report(self, seen: Mapping[str, Any], ended: Mapping[str, str]) -> Reported:
        rows = {agent: self._numbers(row) for agent, row in seen.items()}
        living = list(self._states)
        return Reported(rows, living, {}, dict(self._earned), ended, not living)

    def _numbers(self, seen: Any) -> np.ndarray:
        space = self.game.observation_space(self.params)
        if hasattr(space, "n"):
            seen = np.arange(space.n) == int(seen)
        values = np.asarray(seen, np.float32).ravel()[self._observed]
        return values / 255 if is_image(space) else values


class JaxMARLOriginal(Original):
    """An environment of JaxMARL, stepped by `step_env` without its reset.

    The form of actions, observations and rewards, which differs between its environments, and what
    is played for those who wait are read as the adapter does.

    Args:
        env: what the adapter made of it.
        params: of `env`.
    """

    def __init__(self, env: Any, params: Any) -> None:
        self.game, self.names, self._rules = env.game, env.agents, env.rules
        self.horizon, self.at_time_limit = env.given_horizon, env.at_time_limit
        self._shaped = params.shaped_reward
        self._parts = {name: env.observation_parts(name, params) for name in env.agents}
        self._reset, self._step = jax.jit(self.game.reset), jax.jit(self.game.step_env)
        self._reports_the_dead = type(
            self._rules
        ).acting is not GameRules.acting and not isinstance(self._rules, Hanabi)

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin an episode."""
        seen, self._state = self._reset(key)
        self._earned = dict.fromkeys(self.names, 0.0)
        return self._report(seen, {"__all__": False})

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Step with the idle action for those who do not act."""
        actions = self._rules.actions(
            [
                self._action(self.game.action_space(agent), chosen.get(name))
                for agent, name in zip(self.game.agents, self.names, strict=True)
            ]
        )
        seen, self._state, reward, done, info = self._step(key, self._state, actions)
        for agent, name, own in zip(
            self.game.agents, self.names, self._rules.rewards(reward), strict=True
        ):
            self._earned[name] += float(own)
            if self._shaped:
                self._earned[name] += float(self._shaped * info["shaped_reward"][agent])
        return self._report(seen, done)

    def follow(self, state: Any) -> None:
        """Go on from the adapter's state where it is the same up to rounding."""
        self._state = nearest(self._state, state.game)

    def _action(self, space: Any, chosen: Chosen | None) -> Any:
        if chosen is None:
            return self._rules.idle_action if hasattr(space, "n") else np.zeros(space.shape)
        choices, numbers = chosen
        if hasattr(space, "n"):
            return choices[0]
        return choices if choices.size else numbers.reshape(space.shape)

    def _report(self, seen: Any, done: Mapping[Any, Any]) -> Reported:
        over = bool(done["__all__"])
        pairs = list(zip(self.game.agents, self.names, strict=True))
        living = [name for agent, name in pairs if not done.get(agent, False)]
        legal = self._legal()
        rows = zip(self.names, self._rules.observations(seen), strict=True)
        return Reported(
            observations={name: self._numbers(name, row) for name, row in rows},
            acting=([] if over else living) if self._reports_the_dead else None,
            action_masks={}
            if over or legal is None
            else {n: np.asarray(legal[a]) for a, n in pairs},
            returns=dict(self._earned),
            ends=dict.fromkeys(self.names, "ended") if over else {},
            is_over=over,
        )

    def _legal(self) -> Any:
        """Ask for JaxMARL's own masks, if it has some."""
        try:
            ask = getattr(self.game, "get_legal_moves", None) or self.game.get_avail_actions
            return ask(self._state)
        except (NotImplementedError, AttributeError):
            return None

    def _numbers(self, name: str, seen: Any) -> np.ndarray:
        has_images = any(part.divisor != 1 for part in self._parts[name])
        return flatten(self._parts[name], seen) if has_images else _in_a_row(seen)


def _in_a_row(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x).astype(np.float32) for x in jax.tree.leaves(tree)])


def nearest(state: Any, other: Any) -> Any:
    """Return the other state if it is the same up to rounding, else the state."""
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True)
    same = all(np.allclose(_values(x), _values(y), rtol=1e-4, atol=1e-5) for x, y in pairs)
    return other if same else state


def _values(x: Any) -> Any:
    is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(x) if is_key else x


class PgxOriginal(Original):
    """A game of pgx, of which the player to move is shown.

    Args:
        env: what the adapter made of it.
        params: of `env`.
    """

    def __init__(self, env: Any, params: Any) -> None:
        self.game, self.agents = env.game, env.agents
        self.horizon, self.at_time_limit = env.given_horizon, env.at_time_limit
        self._init, self._step = jax.jit(self.game.init), jax.jit(self.game.step)

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin a game."""
        self._state, self._earned = self._init(key), np.zeros(len(self.agents))
        return self._report()

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Play the move of the player to move."""
        mover = self.agents[int(self._state.current_player)]
        self._state = self._step(self._state, chosen[mover][0][0], key)
        self._earned += np.asarray(self._state.rewards, np.float64)
        return self._report()

    def _report(self) -> Reported:
        state = self._state
        over = bool(state.terminated | state.truncated)
        mover = self.agents[int(state.current_player)]
        return Reported(
            observations={} if over else {mover: _in_a_row(state.observation)},
            acting=() if over else (mover,),
            action_masks={} if over else {mover: np.asarray(state.legal_action_mask)},
            returns=dict(zip(self.agents, self._earned.tolist(), strict=True)),
            ends=dict.fromkeys(self.agents, "terminated") if over else {},
            is_over=over,
        )
