"""A table at which people and policies play one game after the other."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.config.policies import RANDOM
from jaxmarl_ppo.evaluation.episodes import EpisodesState, Play, make_play
from jaxmarl_ppo.evaluation.replay import ask_everybody
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.rollout.act import act
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.step import step
from jaxmarl_ppo.types import Population, RolloutState

# Limit of steps without a person's decision; beyond it a game counts as endless.
MAX_QUIET_STEPS = 10_000


class Table:
    """One game at a time between people and policies.

    All other decisions are made as in evaluation, including memory. Undo returns to the last
    decision of the person who requests it.

    Args:
        learner: of the environment and the players.
        population: the players.
        players: `[A]` int, players of the slots that no person holds, and sources of hints for
            persons; None to draw as in training.
        greedy: policies take the most likely actions instead of samples.
        seed: of all games.

    Raises:
        ValueError: If the environment does not draw itself, or its actions are no list.
    """

    def __init__(
        self,
        learner: Learner,
        population: Population,
        players: np.ndarray | None = None,
        greedy: bool = False,
        seed: int = 0,
    ) -> None:
        self.env, self.env_params = learner.env, learner.env_params
        if self.env.is_continuous(self.env_params):
            raise ValueError(
                f"environment {self.env.name!r} has continuous actions, which nobody can point at"
            )
        if self.env.steps_on_host:
            raise ValueError(
                f"environment {self.env.name!r} is stepped in Python and has no picture"
            )
        self._learner, self._population = learner, population
        self._players, self._greedy = players, greedy
        self.players = _describe_players(learner, population)  # all players
        self._key = jax.random.key(seed)
        self._num_games = 0
        self._begin = jax.jit(Play.begin)
        self._play_step = jax.jit(play_step)
        self._ask = jax.jit(ask_everybody)
        self.begin(())

    def begin(self, persons: Collection[int]) -> None:
        """Begin a game in which persons hold these slots, and play until one must act."""
        self.persons = frozenset(persons)
        key = fold_in(self._key, self._num_games)
        self._num_games += 1
        self._choices: dict[int, int] = {}  # of persons who have already chosen at this step
        self.play = make_play(
            self._learner, self._population, 1, key, self._greedy, None, self._players
        )
        self._past: list[tuple[EpisodesState, Any]] = []
        self._now: EpisodesState = self._begin(self.play)
        self._last_action: np.ndarray | None = None
        self._earned = np.zeros(self.env.num_agents)
        self._end: Any = None  # the last state, once the game is over
        if self.env.render(self.state, self.env_params) is None:
            raise ValueError(
                f"environment {self.env.name!r} has no picture (`render`), which playing needs"
            )
        self._go_on()

    @property
    def is_over(self) -> bool:
        """Return whether the game is over."""
        return self._end is not None

    @property
    def waits_for(self) -> list[int]:
        """The slots of persons who still have to act."""
        if self.is_over:
            return []
        acts = np.asarray(self._now.state.obs.agent_mask[0])
        return [slot for slot in sorted(self.persons) if acts[slot] and slot not in self._choices]

    def act(self, slot: int, action: int) -> None:
        """Take a person's action; continue once all persons who must act at this step have chosen.

        Raises:
            ValueError: If another agent is to act, or the action is not legal.
        """
        if self.is_over:
            raise ValueError("the game is over; begin a new one")
        if slot not in self.waits_for:
            waited = ", ".join(self.env.agents[other] for other in self.waits_for)
            raise ValueError(f"it is the turn of {waited}")
        if action not in self.legal(slot):
            legal = ", ".join(map(self._action_name, self.legal(slot)))
            raise ValueError(f"{self._action_name(action)} is not legal; valid: {legal}")
        self._choices[slot] = action
        if not self.waits_for:
            self._step(self._choices)
            self._choices = {}
            self._go_on()

    def undo(self, slot: int) -> None:
        """Undo up to the last decision of a person.

        Raises:
            ValueError: If there is none.
        """
        for index in range(len(self._past) - 1, -1, -1):
            before, kept = self._past[index]
            if slot in self.persons and bool(before.state.obs.agent_mask[0, slot]):
                del self._past[index:]
                self._now, self._end, self._choices = before, None, {}
                self._last_action, self._earned = kept
                return
        raise ValueError("there is nothing to undo")

    def legal(self, slot: int) -> list[int]:
        """List the legal actions of a slot that must act."""
        mask = np.asarray(self._now.state.obs.action_mask[0, slot])
        return np.nonzero(mask)[0].tolist()

    def view(self) -> dict[str, Any]:
        """Return the public view of the table as plain data."""
        state = self.state
        acts = np.asarray(self._now.state.obs.agent_mask[0]) & (not self.is_over)
        acts = [bool(acts[slot]) and slot not in self._choices for slot in range(len(acts))]
        holders = np.asarray(self._now.state.player[0])
        return {
            "picture": self.env.render(state, self.env_params, self._last_action),
            "over": self.is_over,
            "turn": [slot for slot in range(self.env.num_agents) if acts[slot]],
            "agents": [
                {
                    "name": agent,
                    "person": slot in self.persons,
                    "player": self.players[holders[slot]],
                    "return": float(self._earned[slot]),
                }
                for slot, agent in enumerate(self.env.agents)
            ],
            "legal": {str(slot): self.legal(slot) for slot in self.waits_for},
        }

    def hints(self, slot: int) -> dict[str, Any]:
        """Return a slot's policy outputs for its next decision, and the best actions if known.

        Returns:
            `{"probs": {action: probability}, "value": expected return, "best": [actions]}`, each
            where it is known.
        """
        answers = jax.device_get(self._ask(self.play, self._now))
        found: dict[str, Any] = {}
        probs = answers["probs"][0, slot]
        if np.isfinite(probs).any():
            found["probs"] = {str(k): float(probs[k]) for k in self.legal(slot)}
            found["value"] = float(answers["value"][0, slot])
        best = self.env.best_actions(self.state, self.env_params)
        if best is not None:
            found["best"] = np.nonzero(best[slot])[0].tolist()
        return found

    @property
    def state(self) -> Any:
        """The environment's state, the last one once the game is over."""
        if self._end is not None:
            return self._end
        return jax.tree.map(lambda x: x[0], jax.device_get(self._now.state.env_state))

    def _action_name(self, action: int) -> str:
        names = self.env.action_names
        if names is None or not 0 <= action < len(names):
            return f"action {action}"
        return names[action]

    def _go_on(self) -> None:
        """Continue until a person must act or the game is over."""
        for _ in range(MAX_QUIET_STEPS):
            if self.is_over or self.waits_for or not self.persons:
                return
            self._step({})
        raise ValueError(f"nobody had to act for {MAX_QUIET_STEPS:,} steps")

    def _step(self, actions: dict[int, int]) -> None:
        num_agents = self.env.num_agents
        chosen, by_person = np.zeros(num_agents, np.int32), np.zeros(num_agents, bool)
        for slot, action in actions.items():
            chosen[slot], by_person[slot] = action, True
        after, taken, reward, over, end = self._play_step(self.play, self._now, chosen, by_person)
        self._past.append((self._now, (self._last_action, self._earned)))
        self._now = after
        self._last_action = np.asarray(taken[0])
        self._earned = self._earned + np.asarray(reward[0])
        if bool(over[0]):
            self._end = jax.tree.map(lambda x: x[0], jax.device_get(end))


