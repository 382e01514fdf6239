"""Covert communication: Alice sends Bob one bit over a channel that Eve can read.

The rules are those of `simple_crypto_v3` of MPE2 1.1.1 (https://mpe2.farama.org), which stems from
Lowe et al. 2017, "Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments", and
Mordatch & Abbeel 2018, "Emergence of Grounded Compositional Language in Multi-Agent Populations".
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.crypto.drawing import draw_talk
from jaxmarl_envs.drawing.svg import agent_sign
from jaxmarl_envs.spaces import Box, Discrete, Space
from jaxmarl_envs.threefry import unrolled

NUM_SYMBOLS = 4
EVE, BOB, ALICE = range(3)
_WIDTHS = (NUM_SYMBOLS, 2 * NUM_SYMBOLS, 2 * NUM_SYMBOLS)


@struct.dataclass
class CryptoParams:
    """Numeric parameters."""

    max_steps: int | jax.Array = 25  # [] int: steps in an episode


@struct.dataclass
class CryptoState:
    """State of an episode: goal, key, Alice's last message and time."""

    goal: jax.Array  # [4] float one-hot, index 0 or 1: the bit to tell
    secret: jax.Array  # [4] float one-hot, index 0 or 1: the key that Alice and Bob share
    message: jax.Array  # [4] float: Alice's last utterance, all zeros before the first
    time: jax.Array  # [] int: steps done


class Crypto(MultiAgentEnv[CryptoState, CryptoParams]):
    r"""Covert communication: Alice sends Bob a secret bit that Eve, without the key, also guesses.

    Alice observes goal and key, Bob observes the key and Alice's last message, and Eve observes the
    message only. Goal and key are independent uniform bits, drawn at the start of an episode. At
    every step, all three agents utter a vector of width 4: the one-hot vector of a `Discrete(4)`
    action, or with `continuous_actions=True` the `Box(0, 1, (4,))` action itself. Alice's is her
    message, the others' are guesses. A guess answers the message of the previous step, so the first
    guess is blind. With the goal `g` as a one-hot vector and the utterance `c_i` of agent `i`,

    .. math:: e_i = 0 \text{ if } c_i = 0 \text{ exactly, else } \lVert c_i - g \rVert^2, \qquad
              r_{eve} = -e_{eve}, \quad r_{bob} = r_{alice} = e_{eve} - e_{bob}.

    So silence, which only continuous actions can utter, counts as a perfect guess, as in MPE2. All
    agents are truncated at step `max_steps`, because no observation contains the time.

    Expected returns at 25 steps (eve / bob and alice): -37.5 / 0 for uniform symbols; -1 / 0 if the
    goal is sent in plain text and both guess it from the second step on; -25 / +24 for goal xor
    key, against which Eve can only guess at random. This is the minimax value for discrete actions.

    The metric `accuracy` `[A]` is summed over an episode: the share of the steps after the first
    one at which an utterance, read as a guess, is right, which means closer to the goal than to the
    other possible goal (for a symbol: equal to the goal; a tie, such as silence, is wrong). At the
    optimum Bob has 1 and Eve 0.5 on average. Alice's value reads her messages as guesses: 1 is
    plain text, 0 its opposite, and a cipher in the symbols 0 and 1 has 0.5 on average.

    Args:
        continuous_actions: utter real vectors instead of single symbols.
    """

    name = "crypto"
    agents = ("eve_0", "bob_0", "alice_0")

    def __init__(self, continuous_actions: bool = False) -> None:
        self.continuous_actions = continuous_actions

    @property
    def default_params(self) -> CryptoParams:
        """Set the length of an episode to 25 steps."""
        return CryptoParams()

    def horizon(self, params: CryptoParams) -> int | jax.Array:
        """Return the length of every episode, `params.max_steps` steps."""
        return params.max_steps

    def observation_space(self, agent: str, params: CryptoParams) -> Box:
        """Return Eve's space (4: Alice's words), Bob's (8: key, words), Alice's (8: goal, key)."""
        return Box(0.0, 1.0, (_WIDTHS[self.agent_index(agent)],))

    def action_space(self, agent: str, params: CryptoParams) -> Space:
        """Return the space of an utterance: one of 4 symbols, or 4 numbers between 0 and 1."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (NUM_SYMBOLS,)) if self.continuous_actions else Discrete(NUM_SYMBOLS)

    def reset_env(self, key: jax.Array, params: CryptoParams) -> tuple[Observation, CryptoState]:
        """Draw goal and key; nobody has spoken yet."""
        # Two bits of one random word: half the price of two draws, and resets are paid often.
        bits = (jax.random.bits(unrolled(key)) >> jnp.arange(2, dtype=jnp.uint32)) & 1
        goal, secret = jax.nn.one_hot(bits, NUM_SYMBOLS, dtype=jnp.float32)
        state = CryptoState(goal, secret, jnp.zeros(NUM_SYMBOLS), jnp.zeros((), jnp.int32))
        return _observe(state, jnp.array(True)), state

    def step_env(
        self, key: jax.Array, state: CryptoState, action: jax.Array, params: CryptoParams
    ) -> StepResult[CryptoState]:
        """Let all speak at once; `action` is `[3]` int or `[3, 4]` float."""
        if self.continuous_actions:
            utterance = action.astype(jnp.float32)
        else:
            utterance = jax.nn.one_hot(action, NUM_SYMBOLS, dtype=jnp.float32)
        error = _total((utterance - state.goal) ** 2)
        error = jnp.where((utterance == 0).all(axis=-1), 0.0, error)  # [A]
        good = error[EVE] - error[BOB]
        reward = jnp.stack([-error[EVE], good, good])

        accuracy = _reads_right(utterance, state.goal) & (state.time > 0)
        num_answers = jnp.maximum(params.max_steps - 1, 1)
        metrics = {"accuracy": accuracy / num_answers}

        state = CryptoState(state.goal, state.secret, utterance[ALICE], state.time + 1)
        over = state.time >= params.max_steps
        truncated = jnp.broadcast_to(over, (self.num_agents,))
        obs = _observe(state, ~over)
        return obs, state, reward, jnp.zeros_like(truncated), truncated, {"metrics": metrics}

    def render(
        self, state: CryptoState, params: CryptoParams | None = None, last_action: Any = None
    ) -> str:
        """Draw what Alice said to whom, and what Bob and Eve guessed."""
        del params
        spoken = None if last_action is None else np.asarray(last_action, np.float32)
        if spoken is not None and not self.continuous_actions:
            spoken = np.eye(NUM_SYMBOLS)[spoken.astype(int)]
        goal, secret = (int(np.argmax(np.asarray(x))) for x in (state.goal, state.secret))
        return draw_talk(goal, secret, spoken, np.asarray(state.message), int(state.time))

    def sign(self, agent: str) -> str:
        """Return an agent's sign with its letter."""
        return agent_sign(self.agent_index(agent), agent[0].upper())


