"""Any game of OpenSpiel, brought in: stepped on the host, and slow.

>>> env, params = make("openspiel", env_id="leduc_poker", players=3)
>>> env = from_openspiel(lambda: pyspiel.load_efg_game(text))
"""

import difflib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.host_rows import GameStep
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame
from jaxmarl_envs.adapters.incoming.time_limit import check_horizon
from jaxmarl_envs.adapters.incoming.trial import bring_in, split_options
from jaxmarl_envs.spaces import Box, Discrete

TENSORS = ("observation", "information_state")
MAX_HISTORIES = 500_000  # of a game that is walked through, which takes some seconds
# The parameter of games that draw by chance themselves.
_RNG_SEED = "rng_seed"


def openspiel(env_id: str, **options: Any) -> "OpenSpiel":
    """Bring in a game by its name, as `from_openspiel` does.

    Args:
        env_id: name of a game such as "leduc_poker", also with parameters in OpenSpiel's own way:
            "leduc_poker(players=3)".
        **options: those of `from_openspiel`, and parameters of the game, such as `players=3`.

    Raises:
        ValueError: For an unknown game or parameter, or as `from_openspiel`.
    """
    own, parameters = split_options(from_openspiel, options)
    make_fn = functools.partial(_load, env_id, parameters)
    return from_openspiel(make_fn, name=str(env_id), **own)


def from_openspiel(
    make_fn: Callable[[], Any],
    *,
    tensor: str | None = None,
    horizon: int | None = None,
    flatten: bool = False,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
    name: str | None = None,
) -> "OpenSpiel":
    """Turn a game of OpenSpiel, sequential or simultaneous, into one that is stepped on the host.

    The agents are `player_0`, `player_1` and so on. Whoever's decision it is acts alone; at a joint
    decision all act who have a legal action. Chance moves are drawn between the steps. A step pays
    what the players' returns rise by, so an episode pays its returns, however often a game tells
    its rewards. Every end is terminal.

    Args:
        make_fn: makes the game, the same each time; it may be a lambda.
        tensor: what players observe, "observation" or "information_state", which also has what they
            could remember. None for the information state of a game that hides something, if it has
            one, and else the observation.
        horizon: the step at which an episode that goes on is truncated; None for no limit but
            the game's own, which may be thousands of steps.
        flatten: show boards as vectors, as a network without convolutions needs them. A tensor of
            three axes is a board; OpenSpiel has its planes first, they become the last axis.
        num_workers: processes to step in; None for one per CPU core, 0 to step in this process.
        step_timeout: seconds that one game may take for a step or a reset. One that takes longer is
            ended with its worker process, and what was learnt is saved. None for no limit.
        name: what to call it; None for the name of the game.

    Raises:
        ValueError: If it is not a function that makes a game, the game is a mean-field game, or has
            no such tensor.
    """
    check_horizon(horizon)
    check_step_timeout(step_timeout)
    if not callable(make_fn):
        raise ValueError(
            f"make_fn={make_fn!r}: give a function that makes a game, such as "
            "lambda: pyspiel.load_game('kuhn_poker')"
        )
    return bring_in(
        functools.partial(_make_game, make_fn, tensor, horizon, flatten),
        horizon=horizon,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=name,
        env_class=OpenSpiel,
    )


class Decisions(NamedTuple):
    """The decisions of a game: its information states at which a player acts, `D` of them."""

    keys: tuple[str, ...]  # what OpenSpiel calls them, [D]
    mover: np.ndarray  # [D] int: the player who acts
    features: np.ndarray  # [D, ...] float32: what that player observes
    legal: np.ndarray  # [D, N] bool


