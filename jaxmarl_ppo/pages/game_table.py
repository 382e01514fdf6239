"""A table at which people and policies play one game after the other."""

from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_ppo.config.policies import RANDOM
from jaxmarl_ppo.evaluation.episodes import EpisodesState, Play, make_play
from jaxmarl_ppo.evaluation.replay import ask_everybody
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.ops.trees import where_rows
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
        ValueError: If the environment does not draw itself, or all agents' actions have numbers.
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
        self.layout = self.env.action_layout(self.env_params)
        if not self.playable:
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
        """Begin a game in which persons hold these slots, and play until one must act.

        Raises:
            ValueError: If an action of a person has numbers.
        """
        for slot in set(persons) - set(self.playable):
            able = ", ".join(self.env.agents[other] for other in self.playable)
            raise ValueError(
                f"actions of {self.env.agents[slot]!r} have continuous numbers, which nobody can "
                f"point at; people can play {able}"
            )
        self.persons = frozenset(persons)
        key = fold_in(self._key, self._num_games)
        self._num_games += 1
        # Of persons who have already chosen at this step, the option of each choice.
        self._choices: dict[int, list[int]] = {}
        self.play = make_play(
            self._learner, self._population, 1, key, self._greedy, None, self._players
        )
        self._past: list[tuple[EpisodesState, Any]] = []
        self._now: EpisodesState = self._begin(self.play)
        self._last_action: Any = None
        self._earned = np.zeros(self.env.num_agents)
        self._end: Any = None  # the last state, once the game is over
        if self.env.render(self.state, self.env_params) is None:
            raise ValueError(
                f"environment {self.env.name!r} has no picture (`render`), which playing needs"
            )
        self._go_on()

    @property
    def playable(self) -> list[int]:
        """The slots of agents without numbers in their actions."""
        return [slot for slot, own in enumerate(self.layout.factors) if not own.low.size]

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

    def act(self, slot: int, action: int | Sequence[int]) -> None:
        """Take a person's action; continue once all persons who must act at this step have chosen.

        Args:
            slot: of the person.
            action: the option, or an option for each choice, as `legal` lists them.

        Raises:
            ValueError: If another agent is to act, or the action is not legal.
        """
        if self.is_over:
            raise ValueError("the game is over; begin a new one")
        if slot not in self.waits_for:
            waited = ", ".join(self.env.agents[other] for other in self.waits_for)
            raise ValueError(f"it is the turn of {waited}")
        chosen = list(action) if isinstance(action, Sequence) else [action]
        legal = self._legal_by_choice(slot)
        if len(chosen) != len(legal):
            raise ValueError(f"choose an option of each of {len(legal)} choices, got {chosen}")
        for choice, (option, valid) in enumerate(zip(chosen, legal, strict=True)):
            if option not in valid:
                names = ", ".join(self._option_name(choice, other) for other in valid)
                which = f" in choice {choice + 1}" if len(legal) > 1 else ""
                raise ValueError(
                    f"{self._option_name(choice, option)} is not legal{which}; valid: {names}"
                )
        self._choices[slot] = chosen
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

    def legal(self, slot: int) -> list[Any]:
        """List the legal options of a slot that must act; a list for each choice if any has more.

        The list is flat where every agent of the environment has one choice alone.
        """
        legal = self._legal_by_choice(slot)
        return legal[0] if self.layout.is_choice else legal

    def _legal_by_choice(self, slot: int) -> list[list[int]]:
        mask = np.asarray(self._now.state.obs.action_mask[0, slot])
        own = zip(self.layout.starts, self.layout.factors[slot].counts, strict=False)
        return [np.nonzero(mask[start : start + count])[0].tolist() for start, count in own]

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
            `{"probs": {option: probability}, "value": expected return, "best": [actions]}`, each
            where it is known. `probs` is a list of one such for each choice where `legal` is one.
        """
        answers = jax.device_get(self._ask(self.play, self._now))
        found: dict[str, Any] = {}
        probs = answers["probs"][0, slot]
        if np.isfinite(probs).any():
            by_choice = [
                {str(k): float(probs[start + k]) for k in legal}
                for start, legal in zip(
                    self.layout.starts, self._legal_by_choice(slot), strict=False
                )
            ]
            found["probs"] = by_choice[0] if self.layout.is_choice else by_choice
            found["value"] = float(answers["value"][0, slot])
        best = self.env.best_actions(self.state, self.env_params)
        if best is not None and self.layout.is_choice:
            found["best"] = np.nonzero(best[slot])[0].tolist()
        return found

    @property
    def state(self) -> Any:
        """The environment's state, the last one once the game is over."""
        if self._end is not None:
            return self._end
        return jax.tree.map(lambda x: x[0], jax.device_get(self._now.state.env_state))

    def _option_name(self, choice: int, option: int) -> str:
        names, column = self.env.action_names, self.layout.starts[choice] + option
        if names is None or not 0 <= option < self.layout.counts[choice]:
            return f"{'action' if self.layout.is_choice else 'option'} {option}"
        return names[column] if column < len(names) else f"option {option}"

    def _go_on(self) -> None:
        """Continue until a person must act or the game is over."""
        for _ in range(MAX_QUIET_STEPS):
            if self.is_over or self.waits_for or not self.persons:
                return
            self._step({})
        raise ValueError(f"nobody had to act for {MAX_QUIET_STEPS:,} steps")

    def _step(self, actions: dict[int, list[int]]) -> None:
        num_agents = self.env.num_agents
        choices = np.zeros((num_agents, len(self.layout.counts)), np.int32)
        by_person = np.zeros(num_agents, bool)
        for slot, chosen in actions.items():
            choices[slot, : len(chosen)], by_person[slot] = chosen, True
        action = self.layout.join(choices, np.zeros((num_agents, self.layout.num_numbers)))
        after, taken, reward, over, end = self._play_step(self.play, self._now, action, by_person)
        self._past.append((self._now, (self._last_action, self._earned)))
        self._now = after
        self._last_action = jax.tree.map(lambda x: np.asarray(x[0]), taken)
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
    play: Play, now: EpisodesState, chosen: Any, by_person: jax.Array
) -> tuple[EpisodesState, Any, jax.Array, jax.Array, Any]:
    """Play a step like `Play.advance`, except for the actions of persons.

    Args:
        play: the game.
        now: its state.
        chosen: actions of all slots, `[A, ...]`, without numbers where a person acts.
        by_person: `[A]` bool, where persons act.

    Returns:
        The state to continue from, actions and rewards `[1, A, ...]`, whether the game is over
        `[1]`, and the environment's state at its end.
    """
    key = fold_in(now.key, now.totals.num_steps)
    players, env, state = play.players, play.learner.env, now.state
    noise = draw_noise(players, (1,), key)
    chosen = jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype)[None], chosen, state.last_action)
    by_person = by_person[None]
    output = act(players, play.population, state, play.env_params, noise, play.greedy)
    action = where_rows(by_person, chosen, output.env_action)
    # A policy's last action is the one taken in its place.
    drawn = where_rows(by_person, chosen, output.action)
    output = output._replace(env_action=action, action=drawn)
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
