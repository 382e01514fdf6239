"""The original of an environment that an adapter has brought in."""

import importlib
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.lockstep.original import Original

# Adapters and games by the names of their classes, with what steps the original.
_COMPILED = {
    "Lifted": "compiled:GymnaxOriginal",
    "JaxMARL": "compiled:JaxMARLOriginal",
    "Jumanji": "jumanji:JumanjiOriginal",
    "Pgx": "compiled:PgxOriginal",
}
_PLAIN = {
    "AECGame": "plain:TurnBasedOriginal",
    "MultiAgentGame": "rllib:RLlibOriginal",
    "OpenSpielGame": "openspiel:OpenSpielOriginal",
    "ParallelGame": "plain:ParallelOriginal",
    "SingleGame": "plain:SingleOriginal",
    "TeamGame": "plain:TeamOriginal",
    "VmasBatch": "vmas:VmasOriginal",
}


def original_of(env: MultiAgentEnv, params: Any) -> Original:
    """Find what an environment was before an adapter brought it in.

    Raises:
        ValueError: If it comes from no other library, is wrapped, does not repeat its episodes, or
            is a vector of Gymnasium.
    """
    name = type(env).__name__
    if name in _COMPILED:
        return _load(_COMPILED[name])(env, params)
    if not env.steps_on_host:
        raise ValueError(
            f"environment {env.name!r} has no original: it is not of another library, or wrapped; "
            "give what was brought in by pgx, jaxmarl, jumanji, gymnax, gymnasium, pettingzoo, "
            "openspiel, vmas or a class of RLlib's, or an original of your own"
        )
    pool: Any = vars(env)["pool"]
    game = pool.make_game(1) if pool.in_batches else pool.make_game()
    kind = type(game).__name__
    if kind not in _PLAIN:
        raise ValueError(
            f"environment {env.name!r} has no original here, as a {kind}; give one environment of "
            "a vector, or an original of your own"
        )
    if not game.repeats:
        raise ValueError(
            f"environment {env.name!r} does not do the same for the same seed and actions, so it "
            "cannot be compared with another object"
        )
    return _load(_PLAIN[kind])(pool.make_game)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"jaxmarl_envs.lockstep.{module}"), name)
