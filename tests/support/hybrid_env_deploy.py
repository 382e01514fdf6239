"""A game whose agents have every kind of action space."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import Action
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space, Tuple

SPACES: dict[str, Space] = {
    "picker": Discrete(4),
    "mover": Box(-1.0, 2.0, (2,)),
    "both": Tuple((Discrete(3), Box(0.0, 1.0, (2,)))),
    "pair": MultiDiscrete([2, 3]),
}
LENGTH = 5


class Hybrid(MultiAgentEnv[jax.Array, None]):
    """Everyone acts five times; at time t, option `t mod 3` of the first choice is illegal.

    Except for `pair`, of whose second choice it is. Rewards differ for every factor of every
    agent's action, and are -100 for an illegal option or a number beyond its bounds.
    """

    name = "hybrid"
    agents = tuple(SPACES)

    @property
    def default_params(self) -> None:
        return None

    @property
    def baselines(self):
        return {"low": lambda state, obs, params, key: self.action_layout(params).zeros()}

    def observation_space(self, agent: str, params: None) -> Box:
        return Box(-1.0, 1.0, (6,))

    def action_space(self, agent: str, params: None) -> Space:
        return SPACES[agent]

    def horizon(self, params: None) -> int:
        return LENGTH

    def _observe(self, time: jax.Array, alive: jax.Array) -> Observation:
        legal = jnp.arange(4) != time % 3
        choices = {"picker": [legal], "both": [legal[:3]], "pair": [None, legal[:3]]}
        everyone = jnp.full(4, alive)
        return Observation(
            features=jnp.cos(time + jnp.arange(24.0)).reshape(4, 6),
            action_mask=self.action_layout(None).mask(choices),
            alive=everyone,
            agent_mask=everyone,
        )

    def reset_env(self, key: jax.Array, params: None) -> tuple[Observation, jax.Array]:
        time = jnp.zeros((), jnp.int32)
        return self._observe(time, jnp.array(True)), time

    def step_env(
        self, key: jax.Array, state: jax.Array, action: Action, params: None
    ) -> StepResult[jax.Array]:
        mask = self._observe(state, jnp.array(True)).action_mask
        chosen = [
            jnp.take_along_axis(mask[:, start : start + n], action.choices[:, i, None], axis=-1)
            for i, (start, n) in enumerate(((0, 4), (4, 3)))
        ]
        low, high = self.action_layout(params).bounds
        inside = (action.numbers >= low) & (action.numbers <= high)
        legal = jnp.concatenate([*chosen, inside], axis=-1).all(-1)
        earned = action.choices @ jnp.array([1.0, 10.0]) + action.numbers @ jnp.array([0.3, 0.1])
        ends = jnp.full(4, state + 1 == LENGTH)
        obs = self._observe(state + 1, ~ends[0])
        nobody = jnp.zeros(4, bool)
        return obs, state + 1, jnp.where(legal, earned, -100.0), ends, nobody, {}

    def render(self, state: Any, params: None = None, last_action: Any = None) -> str | None:
        words = "" if last_action is None else f"{np.asarray(last_action.choices).tolist()}"
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" class="state" viewBox="0 0 40 20" role="img">'
            f"<title>time {int(state)} {words}</title>"
            f'<text x="4" y="14" font-size="9">{int(state)}</text></svg>'
        )
