"""`Run`: an environment on random legal actions, every rule asked, and everything repeated."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.check.declare import random_actions
from jaxmarl_envs.check.rules import BEGUN, OBSERVED, STEPPED
from jaxmarl_envs.check.types import (
    STEP_FIELDS,
    EnvReport,
    Observed,
    Spec,
    TimeStep,
    Violation,
    breach,
    calling,
    describe,
)
from jaxmarl_envs.core import MultiAgentEnv

_STEPS_REPEATED = 4  # steps that are computed twice with the same arguments
_ROUNDING = 1e-5  # between programs that were compiled separately
_SAME_KEY = ("in one call", "in another with the same key and arguments")
_IDLE_ACTION = ("for one action", "for another of slots whose agent_mask is False")


class Run:
    """`E` seeds, stepped side by side by one compiled function and looked at on the host."""

    def __init__(self, spec: Spec, num_envs: int, key: jax.Array) -> None:
        self.spec, self.num_envs = spec, num_envs
        self.rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        key_reset, self.key = jax.random.split(key)
        self.reset_keys = jax.random.split(key_reset, num_envs)
        self.step_fn = jax.jit(jax.vmap(_step_with(spec.env), in_axes=(0, 0, 0, None)))
        self.reset_fn = jax.jit(jax.vmap(spec.env.reset_env, in_axes=(0, None)))
        self.episode = np.zeros(num_envs, int)  # [E]
        self.time = np.zeros(num_envs, int)  # [E]
        self.num_steps = 0
        self.num_decisions = np.zeros(spec.env.num_agents, int)  # [A]
        self.num_lives = np.zeros(spec.env.num_agents, int)  # [A]
        with calling(spec.env, "reset_env", " under jit and vmap"):
            self.current = self.first = self.reset_fn(self.reset_keys, spec.params)
            again = self.reset_fn(self.reset_keys, spec.params)
        self._look(see_obs(self.first[0]), np.ones(num_envs, bool), began=True)
        self._expect_same("reset_env", self.first, again, _SAME_KEY)

    def step(self) -> None:
        """Step every seed once and ask every rule about it."""
        before = see_obs(self.current[0])
        action, other_action = self._actions(before)
        self.key, key = jax.random.split(self.key)
        args = (jax.random.split(key, self.num_envs), self.current[1], action)
        with calling(self.spec.env, "step_env", " under jit and vmap"):
            stepped, reset_keys = self.step_fn(*args, self.spec.params)
        self.time += 1
        time_step = see_step(before, self.time, stepped)
        self._look(time_step.obs, np.ones(self.num_envs, bool))
        for stepped_rule in STEPPED:
            self._raise_fault(stepped_rule(self.spec, time_step))
        if self.num_steps < _STEPS_REPEATED * self.num_envs:
            self._repeat(args, stepped, action, _SAME_KEY)
        if not before.agent_mask.all():
            self._repeat(args, stepped, other_action, _IDLE_ACTION)

        over = time_step.obs.over
        self._count(time_step, over, args, stepped)
        self.current = self._begin_anew(over, stepped, reset_keys)
        self._look(see_obs(self.current[0]), over, began=True)

    def _begin_anew(self, over: np.ndarray, stepped: Any, keys: jax.Array) -> Any:
        """Give observation and state, with new episodes where `over [E]` is True."""
        if not over.any():
            return stepped[:2]
        return _select(over, self.reset_fn(keys, self.spec.params), stepped[:2])

    def _count(self, time_step: TimeStep, over: np.ndarray, args: Any, stepped: Any) -> None:
        if self.num_steps == 0:
            self.first_args, self.first_stepped, self.ending = args, stepped, (args, 0)
        if over.any() and not self.episode.any():
            self.ending = (args, int(over.argmax()))
        self.num_steps += self.num_envs
        self.num_decisions += time_step.before.agent_mask.sum(0)
        self.num_lives += time_step.edge.sum(0)
        self.episode += over
        self.time[over] = 0

    def _actions(self, obs: Observed) -> tuple[Any, Any]:
        """Draw actions twice; they agree, and are legal, where `agent_mask` is True."""
        anything = np.ones_like(obs.action_mask)
        legal = random_actions(self.spec, self.rng, obs.action_mask)

        def where_acting(other: Any) -> Any:
            acts = obs.agent_mask[..., None]
            one, two = (self.spec.layout.split(action) for action in (legal, other))
            return self.spec.layout.join(
                *(np.where(acts, x, y) for x, y in zip(one, two, strict=True))
            )

        one, two = (random_actions(self.spec, self.rng, anything) for _ in range(2))
        return where_acting(one), where_acting(two)

    def _repeat(self, args: Any, stepped: Any, action: Any, how: tuple[str, str]) -> None:
        again, _ = self.step_fn(*args[:2], action, self.spec.params)
        self._expect_same("step_env", stepped, again, how, timed=True)

    def compare_without_jit(self) -> None:
        """Run the first reset and the first step of seed 0 operation by operation."""
        env, params, how = self.spec.env, self.spec.params, ("under jit", "without")
        with calling(env, "reset_env", " without jit"):
            reset = env.reset_env(self.reset_keys[0], params)
        self._expect_same("reset_env", _first_seed(self.first), _add_axis(reset), how, exact=False)
        key, state, action = jax.tree.map(lambda x: x[0], self.first_args)
        with calling(env, "step_env", " without jit"):
            action = jax.tree.map(jnp.asarray, action)
            step = env.step_env(jax.random.split(key)[0], state, action, params)
        first = _first_seed(self.first_stepped)
        self._expect_same("step_env", first, _add_axis(step), how, exact=False)

    def compare_step_functions(self) -> None:
        """Compare `step` and `step_batch`, with one seed at the end of its episode."""
        env = self.spec.env
        args, ending = self.ending
        args = jax.tree.map(
            lambda x, y: jnp.concatenate([x[ending : ending + 1], y[1:]]), args, self.first_args
        )
        stepped, reset_keys = self.step_fn(*args, self.spec.params)
        over = see_obs(stepped[0]).over
        current = self._begin_anew(over, stepped, reset_keys)
        info = {"final_observation": stepped[0], **stepped[5], "episode_over": over}
        expected = (*current, *stepped[2:5], info)
        functions = {"step": jax.vmap(env.step, (0, 0, 0, None)), "step_batch": env.step_batch}
        for name, function in functions.items():
            with calling(env, name, " under jit"):
                found = jax.jit(function)(*args, self.spec.params)
            how = (f"in {name}", "in step_env, and reset_env where the episode is over")
            self._expect_same(name, found, expected, how, exact=False)

    def _look(self, obs: Observed, seeds: np.ndarray, began: bool = False) -> None:
        for observed in [*OBSERVED, *(BEGUN if began else [])]:
            self._raise_fault(observed(self.spec, obs), seeds)

    def _raise_fault(self, fault: Violation | None, seeds: np.ndarray | None = None) -> None:
        raise_fault(self.spec, fault, self._when, seeds)

    def _when(self, seed: int) -> str:
        return f"seed {seed}, episode {self.episode[seed]}, step {self.time[seed]}"

    def _expect_same(
        self,
        function: str,
        one: Any,
        two: Any,
        how: tuple[str, str],
        *,
        timed: bool = False,
        exact: bool = True,
    ) -> None:
        """Raise unless two results of a function, with a leading axis `E`, are equal."""
        difference = _difference(one, two, exact)
        if difference is None:
            return
        seed, field, x, y = difference
        when = self._when(seed) if timed else f"seed {seed}"
        raise breach(
            self.spec.env,
            f"{when}: {function} gives {field} {x} {how[0]} and {y} {how[1]}, expected the same",
        )

    def report(self) -> EnvReport:
        """Count what has been seen so far."""
        agents = self.spec.env.agents
        return EnvReport(
            num_steps=self.num_steps,
            num_episodes=int(self.episode.sum()),
            num_decisions=dict(zip(agents, self.num_decisions.tolist(), strict=True)),
            num_lives=dict(zip(agents, self.num_lives.tolist(), strict=True)),
        )


def raise_fault(
    spec: Spec, fault: Violation | None, when: Callable[[int], str], seeds: np.ndarray | None = None
) -> None:
    """Raise at the first place where a rule is broken, if there is one.

    Args:
        spec: the environment's declarations.
        fault: what a rule found.
        when: from a seed's index to words for the time.
        seeds: `[E]` bool, those that count; None for all.

    Raises:
        EnvContractError: In one sentence.
    """
    if fault is None:
        return
    places = np.argwhere(fault.broken)
    if seeds is not None:
        places = places[seeds[places[:, 0]]]
    if len(places) == 0:
        return
    seed, *rest = places[0]
    agent = f", agent {spec.env.agents[rest[0]]!r}" if rest else ""
    field = fault.field + "".join(f"[{index}]" for index in rest[1:])
    found = fault.found[(seed, *rest)].tolist()
    raise breach(spec.env, f"{when(seed)}{agent}: {field} is {found}, expected {fault.expected}")


def _step_with(env: MultiAgentEnv) -> Callable[..., Any]:
    """Make a function that calls `step_env` and gives the key for the reset that may follow."""

    def step(key: jax.Array, state: Any, action: jax.Array, params: Any) -> tuple[Any, jax.Array]:
        key_step, key_reset = jax.random.split(key)
        return env.step_env(key_step, state, action, params), key_reset

    return step


@jax.jit
@jax.vmap
def _select(pred: jax.Array, on_true: Any, on_false: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(pred, x, y), on_true, on_false)


def _difference(one: Any, two: Any, exact: bool) -> tuple[int, str, Any, Any] | None:
    """Find the first seed and field in which results differ, and both values; NaN equals NaN."""
    one, two = (dict(zip(STEP_FIELDS, _to_numpy(x), strict=False)) for x in (one, two))
    if jax.tree.structure(one) != jax.tree.structure(two):
        return 0, "the structure", jax.tree.structure(one), jax.tree.structure(two)
    leaves = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(two), strict=True)
    for (path, x), y in leaves:
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        if describe(x) != describe(y):
            return 0, field, describe(x), describe(y)
        equal = (x == y) | ((x != x) & (y != y))
        if not exact and np.issubdtype(x.dtype, np.inexact):
            equal |= np.isclose(x, y, rtol=_ROUNDING, atol=_ROUNDING)
        places = np.argwhere(~equal)
        if len(places):
            seed, *rest = place = tuple(places[0])
            indices = "".join(f"[{index}]" for index in rest)
            return int(seed), field + indices, x[place].item(), y[place].item()
    return None


def see_obs(obs: Any) -> Observed:
    """Turn observations of `E` environments into NumPy arrays."""
    return Observed(*(np.asarray(getattr(obs, f.name)) for f in fields(Observed)))


def see_step(before: Observed, time: np.ndarray, stepped: Any) -> TimeStep:
    """Turn what `step_env` returned for `E` environments into NumPy arrays."""
    obs, _, *values, info = stepped
    final = info.get("final_observation")
    return TimeStep(
        before,
        time,
        see_obs(obs),
        *map(np.asarray, values),
        final=None if final is None else see_obs(final),
        metrics={name: np.asarray(value) for name, value in info.get("metrics", {}).items()},
    )


def _to_numpy(tree: Any) -> Any:
    def convert(leaf: Any) -> np.ndarray:
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf)

    return jax.tree.map(convert, tree)


def _first_seed(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[:1], tree)


def _add_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
