"""The distribution of actions that are a product of choices and numbers."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxmarl_envs.actions import Action
from jaxmarl_envs.threefry import split, unrolled
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.numbers import NumbersDistribution


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
        return self._sum("log_prob", (outputs, mask), action)

    def entropy(self, outputs: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute the entropy of all factors together, `[...]`."""
        return self._sum("entropy", (outputs, mask))

    def kl(self, outputs: jax.Array, others: jax.Array, mask: jax.Array) -> jax.Array:
        """Compute KL(outputs' distribution || others') of all factors together, `[...]`."""
        return self._sum("kl", (outputs, others, mask))

    def _sum(
        self, method: str, arrays: tuple[jax.Array, ...], action: Action | None = None
    ) -> jax.Array:
        """Sum what a method returns for every factor, with its part of an action last."""
        chosen = None
        if action is not None and self.counts:
            chosen = self._of_choices(action.choices)
        total = jnp.zeros(arrays[0].shape[:-1])
        for run, ((one, _), *own) in enumerate(
            zip(self._runs, *map(self._by_run, arrays), strict=True)
        ):
            last = () if chosen is None else (chosen[run],)
            total += getattr(one, method)(*own, *last).sum(-1)
        if self.numbers is not None:
            last = () if action is None else (action.numbers,)
            total += getattr(self.numbers, method)(*map(self._of_numbers, arrays), *last)
        return total
