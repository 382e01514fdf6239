"""Any pgx game as a turn-based environment with masks.

>>> env, params = jaxmarl_envs.make("pgx", env_id="connect_four")
>>> env = from_pgx(MyGame())

pgx is imported when the first such environment is built.
"""

import inspect
import math
import re
from html import escape
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.compiled import (
    check_interface,
    check_planes,
    strongly_typed,
    unknown_id,
)
from jaxmarl_envs.adapters.incoming.time_limit import check_limits, earliest, read_ends
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.drawing.stones import cell_name, draw_stones, stone_sign, winning_line
from jaxmarl_envs.spaces import Box, Discrete

# The maximum length of a game in steps, where its rules have one.
_HORIZONS = {
    "animal_shogi": 256,
    "bridge_bidding": 319,
    "chess": 512,
    "connect_four": 42,
    "gardner_chess": 256,
    "kuhn_poker": 3,
    "leduc_holdem": 8,
    "minatar-freeway": 2501,
    "othello": 120,  # 60 stones, and two passes in a row end the game
    "shogi": 512,
    "sparrow_mahjong": 28,
    "tic_tac_toe": 9,
}
# What pgx itself gives to a class when it makes one of these.
_ARGUMENTS: dict[str, dict[str, Any]] = {"go_9x9": {"size": 9}, "go_19x19": {"size": 19}}
_BRIDGE, _BRIDGE_TABLE = "bridge_bidding", "dds_results_table_path"


def from_pgx(
    game: Any, planes: bool = False, horizon: int | None = None, at_time_limit: str | None = None
) -> "Pgx":
    """Bring in a game of pgx's interface that is given as an object.

    Args:
        game: a `pgx.Env`, such as one of pgx's own classes or one of yours; not with pgx's
            `auto_reset` around its step.
        planes: as in `Pgx`.
        horizon: as in `Pgx`.
        at_time_limit: as in `Pgx`.

    Raises:
        ValueError: if it is no such game, or for the reasons of `Pgx`.
    """
    check_interface("from_pgx", game, "pgx", "id", "num_players", "init", "step", "_observe")
    env = Pgx.__new__(Pgx)
    # What is known by ids holds for pgx's own classes alone.
    is_own = type(game).__module__.split(".")[0] == "pgx"
    env._wrap(game, game.id if is_own else "", planes)
    env._limit(horizon, at_time_limit)
    return env


@struct.dataclass
class PgxParams:
    """No numbers to set: what a game can be told is structure."""


