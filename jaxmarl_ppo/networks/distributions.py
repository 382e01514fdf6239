"""The interface of action distributions, and the distribution of a single choice."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import chex
import jax
import jax.numpy as jnp

from jaxmarl_envs.threefry import unrolled
from jaxmarl_ppo.machine.tuning import tuning


class ActionDistribution(Protocol):
    """A family of distributions over actions, whose parameters are a network's outputs.

    Axes before the last are free. An action is an array, or an `Action` of arrays.
    """

    @property
    def num_outputs(self) -> int:
        """Number of network outputs that one row needs."""
        ...

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Draw the noise of rows `shape` for `sample`, which takes outputs and mask as well."""
        ...

    def sample(self, noise: Any, outputs: jax.Array, mask: jax.Array) -> Any:
        """Convert noise to an action per row."""
        ...

    def mode(self, outputs: jax.Array, mask: jax.Array) -> Any:
        """Return the most likely action per row."""
        ...

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: Any) -> jax.Array:
        """Compute the log-probability (density) of an action, `[...]`."""
        ...

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy in nats, `[...]`."""
        ...

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others') in nats, `[...]`."""
        ...

    def kl_from_uniform(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(uniform || outputs' distribution) of all choices in nats, `[...]`.

        Uniform over legal options. Numbers are left out.
        """
        ...


@dataclass(frozen=True)
class MaskedCategorical:
    """A categorical distribution over `num_actions`, in which masked actions have probability 0.

    Actions are `[...]` int; outputs and mask are `[..., W]`.
    """

    num_actions: int

    @property
    def num_outputs(self) -> int:
        """Number of outputs: one logit per action."""
        return self.num_actions

    def _logits(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        chex.assert_equal_shape([outputs, mask])
        # Not -inf, which would make gradients of the entropy NaN.
        return jnp.where(mask, outputs, jnp.finfo(outputs.dtype).min)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw uniform numbers on [0, 1) in steps of 2^-23, `[*shape]`."""
        return jax.random.uniform(unrolled(key), shape)

    def sample(self, noise: jax.Array, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Draw a legal action per row: the first whose cumulative probability exceeds the noise.

        One number per row instead of one per action, since random numbers are expensive.
        """
        if self._in_turn:
            return self._sample_in_turn(noise, outputs, mask)
        sums = self.cumulative(outputs, mask)
        exceeds = sums > noise[..., None] * sums[..., -1:]
        # Sums are rounded: where none exceeds the noise, the action is still legal.
        return jnp.argmax(jnp.where(mask, exceeds.astype(jnp.int8), -1), axis=-1)

    @property
    def _in_turn(self) -> bool:
        """Return whether actions are handled one by one, without sums over an axis."""
        return self.num_actions <= tuning().max_actions_in_turn

    def _sample_in_turn(self, noise: jax.Array, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        logits = self._logits(outputs, mask)
        weights = jnp.exp(logits - self._over_actions(jnp.maximum, logits)[..., None])
        sums = list(itertools.accumulate(weights[..., i] for i in range(self.num_actions)))
        drawn = noise * sums[-1]
        legal = found = jnp.zeros(noise.shape, jnp.int32)
        for index in reversed(range(self.num_actions)):
            legal = jnp.where(mask[..., index], index, legal)
            found = jnp.where(mask[..., index] & (sums[index] > drawn), index, found)
        # Where no sum exceeds the noise, it is the first legal action, possibly 0.
        return jnp.where(found > legal, found, legal)

    def _over_actions(self, operation: Callable[..., jax.Array], x: jax.Array) -> jax.Array:
        """Reduce `x [..., W]` over actions, one after the other."""
        return functools.reduce(operation, [x[..., i] for i in range(self.num_actions)])

    def _total(self, x: jax.Array) -> jax.Array:
        """Sum `x [..., W]` up over actions."""
        return self._over_actions(jnp.add, x) if self._in_turn else x.sum(-1)

    def _log_probs(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the log-probability of every action, `[..., W]`."""
        logits = self._logits(outputs, mask)
        if not self._in_turn:
            return jax.nn.log_softmax(logits)
        greatest = jax.lax.stop_gradient(self._over_actions(jnp.maximum, logits))
        logits -= greatest[..., None]
        return logits - jnp.log(self._total(jnp.exp(logits)))[..., None]

    def cumulative(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Sum the probabilities of all actions up to each, `[..., W]`, up to a common factor."""
        logits = self._logits(outputs, mask)
        # Minus the greatest logit, so that no exponential overflows.
        return jnp.cumsum(jnp.exp(logits - logits.max(-1, keepdims=True)), axis=-1)

    def mode(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Return the most likely legal action per row."""
        return jnp.argmax(self._logits(outputs, mask), axis=-1)

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: jax.Array) -> jax.Array:
        """Compute the log-probability of a legal action, `[...]`."""
        log_probs = self._log_probs(outputs, mask)
        if tuning().picks_by_comparing:
            mine = action[..., None] == jnp.arange(self.num_actions)
            return self._total(jnp.where(mine, log_probs, 0.0))
        return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy over the legal actions, `[...]`."""
        log_probs = self._log_probs(outputs, mask)
        return -self._total(jnp.where(mask, jnp.exp(log_probs) * log_probs, 0.0))

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others') over the legal actions, `[...]`."""
        log_probs, log_others = (self._log_probs(logits, mask) for logits in (outputs, others))
        return self._total(jnp.where(mask, jnp.exp(log_probs) * (log_probs - log_others), 0.0))

    def kl_from_uniform(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(uniform || outputs' distribution) over the legal actions, `[...]`."""
        return self.kl(jnp.zeros_like(outputs), outputs, mask)
