"""The distribution of actions that are a product of choices and numbers."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import Action
from jaxmarl_envs.threefry import split, unrolled
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.numbers import NumbersDistribution

# The logit of an illegal option, in relation to the greatest legal one.
_LOW = -1e9


@dataclass(frozen=True)
class FactoredDistribution:
    """Independent distributions over the factors of an `Action`: its choices and its numbers.

    Log-probabilities, entropies and KL divergences are sums over factors. Outputs are the logits of
    all choices, one choice after the other, then what the numbers need. Masks are laid out alike,
    see `jaxmarl_envs.actions.ActionLayout`.

    Attributes:
        counts: options of each choice, `[C]`.
        numbers: distribution of the numbers; None without any.
    """

    counts: tuple[int, ...]
    numbers: NumbersDistribution | None

    @property
    def num_logits(self) -> int:
        """Number of outputs that belong to choices."""
        return sum(self.counts)

    @property
    def num_outputs(self) -> int:
        """Number of outputs: a logit per option of each choice, and those of the numbers."""
        return self.num_logits + (self.numbers.num_outputs if self.numbers else 0)

    @functools.cached_property
    def _runs(self) -> tuple[tuple[MaskedCategorical, int], ...]:
        """Group neighbouring choices with equally many options, which are computed at once.

        Returns:
            For each run, the distribution of one of its choices, and their number.
        """
        runs = itertools.groupby(self.counts)
        return tuple((MaskedCategorical(count), len(list(same))) for count, same in runs)

    def _by_run(self, x: jax.Array) -> list[jax.Array]:
        """Cut `x [..., outputs]` into the options of each run's choices, `[..., k, options]`."""
        parts, start = [], 0
        for one, num in self._runs:
            end = start + num * one.num_actions
            parts.append(x[..., start:end].reshape(*x.shape[:-1], num, one.num_actions))
            start = end
        return parts

    def _of_choices(self, x: jax.Array) -> list[jax.Array]:
        """Cut `x [..., C]` into the choices of each run, `[..., k]`."""
        ends = itertools.accumulate(num for _, num in self._runs)
        return [x[..., end - num : end] for end, (_, num) in zip(ends, self._runs, strict=True)]

    def _of_numbers(self, x: jax.Array) -> jax.Array:
        """Take what belongs to numbers of `x [..., outputs]`."""
        return x[..., self.num_logits :]

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Draw uniform numbers `[*shape, C]`, if any, and the noise of the numbers, if any."""
        key_choices, key_numbers = split(key)
        uniform = jax.random.uniform(unrolled(key_choices), (*shape, len(self.counts)))
        of_numbers = None if self.numbers is None else self.numbers.noise(key_numbers, shape)
        return uniform if self.counts else None, of_numbers

    def sample(self, noise: tuple[Any, Any], outputs: jax.Array, mask: jax.Array) -> Action:
        """Draw every factor of an action per row."""
        uniform, of_numbers = noise
        of_choices = self._of_choices(uniform) if self.counts else []
        return self._draw("sample", outputs, mask, of_choices, of_numbers)

    def mode(self, outputs: jax.Array, mask: jax.Array) -> Action:
        """Return the most likely option of each choice, and the most likely numbers, per row."""
        return self._draw("mode", outputs, mask)

    def _draw(
        self,
        method: str,
        outputs: jax.Array,
        mask: jax.Array,
        of_choices: Sequence[Any] | None = None,
        of_numbers: Any = None,
    ) -> Action:
        """Call `sample` or `mode` of every factor, with its noise first if there is any."""
        noises = [()] * len(self._runs) if of_choices is None else [(x,) for x in of_choices]
        runs = zip(self._runs, noises, self._by_run(outputs), self._by_run(mask), strict=True)
        choices = [
            getattr(one, method)(*noise, logits, legal).astype(jnp.int32)
            for (one, _), noise, logits, legal in runs
        ]
        numbers = None
        if self.numbers is not None:
            noise = () if of_choices is None else (of_numbers,)
            own = map(self._of_numbers, (outputs, mask))
            numbers = getattr(self.numbers, method)(*noise, *own)
        return Action(jnp.concatenate(choices, axis=-1) if choices else None, numbers)

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: Action) -> jax.Array:
        """Compute the log-probability of the choices plus the log-density of the numbers."""
        total = jnp.zeros(outputs.shape[:-1])
        chosen = self._of_choices(action.choices) if self.counts else []
        for own, choice in zip(self._choices(outputs, mask), chosen, strict=True):
            total += own.log_prob(choice).sum(-1)
        return total + self._numbers_sum("log_prob", (outputs, mask), action.numbers)

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy of all factors together, `[...]`."""
        total = jnp.zeros(outputs.shape[:-1])
        for own in self._choices(outputs, mask):
            total += own.entropy().sum(-1)
        return total + self._numbers_sum("entropy", (outputs, mask))

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others') of all factors together, `[...]`."""
        total = jnp.zeros(outputs.shape[:-1])
        both = (self._choices(x, mask) for x in (outputs, others))
        for own, other in zip(*both, strict=True):
            total += own.kl(other).sum(-1)
        return total + self._numbers_sum("kl", (outputs, others, mask))

    def _choices(self, outputs: jax.Array, mask: jax.Array) -> list["_Choices"]:
        runs = zip(self._by_run(outputs), self._by_run(mask), strict=True)
        return [_Choices.of(logits, legal) for logits, legal in runs]

    def _numbers_sum(
        self, method: str, arrays: tuple[jax.Array, ...], *action: jax.Array
    ) -> jax.Array | float:
        if self.numbers is None:
            return 0.0
        return getattr(self.numbers, method)(*map(self._of_numbers, arrays), *action)


class _Choices(NamedTuple):
    """Probabilities of choices with equally many options, from a single exponential for each.

    The exponentials are most of the cost of an update with many choices.
    """

    logits: jax.Array  # [..., k, options]: minus the greatest legal one; very low where illegal
    weights: jax.Array  # [..., k, options]: their exponentials
    total: jax.Array  # [..., k]: of the weights

    @classmethod
    def of(cls, logits: jax.Array, legal: jax.Array) -> "_Choices":
        lowest = jnp.finfo(logits.dtype).min
        greatest = jnp.where(legal, logits, lowest).max(-1, keepdims=True)
        # Low enough for a probability of 0, and finite, so that no gradient is NaN.
        logits = jnp.where(legal, logits - jax.lax.stop_gradient(greatest), _LOW)
        weights = jnp.exp(logits)
        return cls(logits, weights, weights.sum(-1))

    def log_prob(self, choice: jax.Array) -> jax.Array:
        """Compute the log-probability of legal options, `[..., k]`."""
        chosen = choice[..., None] == jnp.arange(self.logits.shape[-1])
        return jnp.where(chosen, self.logits, 0.0).sum(-1) - jnp.log(self.total)

    def entropy(self) -> jax.Array:
        """Compute the entropies, `[..., k]`."""
        return jnp.log(self.total) - (self.weights * self.logits).sum(-1) / self.total

    def kl(self, other: "_Choices") -> jax.Array:
        """Compute KL(these || others), `[..., k]`."""
        difference = (self.weights * (self.logits - other.logits)).sum(-1) / self.total
        return difference + jnp.log(other.total) - jnp.log(self.total)