class Pgx(MultiAgentEnv[Any, PgxParams]):
    """One pgx game; slot `player_i` is pgx's player `i`.

    A game draws at its beginning who moves first, so every slot plays every side. One player acts
    at a step, `current_player`, and its row of the action mask is pgx's; the others wait, and may
    then do anything. All players get pgx's rewards of the step. pgx ends a game for all at once:
    then all lives terminate, and where there are several players `info["metrics"]` has a 1 in
    `win`, `draw` or `loss` of each, by the sign of its reward at that step. An action outside the
    mask ends the game with pgx's penalty. The key of a reset or a step is pgx's key; the state is
    pgx's state, but for the observation, which is not kept.

    What a player sees is what pgx's `observe` gives it, as float32. For those who wait that is not
    always their side of the table: in backgammon they see the mover's board without dice, in bridge
    the mover's vulnerability.

    pgx never truncates. Its limits on the number of moves are rules of the game (a draw in chess,
    gardner_chess, shogi and animal_shogi; in go the score counts) and terminate, though what a
    player sees of shogi and go does not tell how near the limit is. So does the clock of
    minatar-freeway, which nobody sees either and which ends every episode at step 2,501:
    `at_time_limit="truncates"` makes a truncation of it.

    Args:
        env_id: one of `pgx.available_envs()`, or "bridge_bidding", which needs the option
            `dds_results_table_path`.
        planes: features `[A, rows, cols, planes]` as pgx gives them, instead of the same numbers
            flat, `[A, D]`.
        horizon: the step at which a game that is not over is truncated; None for no limit but the
            game's own. The MinAtar games other than freeway may go on for ever.
        at_time_limit: what an end at the horizon is, for whatever reason: "truncates" or
            "terminates". None for what is said above.
        **options: arguments of the game's class, such as `komi=6.5` for "go_9x9" or
            `sticky_action_prob=0.0` for a MinAtar game.

    Raises:
        ImportError: pgx is not installed.
        ValueError: an unknown id or option, an argument out of its range, `at_time_limit` without a
            known limit, or `planes` of a game whose observation is not planes.
    """

    def __init__(
        self,
        env_id: str,
        planes: bool = False,
        horizon: int | None = None,
        at_time_limit: str | None = None,
        **options: Any,
    ) -> None:
        if horizon is None:  # in records of earlier runs it has another name
            horizon = options.pop("max_steps", None)
        self._wrap(_make_game(env_id, options), env_id, planes)
        self._limit(horizon, at_time_limit)

    def _limit(self, horizon: int | None, at_time_limit: str | None) -> None:
        own = _horizon(self.env_id, self.game)
        check_limits(self.name, horizon, at_time_limit, own is not None)
        self._horizon = earliest(horizon, own)
        self.given_horizon, self.at_time_limit = horizon, at_time_limit

    def _wrap(self, game: Any, env_id: str, planes: bool) -> None:
        check_planes(planes)
        self.env_id = env_id
        self.stones_in_a_row = {"connect_four": 4, "tic_tac_toe": 3}.get(env_id)
        self.game, self.name = game, game.id
        self.agents = tuple(f"player_{i}" for i in range(self.game.num_players))
        self.planes = planes
        state = jax.eval_shape(self.game.init, jax.random.key(0))
        self._num_actions = state.legal_action_mask.shape[0]
        views = jax.tree.leaves(state.observation)  # of the player to move
        self._binary = all(view.dtype == bool for view in views)
        if planes and (len(views) != 1 or views[0].ndim != 3):
            raise ValueError(
                f"planes=True: {self.name!r} shows arrays of shape "
                f"{', '.join(str(view.shape) for view in views)}, which are no planes"
            )
        size = sum(math.prod(view.shape) for view in views)
        self._feature_shape = views[0].shape if planes else (size,)

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one player."""
        return 1

    @property
    def default_params(self) -> PgxParams:
        """Return an empty struct, since there are no numeric parameters."""
        return PgxParams()

    def reset_env(self, key: jax.Array, params: PgxParams) -> tuple[Observation, Any]:
        """Begin a game; pgx draws who moves first."""
        state = strongly_typed(self._without_view(self.game.init(key)))
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: Any, action: jax.Array, params: PgxParams
    ) -> StepResult[Any]:
        """Play the mover's action; a game that is over stays as it is.

        `action` is `[A]` int.
        """
        was_over = state.terminated | state.truncated
        state = self._without_view(self.game.step(state, action[state.current_player], key))
        ended = state.terminated & ~was_over  # by the rules
        terminated, truncated = read_ends(
            ended,
            state.truncated & ~was_over,
            ~(state.terminated | state.truncated),
            time=state._step_count,
            horizon=self._horizon,
            at_time_limit=self.at_time_limit,
            knows_time=False,
        )
        state = state.replace(truncated=state.truncated | (~ended & (terminated | truncated)))
        reward = state.rewards.astype(jnp.float32)  # [A]
        terminated, truncated, ended = (
            jnp.broadcast_to(x, (self.num_agents,)) for x in (terminated, truncated, ended)
        )
        info = {}
        if self.num_agents > 1:
            outcomes = {"win": reward > 0, "draw": reward == 0, "loss": reward < 0}
            info["metrics"] = {
                name: (ended & outcome).astype(jnp.float32) for name, outcome in outcomes.items()
            }
        return self.observe(state), state, reward, terminated, truncated, info

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """Name columns of connect four and cells of tic-tac-toe; pgx has no names of actions."""
        if self.env_id == "tic_tac_toe":
            return tuple(cell_name(cell, 3) for cell in range(9))
        if self.env_id == "connect_four":
            return tuple(f"column {k + 1}" for k in range(7))
        return None

    def render(
        self, state: Any, params: PgxParams | None = None, last_action: Any = None
    ) -> str | None:
        """Draw stones by their players, else what pgx draws; None where that is nothing."""
        del params
        if self.stones_in_a_row is not None:
            return self._draw_stones(state, last_action)
        try:
            drawing = state.to_svg(color_theme="light")
        except (AssertionError, AttributeError, KeyError, NotImplementedError):
            return None
        # In units of its own, so that it is scaled to wherever it is shown.
        head, size = (
            r'<svg([^>]*?) height="([\d.]+)"([^>]*?) width="([\d.]+)"',
            r'viewBox="0 0 \4 \2"',
        )
        title = f"<title>{escape(self._describe(state))}</title>"
        drawing = re.sub(head, rf'<svg role="img" {size}\1\3', drawing, count=1)
        return drawing.replace("<defs", f"{title}<defs", 1)

    def _draw_stones(self, state: Any, last_action: Any) -> str:
        """Draw a board by players, since pgx gives them other colours from game to game."""
        cells = np.asarray(self.cells(state))
        by_column = self.env_id == "connect_four"
        last = None
        if last_action is not None:
            last = int(np.asarray(last_action)[1 - int(state.current_player)])
            if by_column:
                last += cells.shape[1] * int(np.argmax(cells[:, last] >= 0))
        assert self.stones_in_a_row is not None
        line = winning_line(cells, self.stones_in_a_row)
        return draw_stones(cells, self._describe(state), last, line, by_column)

    def sign(self, agent: str) -> str:
        """Return a player's stone in games of stones in a row."""
        if self.stones_in_a_row is None:
            return super().sign(agent)
        return stone_sign(self.agent_index(agent))

    def cells(self, state: Any) -> jax.Array | None:
        """Return the board of connect four and of pgx's tic-tac-toe."""
        if self.stones_in_a_row is None:
            return None
        # Stones are by colour, and who has which is drawn at the beginning.
        board, mover = state._x.board, state.current_player
        slot = jnp.where(board == state._x.color, mover, 1 - mover)
        return jnp.where(board < 0, -1, slot).reshape(*((6, 7) if board.size == 42 else (3, 3)))

    def _describe(self, state: Any) -> str:
        """Return whose move it is."""
        if bool(state.terminated | state.truncated):
            return f"{self.name}, the game is over"
        return f"{self.name}, {self.agents[int(state.current_player)]} to move"

    def observe(self, state: Any) -> Observation:
        """Show a pgx state to all players."""
        players = np.arange(self.num_agents)
        features = jax.vmap(lambda player: self._view(state, player))(players)
        alive = jnp.broadcast_to(~(state.terminated | state.truncated), players.shape)  # [A]
        agent_mask = alive & (players == state.current_player)  # [A]
        # All is allowed where nothing is played.
        action_mask = state.legal_action_mask | ~agent_mask[:, None]  # [A, W]
        return Observation(features, action_mask, alive, agent_mask)

    def observation_space(self, agent: str, params: PgxParams) -> Box:
        """Return a player's observation space: zeros and ones for booleans, else unbounded."""
        self.agent_index(agent)
        low, high = (0.0, 1.0) if self._binary else (-np.inf, np.inf)
        return Box(low, high, self._feature_shape)

    def action_space(self, agent: str, params: PgxParams) -> Discrete:
        """Return all actions of the game."""
        self.agent_index(agent)
        return Discrete(self._num_actions)

    def horizon(self, params: PgxParams) -> int | None:
        """Return the maximum number of moves by the rules or as given; None without either."""
        return self._horizon

    def _view(self, state: Any, player: jax.Array) -> jax.Array:
        """Compute one player's features, `[D]` or `[rows, cols, planes]` float32.

        Not by pgx's `observe`, which warns that it may drop the second argument.
        """
        views = jax.tree.leaves(self.game._observe(state, player))
        if self.planes:
            return views[0].astype(jnp.float32)
        return jnp.concatenate([view.ravel().astype(jnp.float32) for view in views])

    def _without_view(self, state: Any) -> Any:
        """Drop the mover's observation from a state, as it would be carried along for nothing."""
        return state.replace(observation=())


