"""Kuhn poker and Leduc hold'em: small games of hidden cards, with known equilibria."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.poker.drawing import draw_table
from jaxmarl_envs.poker.rules import ACTIONS, AGENTS, KUHN, LEDUC, Rules
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_envs.threefry import unrolled


@struct.dataclass
class Params:
    """No numeric parameters: cards and bets are part of the structure."""


@struct.dataclass
class State:
    """State of a game: the deal and the node of the betting."""

    cards: jax.Array  # [2 or 3] int32: the rank of each player's card, and of the public one
    node: jax.Array  # [] int32: of `Betting`


class Poker(MultiAgentEnv[State, Params]):
    """Limit poker for two players with one card each; subclasses define the rules.

    Slots are `first`, who begins every round, and `second`. Actions are `fold`, `call` (or check)
    and `raise` (or bet). A fold or raise that the rules do not allow is masked; if chosen, it
    counts as a call. The reward is the amount won or lost, in antes, at the last step.

    A slot's features are zeros and ones and contain all that its player knows: seat, own card, the
    public card once it is shown, and every call and raise of both rounds. So an observation is an
    information state, and a feed-forward policy loses nothing. For centralised critics `state` has
    all cards, including the public one from the start, and the calls and raises.
    """

    agents = AGENTS
    rules: Rules

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one player."""
        return 1

    @property
    def default_params(self) -> Params:
        """Return an empty struct, since there are no numeric parameters."""
        return Params()

    @property
    def action_names(self) -> tuple[str, ...]:
        """Name fold, call and raise."""
        return ACTIONS

    def reset_env(self, key: jax.Array, params: Params) -> tuple[Observation, State]:
        """Deal the cards, the hidden public one as well."""
        deals = self.rules.deals
        deal = jax.random.randint(unrolled(key), (), 0, len(deals))
        state = State(cards=jnp.asarray(deals)[deal], node=jnp.int32(0))
        return self.observe(state), state

    def step_env(
        self, key: jax.Array, state: State, action: jax.Array, params: Params
    ) -> StepResult[State]:
        """Let the player whose turn it is act; a game that is over stays as it is.

        `action` is `[2]` int.
        """
        betting = self.rules.betting
        chosen = jnp.where(jnp.asarray(betting.mover)[state.node] == 0, action[0], action[1])
        next_state = State(state.cards, jnp.asarray(betting.child)[state.node, chosen])
        over = jnp.asarray(betting.over)
        ends = over[next_state.node] & ~over[state.node]
        reward = jnp.where(ends, self.winnings(next_state), 0.0)
        terminated = jnp.broadcast_to(ends, (2,))
        obs = self.observe(next_state)
        return obs, next_state, reward, terminated, jnp.zeros(2, bool), {}

    def winnings(self, state: State) -> jax.Array:
        """Compute what each player has won, `[2]` float in antes, where the betting is over."""
        betting = self.rules.betting
        folded = jnp.asarray(betting.folded)[state.node]
        mine, other = jnp.moveaxis(self.rules.strength(state.cards), -1, 0)
        shown = jnp.sign(mine - other)
        sign = jnp.where(folded == 0, -1, jnp.where(folded == 1, 1, shown))
        lost = jnp.asarray(betting.paid)[state.node].min()
        return (sign * lost * jnp.array([1, -1])).astype(jnp.float32)

    def observe(self, state: State) -> Observation:
        """Show each player what it knows."""
        betting = self.rules.betting
        own = jax.nn.one_hot(state.cards[:2], len(self.rules.ranks))  # [A, ranks]
        bets = jnp.asarray(betting.history, jnp.float32)[state.node].ravel()
        parts, all_parts = [jnp.eye(2), own], [own.ravel()]
        if self.rules.has_public:
            public = jax.nn.one_hot(state.cards[2], len(self.rules.ranks))
            shown = jnp.where(jnp.asarray(betting.public)[state.node], public, 0.0)
            parts.append(jnp.broadcast_to(shown, own.shape))
            all_parts.append(public)
        parts.append(jnp.broadcast_to(bets, (2, bets.size)))
        alive = jnp.broadcast_to(~jnp.asarray(betting.over)[state.node], (2,))
        acts = alive & (jnp.arange(2) == jnp.asarray(betting.mover)[state.node])
        # All is allowed to those who do not act.
        legal = jnp.asarray(betting.legal)[state.node] | ~acts[:, None]
        return Observation(
            features=jnp.concatenate(parts, axis=-1),
            action_mask=legal,
            alive=alive,
            agent_mask=acts,
            state=jnp.concatenate([*all_parts, bets]),
        )

    def observation_space(self, agent: str, params: Params) -> Box:
        """Return the space of zeros and ones: seat, card, public card, calls and raises."""
        self.agent_index(agent)
        ranks = len(self.rules.ranks)
        return Box(0.0, 1.0, (2 + ranks * (self.rules.num_cards - 1) + self._num_bets,))

    @property
    def _num_bets(self) -> int:
        return self.rules.betting.history[0].size

    def action_space(self, agent: str, params: Params) -> Discrete:
        """Return the actions fold, call and raise."""
        self.agent_index(agent)
        return Discrete(len(ACTIONS))

    def horizon(self, params: Params) -> int:
        """Return the number of actions of the longest betting."""
        return self.rules.betting.depth

    def render(self, state: State, params: Params | None = None, last_action: Any = None) -> str:
        """Draw cards, bets and pot."""
        del params, last_action
        return draw_table(self.rules, np.asarray(state.cards), int(state.node))


class KuhnPoker(Poker):
    """Kuhn poker: three cards, an ante and one bet of the same size.

    The first player loses 1/18 of an ante per game if both play optimally. Kuhn 1950; see `Poker`
    for slots, actions, features and rewards.
    """

    name = "kuhn_poker"
    rules = KUHN


class LeducHoldem(Poker):
    """Leduc hold'em: six cards of three ranks, a public card, and two rounds of betting.

    A raise is 2 antes in the first round and 4 in the second, at most two in each; the first player
    loses 0.0856 antes per game if both play optimally. Southey et al. 2005; see `Poker` for slots,
    actions, features and rewards.
    """

    name = "leduc_holdem"
    rules = LEDUC
