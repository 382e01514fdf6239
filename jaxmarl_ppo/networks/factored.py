"""The distribution of actions that are a product of choices and numbers."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import Action
from jaxmarl_envs.threefry import split, unrolled
from jaxmarl_ppo.networks.distributions import ActionDistribution, MaskedCategorical
from jaxmarl_ppo.networks.numbers import NumbersDistribution

# The logit of an illegal option, in relation to the greatest legal one.
_LOW = -1e9
# Most options that are compared one by one; an axis of few numbers is reduced slowly.
_MAX_IN_TURN = 16


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
    def _runs(self) -> tuple[tuple[int, int], ...]:
        """Group neighbouring choices with equally many options, which are computed at once.

        Returns:
            For each run, the options of each of its choices, and the number of choices.
        """
        return tuple((count, len(list(same))) for count, same in itertools.groupby(self.counts))

    def _by_run(self, x: jax.Array) -> list[jax.Array]:
        """Cut `x [..., outputs]` into the options of each run's choices, `[..., k, options]`."""
        parts, start = [], 0
        for count, num in self._runs:
            end = start + num * count
            parts.append(x[..., start:end].reshape(*x.shape[:-1], num, count))
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
        runs = zip(self._choices(outputs, mask), of_choices, strict=True)
        choices = [own.sample(noise) for own, noise in runs]
        return self._join(choices, "sample", outputs, mask, of_numbers)

    def mode(self, outputs: jax.Array, mask: jax.Array) -> Action:
        """Return the most likely option of each choice, and the most likely numbers, per row."""
        choices = [own.logits.argmax(-1) for own in self._choices(outputs, mask)]
        return self._join(choices, "mode", outputs, mask)

    def _join(
        self,
        choices: list[jax.Array],
        method: str,
        outputs: jax.Array,
        mask: jax.Array,
        *noise: Any,
    ) -> Action:
        """Join the options `[..., k]` of each run, and `sample` or `mode` of the numbers."""
        numbers = None
        if self.numbers is not None:
            own = map(self._of_numbers, (outputs, mask))
            numbers = getattr(self.numbers, method)(*noise, *own)
        joined = jnp.concatenate(choices, axis=-1).astype(jnp.int32) if choices else None
        return Action(joined, numbers)

    def log_prob(self, outputs: jax.Array, mask: jax.Array, action: Action) -> jax.Array:
        """Compute the log-probability of the choices plus the log-density of the numbers."""
        chosen = self._of_choices(action.choices) if self.counts else []
        runs = zip(self._choices(outputs, mask), chosen, strict=True)
        return self._total(
            [own.log_prob(choice) for own, choice in runs],
            *("log_prob", (outputs, mask), action.numbers),
        )

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy of all factors together, `[...]`."""
        of_choices = [own.entropy() for own in self._choices(outputs, mask)]
        return self._total(of_choices, "entropy", (outputs, mask))

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others') of all factors together, `[...]`."""
        both = (self._choices(x, mask) for x in (outputs, others))
        of_choices = [own.kl(other) for own, other in zip(*both, strict=True)]
        return self._total(of_choices, "kl", (outputs, others, mask))

    def kl_from_uniform(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(uniform || outputs' distribution) of all choices together, `[...]`."""
        zeros = jax.tree.map(jnp.zeros_like, outputs)
        both = (self._choices(x, mask) for x in (zeros, outputs))
        of_choices = [uniform.kl(own) for uniform, own in zip(*both, strict=True)]
        return self._total(of_choices, "kl_from_uniform", (outputs, mask))

    def _choices(self, outputs: jax.Array, mask: jax.Array) -> list["OptionWeights"]:
        runs = zip(self._by_run(outputs), self._by_run(mask), strict=True)
        return [OptionWeights.of(logits, legal) for logits, legal in runs]

    def _total(
        self,
        of_choices: list[jax.Array],
        method: str,
        arrays: tuple[jax.Array, ...],
        *action: jax.Array,
    ) -> jax.Array:
        """Add up what there is of each run of choices, and a method's result of the numbers."""
        of_numbers = []
        if self.numbers is not None:
            of_numbers.append(
                getattr(self.numbers, method)(*map(self._of_numbers, arrays), *action)
            )
        return functools.reduce(jnp.add, [*of_choices, *of_numbers])


def as_factored(distribution: ActionDistribution) -> FactoredDistribution:
    """Write a distribution over one choice, or over numbers, as one with a single factor."""
    if isinstance(distribution, FactoredDistribution):
        return distribution
    if isinstance(distribution, MaskedCategorical):
        return FactoredDistribution((distribution.num_actions,), None)
    return FactoredDistribution((), cast(NumbersDistribution, distribution))


class OptionWeights(NamedTuple):
    """Probabilities of choices with equally many options, from a single exponential for each.

    The exponentials are most of the cost of an update with many choices.
    """

    logits: jax.Array  # [..., k, options]: minus the greatest legal one; very low where illegal
    weights: jax.Array  # [..., k, options]: their exponentials
    total: jax.Array  # [..., k]: of the weights

    @classmethod
    def of(
        cls, logits: jax.Array, legal: jax.Array, in_turn: bool | None = None
    ) -> "OptionWeights":
        """Compute them; `in_turn` says whether options are compared one by one."""
        lowest = jnp.finfo(logits.dtype).min
        in_turn = logits.shape[-1] <= _MAX_IN_TURN if in_turn is None else in_turn
        greatest = _greatest(jnp.where(legal, logits, lowest), in_turn)[..., None]
        # Low enough for a probability of 0, and finite, so that no gradient is NaN.
        logits = jnp.where(legal, logits - greatest, _LOW)
        weights = jnp.exp(logits)
        return cls(logits, weights, weights.sum(-1))

    def sample(self, noise: jax.Array) -> jax.Array:
        """Draw options `[..., k]` by uniform numbers `[..., k]` below 1."""
        # Illegal options add nothing to the sums, so the first that exceeds the noise belongs to a
        # legal one. The last does, since it is at least 1, the weight of the likeliest option.
        if self.weights.shape[-1] > _MAX_IN_TURN:
            sums = jnp.cumsum(self.weights, -1)
            return (sums <= noise[..., None] * sums[..., -1:]).sum(-1)
        *sums, total = itertools.accumulate(_in_turn(self.weights))
        option = jnp.zeros(noise.shape, jnp.int32)
        return sum(((below <= noise * total).astype(jnp.int32) for below in sums), option)

    def log_prob(self, choice: jax.Array) -> jax.Array:
        """Compute the log-probability of legal options `[..., k]` together, `[...]`."""
        chosen = choice[..., None] == jnp.arange(self.logits.shape[-1])
        logits = jnp.where(chosen, self.logits, 0.0)
        # One sum over both axes: sums over few options are slow.
        return logits.reshape(*choice.shape[:-1], -1).sum(-1) - jnp.log(self.total).sum(-1)

    def entropy(self) -> jax.Array:
        """Compute the entropy of all choices together, `[...]`."""
        mean = (self.weights * self.logits).sum(-1) / self.total
        return (jnp.log(self.total) - mean).sum(-1)

    def kl(self, other: "OptionWeights") -> jax.Array:
        """Compute KL(these || others) of all choices together, `[...]`."""
        difference = (self.weights * (self.logits - other.logits)).sum(-1) / self.total
        return (difference + jnp.log(other.total) - jnp.log(self.total)).sum(-1)


def _greatest(x: jax.Array, in_turn: bool) -> jax.Array:
    """Take the greatest option of `x [..., k, options]`, without a gradient."""
    x = jax.lax.stop_gradient(x)
    return functools.reduce(jnp.maximum, _in_turn(x)) if in_turn else x.max(-1)


def _in_turn(x: jax.Array) -> list[jax.Array]:
    """Cut `x [..., options]` into its options."""
    return [x[..., i] for i in range(x.shape[-1])]