def _make_game(env_id: str, options: dict[str, Any]) -> Any:
    pgx = import_extra("pgx", "pgx")
    valid = (*pgx.available_envs(), _BRIDGE)
    if env_id not in valid:
        raise unknown_id(env_id, valid)
    if env_id == _BRIDGE:
        _check_bridge(options)
        factory = import_extra("pgx.bridge_bidding", "pgx").BridgeBidding
    elif options:
        factory = type(pgx.make(env_id))
    else:
        return pgx.make(env_id)
    try:
        return factory(**{**_ARGUMENTS.get(env_id, {}), **options})
    except (TypeError, AssertionError) as error:
        known = inspect.signature(factory).parameters
        raise ValueError(
            f"pgx game {env_id!r} does not take the options {options} ({error}); "
            f"valid options: {', '.join(known) or 'none'}"
        ) from error
    except SystemExit as error:
        raise ValueError(f"pgx cannot read {_BRIDGE_TABLE}={options[_BRIDGE_TABLE]!r}") from error


def _check_bridge(options: dict[str, Any]) -> None:
    if _BRIDGE_TABLE not in options:
        raise ValueError(
            f"{_BRIDGE!r} needs the option {_BRIDGE_TABLE}, the path of a table of solved deals; "
            "pgx.bridge_bidding.download_dds_results() fetches pgx's own"
        )


def _horizon(env_id: str, game: Any) -> int | None:
    if env_id in _ARGUMENTS:
        return game._game.max_termination_steps
    if env_id == "hex":
        return game.size**2 + 1  # every cell, and one swap
    return _HORIZONS.get(env_id)
