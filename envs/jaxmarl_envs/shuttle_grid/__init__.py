"""Six shuttles on a grid of one-way lanes; only idle ones act."""

from jaxmarl_envs.shuttle_grid.dispatchers import DISPATCHERS, Dispatcher
from jaxmarl_envs.shuttle_grid.env import ShuttleGrid
from jaxmarl_envs.shuttle_grid.evaluate import evaluate_dispatcher
from jaxmarl_envs.shuttle_grid.planner import make_planner
from jaxmarl_envs.shuttle_grid.state import (
    HOLD,
    LEAVE_BY_COLUMN,
    LEAVE_BY_ROW,
    ShuttleParams,
    ShuttleState,
)

__all__ = [
    "DISPATCHERS",
    "HOLD",
    "LEAVE_BY_COLUMN",
    "LEAVE_BY_ROW",
    "Dispatcher",
    "ShuttleGrid",
    "ShuttleParams",
    "ShuttleState",
    "evaluate_dispatcher",
    "make_planner",
]