class OpenSpiel(HostEnv):
    """A game of OpenSpiel, with the game itself at hand."""

    @functools.cached_property
    def _slots(self) -> "OpenSpielGame":
        game = self.pool.make_game()
        assert isinstance(game, OpenSpielGame)
        return game

    @property
    def game(self) -> Any:
        """Return the game, a `pyspiel.Game`."""
        return self._slots.env

    @functools.cached_property
    def decisions(self) -> Decisions | None:
        """Walk through a sequential game; None if it has over 500,000 histories."""
        found: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}
        ahead, num_seen = [self.game.new_initial_state()], 0
        while ahead:
            state = ahead.pop()
            num_seen += 1
            if num_seen > MAX_HISTORIES:
                return None
            if state.is_terminal():
                continue
            if state.is_chance_node():
                actions = [action for action, _ in state.chance_outcomes()]
            else:
                actions, player = state.legal_actions(), state.current_player()
                key, seat = state.information_state_string(player), self._slots.seats[player]
                if key not in found:
                    found[key] = (player, seat.features(state), *seat.legal(state, None))
            ahead += map(state.child, actions)
        mover, features, legal = map(np.stack, zip(*found.values(), strict=True))
        return Decisions(tuple(found), mover, features, legal)


@dataclass(frozen=True)
class Seat:
    """What a player observes and does, as `SlotGame` asks for it.

    Attributes:
        player: the index of the player.
        tensor: one of `TENSORS`.
        own_shape: of OpenSpiel's tensor.
        observation: its space here.
        action: its space.
    """

    player: int
    tensor: str
    own_shape: tuple[int, ...]
    observation: Box
    action: Discrete

    @property
    def own_observation(self) -> str:
        """Describe the tensor."""
        return f"{self.tensor} of shape {self.own_shape}"

    def features(self, seen: Any) -> np.ndarray:
        """Write the tensor of the state `seen` as float32 of the shape of `self.observation`.

        Raises:
            ValueError: If it has not as many numbers as the game declares.
        """
        values = np.asarray(getattr(seen, f"{self.tensor}_tensor")(self.player), np.float32)
        if values.size != math.prod(self.own_shape):
            raise ValueError(
                f"player {self.player} observes a tensor of {values.size} numbers, but the game "
                f"declares {self.own_shape}"
            )
        if len(self.observation.shape) == 3:
            return np.moveaxis(values.reshape(self.own_shape), 0, -1)
        return values.reshape(self.observation.shape)

    def legal(self, seen: Any, info: Any) -> tuple[np.ndarray]:
        """Return which actions are legal in the state `seen`, `[N]` bool; none for who waits."""
        legal = np.zeros(self.action.n, bool)
        legal[seen.legal_actions(self.player)] = True
        return (legal,)

    def own(self, choices: np.ndarray, numbers: np.ndarray) -> int:
        """Return the action as OpenSpiel has it."""
        return int(choices[0])


