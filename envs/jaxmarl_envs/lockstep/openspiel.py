"""Games of OpenSpiel, stepped by their states."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyspiel

from jaxmarl_envs.lockstep.original import Chosen, Original, Reported


class OpenSpielOriginal(Original):
    """A game of OpenSpiel; chance draws from NumPy's default generator, seeded by the episode.

    Args:
        make_game: makes a game of the adapter, of which the game within is taken.
    """

    def __init__(self, make_game: Callable[[], Any]) -> None:
        slots = make_game()
        self.game, self.horizon, self._seats = slots.env, slots.horizon, slots.seats
        self._players = range(self.game.num_players())

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin a game."""
        self._rng, game = np.random.default_rng(seed), self.game
        if "rng_seed" in game.get_type().parameter_specification:
            parameters = {**game.get_parameters(), "rng_seed": seed}
            game = pyspiel.load_game(game.get_type().short_name, parameters)
        self._state = game.new_initial_state()
        return self._until_an_action()

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Apply the actions of those who act."""
        actions = [int(chosen[name][0][0]) if name in chosen else 0 for name in self._names]
        if self._state.is_simultaneous_node():
            self._state.apply_actions(actions)
        else:
            self._state.apply_action(actions[self._state.current_player()])
        return self._until_an_action()

    @property
    def _names(self) -> list[str]:
        return [f"player_{player}" for player in self._players]

    def _until_an_action(self) -> Reported:
        state = self._state
        while state.is_chance_node():
            outcomes, chances = map(list, zip(*state.chance_outcomes(), strict=True))
            chances = np.array(chances) / sum(chances)
            state.apply_action(outcomes[self._rng.choice(len(outcomes), p=chances)])
        legal = [np.array(state.legal_actions_mask(player), bool) for player in self._players]
        acts = [bool(row.any()) for row in legal]
        if not state.is_simultaneous_node():
            acts = [player == state.current_player() for player in self._players]
        over, named = state.is_terminal(), list(zip(self._names, acts, legal, strict=True))
        return Reported(
            observations={name: self._numbers(player) for player, name in enumerate(self._names)},
            acting=[name for name, act, _ in named if act],
            action_masks={name: row for name, act, row in named if act},
            returns=dict(zip(self._names, state.returns(), strict=True)),
            ends=dict.fromkeys(self._names, "terminated") if over else {},
            is_over=over,
        )

    def _numbers(self, player: int) -> np.ndarray:
        """Write a tensor with its planes last, flat."""
        seat = self._seats[player]
        values = np.array(getattr(self._state, f"{seat.tensor}_tensor")(player), np.float32)
        if len(seat.observation.shape) != 3:
            return values
        planes = values.reshape(seat.observation.shape[2], *seat.observation.shape[:2])
        return np.stack(list(planes), axis=-1).ravel()