def _describe_players(learner: Learner, population: Population) -> list[str]:
    """Describe all players, with their names where needed."""
    players = learner.players
    snapshots = {k for pool in players.pools for k in range(players.num_players)[pool.players]}
    num_trained = sum(players.is_trainable(player) for player in range(players.num_players))
    found = []
    for player, name in enumerate(players.names_now(population.league)):
        if player >= players.first_script:
            found.append("random play" if name == RANDOM else f"script {name}")
        elif player in snapshots:
            found.append(f"snapshot {name}")
        elif players.is_trainable(player) and num_trained == 1:
            found.append("trained policy")
        else:
            found.append(f"policy {name}")
    return found


def play_step(
    play: Play, now: EpisodesState, chosen: jax.Array, by_person: jax.Array
) -> tuple[EpisodesState, jax.Array, jax.Array, jax.Array, Any]:
    """Play a step like `Play.advance`, except for the actions of persons.

    Returns:
        The state to continue from, actions and rewards `[1, A]`, whether the game is over `[1]`,
        and the environment's state at its end.
    """
    key = fold_in(now.key, now.totals.num_steps)
    players, env, state = play.players, play.learner.env, now.state
    noise = draw_noise(players, (1,), key)
    output = act(players, play.population, state, play.env_params, noise, play.greedy)
    action = jnp.where(by_person, chosen, output.env_action)
    # A policy's last action is the one taken in its place.
    output = output._replace(env_action=action, action=jnp.where(by_person, chosen, output.action))
    after, stepped = step(env, play.env_params, state, output, noise)
    after = begin_lives(players, play.population.league, state.obs.alive, after, stepped, noise)
    after: RolloutState = after if play.chosen is None else after.replace(player=play.chosen)
    own = jax.vmap(split)(noise.env)[:, 0]
    end = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))(
        own, state.env_state, action, play.env_params
    )[1]
    totals = now.totals.replace(num_steps=now.totals.num_steps + 1)
    over = stepped.info["episode_over"]
    return EpisodesState(after, totals, now.key), action, stepped.reward, over, end
