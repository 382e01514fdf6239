"""Asymmetric self-play, `asymmetric_play`, and its picture."""

from jaxmarl_envs.asymmetric_play.env import (
    ALICE,
    BOB,
    DOWN,
    LEFT,
    MODES,
    RIGHT,
    STOP,
    TOGGLE,
    UP,
    AsymmetricPlay,
    PlayParams,
    PlayState,
    Rooms,
    shortest_paths,
)

__all__ = [
    "ALICE",
    "BOB",
    "DOWN",
    "LEFT",
    "MODES",
    "RIGHT",
    "STOP",
    "TOGGLE",
    "UP",
    "AsymmetricPlay",
    "PlayParams",
    "PlayState",
    "Rooms",
    "shortest_paths",
]
