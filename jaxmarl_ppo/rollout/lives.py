"""Starts of lives: where recurrent state is reset, and which players hold the slots.

A slot `is_first` from the end of one life to the first decision of the next. That decision resets
its recurrent state (`networks.recurrence`). Its player is drawn at birth, and stays until the life
ends.
"""

import jax

from jaxmarl_envs.backend import skip_unless
from jaxmarl_ppo.config.mapping import Draw
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.rollout.noise import Noise
from jaxmarl_ppo.rollout.step import StepOutput
from jaxmarl_ppo.types import League, RolloutState


def begin_lives(
    players: Players,
    league: League,
    alive_before: jax.Array,
    state: RolloutState,
    step_output: StepOutput,
    noise: Noise,
) -> RolloutState:
    """Mark the lives that begin after a step, and draw who plays them.

    Args:
        players: all of them.
        league: results and pools for drawing opponents.
        alive_before: `[E, A]` bool, before the step.
        state: from `step`.
        step_output: from `step`.
        noise: of the step.
    """
    ended = step_output.terminated | step_output.truncated
    over = step_output.info["episode_over"]
    is_first = state.is_first | ended
    state = state.replace(is_first=is_first, episode=state.episode + over)
    key = noise.lives
    if key is None:
        return state
    born = state.obs.alive & (ended | ~alive_before)
    # At the start of an episode empty slots draw too: a mapping may be one draw for all slots.
    needed = born | over[:, None]

    def draw() -> jax.Array:
        return players.draw(key, league, Draw(state.episode, needed, state.player, state.obs.alive))

    return state.replace(player=skip_unless(needed.any(), draw, lambda: state.player))