def _observe(state: CryptoState, alive: jax.Array) -> Observation:
    padding = jnp.zeros(NUM_SYMBOLS)
    features = jnp.stack(
        [
            jnp.concatenate([state.message, padding]),
            jnp.concatenate([state.secret, state.message]),
            jnp.concatenate([state.goal, state.secret]),
        ]
    )
    everyone = jnp.broadcast_to(alive, (len(_WIDTHS),))
    action_mask = jnp.ones((len(_WIDTHS), NUM_SYMBOLS), bool)
    return Observation(features, action_mask, alive=everyone, agent_mask=everyone)


def _reads_right(utterance: jax.Array, goal: jax.Array) -> jax.Array:
    """Return whether each utterance `[A, 4]` is nearer to `goal [4]` than to the other one."""
    # Both goals are unit vectors, so the nearer one is the one with the larger dot product.
    # Of indices 0 and 1 the sign is +1 for the goal and -1 for the other; the rest is 0.
    sign = jnp.where(jnp.arange(NUM_SYMBOLS) < 2, 2.0 * goal - 1.0, 0.0)
    return _total(utterance * sign) > 0


def _total(x: jax.Array) -> jax.Array:
    """Sum `x [..., 4]` over symbols by plain additions, as a short reduction is slow on a CPU."""
    return sum((x[..., i] for i in range(1, NUM_SYMBOLS)), start=x[..., 0])