class OpenSpielGame(SlotGame):
    """A game of OpenSpiel, whose chance moves are drawn from the seed of the episode.

    Args:
        game: the game.
        tensor: as in `from_openspiel`.
        horizon: as in `from_openspiel`.
        flatten: as in `from_openspiel`.
    """

    def __init__(self, game: Any, tensor: str | None, horizon: int | None, flatten: bool) -> None:
        kind, spiel = game.get_type(), _pyspiel()
        if kind.dynamics == spiel.GameType.Dynamics.MEAN_FIELD:
            raise ValueError(
                f"{kind.short_name!r} is a mean-field game: players that stand for populations "
                "cannot be trained; valid are sequential and simultaneous games"
            )
        self._is_simultaneous = kind.dynamics == spiel.GameType.Dynamics.SIMULTANEOUS
        self._draws_itself = kind.chance_mode == spiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
        if self._draws_itself and _RNG_SEED not in kind.parameter_specification:
            raise ValueError(
                f"{kind.short_name!r} draws by chance itself and takes no {_RNG_SEED}, so no "
                "episode could be played again"
            )
        players = range(game.num_players())
        self.seats = tuple(map(_seat(game, tensor, flatten), players))
        super().__init__(
            game, [f"player_{player}" for player in players], self.seats, horizon=horizon
        )

    @property
    def own_name(self) -> str:
        """Return OpenSpiel's short name."""
        return str(self.env.get_type().short_name)

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one in a sequential game."""
        return len(self.names) if self._is_simultaneous else 1

    @property
    def declared_horizon(self) -> int:
        """Return the length of the longest game."""
        return int(self.env.max_game_length())

    def _begin(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        game = self.env
        if self._draws_itself:
            parameters = {**game.get_parameters(), _RNG_SEED: seed}
            game = _pyspiel().load_game(game.get_type().short_name, parameters)
        self._state = game.new_initial_state()
        self._returns = np.zeros(len(self.names))
        self._let_chance_move()
        self._look()

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        state = self._state
        if state.is_simultaneous_node():
            # OpenSpiel wants an action of everybody, any from those who have none.
            own = [self._own(action, slot) * acts for slot, acts in enumerate(self._acting)]
            state.apply_actions(own)
        else:
            state.apply_action(self._own(action, state.current_player()))
        self._let_chance_move()
        # Not `rewards()`, some of which stay the same over a chance move that follows.
        returns = np.asarray(state.returns())
        outcome.reward[:] = returns - self._returns
        self._returns = returns
        outcome.terminated[:] = state.is_terminal()
        self._look()

    def _let_chance_move(self) -> None:
        state = self._state
        while state.is_chance_node():
            outcomes, probabilities = zip(*state.chance_outcomes(), strict=True)
            total = sum(probabilities)
            drawn = self._chance.choice(len(outcomes), p=np.divide(probabilities, total))
            state.apply_action(outcomes[drawn])

    def _look(self) -> None:
        state = self._state
        self._alive = np.full(len(self.names), not state.is_terminal())
        self._acting = np.zeros(len(self.names), bool)
        if state.is_simultaneous_node():
            self._acting[:] = [bool(state.legal_actions(p)) for p in range(len(self.names))]
        elif not state.is_terminal():
            self._acting[state.current_player()] = True
        for slot, acts in enumerate(self._acting):
            self._show(slot, state, None, bool(acts))


def _seat(game: Any, tensor: str | None, flatten: bool) -> Callable[[int], Seat]:
    """Choose what all players observe."""
    kind, spiel = game.get_type(), _pyspiel()
    provided = [t for t in TENSORS if getattr(kind, f"provides_{t}_tensor")]
    if not provided:
        raise ValueError(
            f"{kind.short_name!r} writes neither observations nor information states as numbers, "
            "so no network can see it"
        )
    if tensor is None:
        hides = kind.information != spiel.GameType.Information.PERFECT_INFORMATION
        tensor = provided[-1] if hides else provided[0]
    if tensor not in provided:
        raise ValueError(
            f"tensor={tensor!r}: valid choices for {kind.short_name!r} are {', '.join(provided)}"
        )
    try:
        own_shape = tuple(getattr(game, f"{tensor}_tensor_shape")())
    except spiel.SpielError as error:
        raise ValueError(f"{kind.short_name!r} has no {tensor} after all: {error}") from error
    shape = (math.prod(own_shape),)
    if len(own_shape) == 3 and not flatten:
        shape = (*own_shape[1:], own_shape[0])
    observation = Box(-math.inf, math.inf, shape)
    action = Discrete(game.num_distinct_actions())
    return lambda player: Seat(player, tensor, own_shape, observation, action)


def _make_game(
    make_fn: Callable[[], Any], tensor: str | None, horizon: int | None, flatten: bool
) -> OpenSpielGame:
    game = make_fn()
    if not isinstance(game, _pyspiel().Game):
        raise ValueError(f"make_fn: give a function that makes a game; this one made {game!r}")
    return OpenSpielGame(game, tensor, horizon, flatten)


def _load(env_id: str, options: dict[str, Any]) -> Any:
    spiel = _pyspiel()
    if not isinstance(env_id, str):
        raise ValueError(f"env_id={env_id!r}: give the name of a game such as 'leduc_poker'")
    known = spiel.registered_names()
    short_name = env_id.partition("(")[0]
    if short_name not in known:
        close = difflib.get_close_matches(short_name, known, cutoff=0.5) or known
        raise ValueError(f"OpenSpiel knows no game {short_name!r}; valid: {', '.join(close)}")
    try:
        parameters = {**spiel.game_parameters_from_string(env_id), **options}
        parameters.pop("name", None)
        return spiel.load_game(short_name, parameters)
    except (spiel.SpielError, TypeError) as error:
        given = f" with {options}" if options else ""
        raise ValueError(f"OpenSpiel cannot make {env_id!r}{given}: {error}") from error


def _pyspiel() -> Any:
    return import_extra("pyspiel", "openspiel")
