"""`quick_check`: what can be said about an environment without compiling it."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxmarl_envs.check.declare import declare, impure, random_actions, trace
from jaxmarl_envs.check.interpret import Interpreter, opened
from jaxmarl_envs.check.rules import BEGUN, HARMLESS, OBSERVED, STEPPED
from jaxmarl_envs.check.run import raise_fault, see_obs, see_step
from jaxmarl_envs.check.types import EnvContractError, Observed, Spec, Trace, breach, calling
from jaxmarl_envs.check.values import keys_from_words
from jaxmarl_envs.core import MultiAgentEnv

_MAX_STEPS = 8
_BUDGET = 10_000  # operations, some twenty microseconds each
_FUNCTIONS: tuple[str, ...] = ("reset_env", "step_env")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def quick_check(env: MultiAgentEnv, params: Any = None) -> None:
    """Reject an environment that cannot be trained on, in a fraction of a second.

    Declarations and traced shapes are checked as by `check_env`, and both functions must become the
    same program when they are traced again. Then the first steps of one seed, at most 8 and as many
    as are evaluated quickly, are played with random legal actions and asked the rules of
    `check_env`; nothing is compiled for them. Somebody must act, and lives must be able to end.

    More lenient than `check_env`: features may lie out of their space and types may be weak. Of an
    environment that is stepped on the host no step is played.

    Args:
        env: any `MultiAgentEnv`.
        params: its parameters, by default `env.default_params`.

    Raises:
        EnvContractError: A `ValueError` of one sentence with the field, the value found and what
            was expected.
    """
    spec = declare(env, params)
    programs = _Programs()
    traced = trace(spec, programs.trace)
    programs.expect_the_same_again(env)
    if not env.steps_on_host:
        _FirstSteps(spec, traced, programs).play()


class _Programs:
    """Programs that `reset_env` and `step_env` become when JAX traces them."""

    def __init__(self) -> None:
        self.traced: list[ClosedJaxpr] = []
        self._calls: list[tuple[Any, ...]] = []

    def trace(self, function: Any, *args: Any) -> Any:
        """Trace a function, keep the program, and return shapes and dtypes of the results."""
        program, shapes = _trace(function, *args)
        self.traced.append(program)
        self._calls.append((function, *args))
        # Without weak types, which a trainer does not mind.
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), shapes)

    def expect_the_same_again(self, env: MultiAgentEnv) -> None:
        """Raise if a function becomes another program when it is traced again.

        Whatever is not a function of the arguments, such as NumPy's random numbers, is a constant
        of the program, and another one the next time.
        """
        for name, program, call in zip(_FUNCTIONS, self.traced, self._calls, strict=True):
            with calling(env, name, " when traced by JAX"):
                again, _ = _trace(*call)
            if not _same(program, again):
                raise impure(env, name)


def is_the_same_again(function: Any, *args: Any) -> bool:
    """Return whether a function becomes the same program when it is traced twice."""
    return _same(*(_trace(function, *args)[0] for _ in range(2)))


def _trace(function: Any, *args: Any) -> tuple[ClosedJaxpr, Any]:
    # A new lambda each time, because JAX remembers what it has traced.
    return jax.make_jaxpr(lambda *args: function(*args), return_shape=True)(*args)


def _same(one: Any, two: Any) -> bool:
    """Compare two programs, or what they are made of."""
    if one is two or type(one) is not type(two):
        return one is two
    if isinstance(one, ClosedJaxpr | Jaxpr):
        (one, consts), (two, others) = map(opened, (one, two))
        return _same(consts, others) and _same_operations(one, two)
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, int | float | complex | np.generic | np.ndarray | jax.Array):
        return _bytes(one) == _bytes(two)
    # Such as functions that derivatives are made by.
    return _ADDRESS.sub("", repr(one)) == _ADDRESS.sub("", repr(two))


def _same_operations(one: Jaxpr, two: Jaxpr) -> bool:
    twins = dict(zip(one.constvars + one.invars, two.constvars + two.invars, strict=False))

    def paired(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
        return len(xs) == len(ys) and all(
            isinstance(y, Literal) and _same(x.val, y.val)
            if isinstance(x, Literal)
            else twins[x] is y
            for x, y in zip(xs, ys, strict=True)
        )

    for x, y in zip(one.eqns, two.eqns, strict=False):
        alike = x.primitive is y.primitive and paired(x.invars, y.invars)
        if not alike or not _same(x.params, y.params):
            return False
        twins.update(zip(x.outvars, y.outvars, strict=True))
    return len(one.eqns) == len(two.eqns) and paired(one.outvars, two.outvars)


def _outputs_that_never_change(program: ClosedJaxpr) -> list[bool]:
    """Return which outputs of a program depend on none of its inputs, as far as is seen at once."""
    varying = set(program.jaxpr.invars)
    for eqn in program.jaxpr.eqns:
        if any(not isinstance(atom, Literal) and atom in varying for atom in eqn.invars):
            varying.update(eqn.outvars)
    return [isinstance(x, Literal) or x not in varying for x in program.jaxpr.outvars]


class _FirstSteps:
    """The first steps of one seed, evaluated by `Interpreter`."""

    def __init__(self, spec: Spec, traced: Trace, programs: _Programs) -> None:
        self.spec = spec
        self._programs = dict(zip(_FUNCTIONS, programs.traced, strict=True))
        self._structures = dict(
            zip(_FUNCTIONS, map(jax.tree.structure, (traced.reset, traced.step)), strict=True)
        )
        self._interpreter = Interpreter(_BUDGET)
        self._rng = np.random.default_rng(0)
        self._params = jax.tree.leaves(spec.params)
        self._episode = self._time = self._num_steps = 0
        self._anybody_acted = False

    def play(self) -> None:
        """Play as many steps as the budget allows and check every rule on them."""
        if (began := self._call("reset_env")) is None:
            return
        obs, state = began
        first = state
        self._look(see_obs(_add_axis(obs)), began=True)
        for _ in range(_MAX_STEPS):
            before = see_obs(_add_axis(obs))
            action = random_actions(self.spec, self._rng, before.action_mask[0])
            stepped = self._call("step_env", *jax.tree.leaves(state), action)
            if stepped is None:
                break
            obs, state = self._take(before, stepped)
            if not obs.alive.any():
                if (began := self._call("reset_env")) is None:
                    break
                obs, state = began
                self._episode, self._time = self._episode + 1, 0
                self._look(see_obs(_add_axis(obs)), began=True)
        self._expect_somebody_who_acts(_bytes(first) == _bytes(state))

    def _take(self, before: Observed, stepped: Any) -> tuple[Any, Any]:
        """Ask the rules about a step and return the observation and the state after it."""
        self._time += 1
        self._num_steps += 1
        time_step = see_step(before, np.array([self._time]), _add_axis(stepped))
        self._anybody_acted |= bool(before.agent_mask.any() | time_step.obs.agent_mask.any())
        self._look(time_step.obs)
        for asked in STEPPED:
            raise_fault(self.spec, asked(self.spec, time_step), self._when)
        if self._num_steps == 1:
            self._expect_an_end(stepped)
        return stepped[:2]

    def _look(self, obs: Observed, began: bool = False) -> None:
        for asked in [*OBSERVED, *(BEGUN if began else [])]:
            if asked not in HARMLESS:
                raise_fault(self.spec, asked(self.spec, obs), self._when)

    def _expect_an_end(self, stepped: Any) -> None:
        """Raise if it can be seen from the program that no life ever ends."""
        fixed = self._structures["step_env"].unflatten(
            _outputs_that_never_change(self._programs["step_env"])
        )
        (obs, _, _, terminated, truncated, _), (is_fixed, _, _, *edges_fixed, _) = stepped, fixed
        endless = is_fixed.alive and obs.alive.any() and all(edges_fixed)
        if endless and not (terminated | truncated).any():
            raise breach(
                self.spec.env,
                f"step_env: obs.alive is {obs.alive.tolist()} and terminated and truncated are all "
                "False whatever happens, expected lives that can end",
            )

    def _expect_somebody_who_acts(self, stands_still: bool) -> None:
        """Raise if no agent acted, unless acting may only begin later."""
        if self._num_steps == 0 or self._anybody_acted:
            return
        ended = f"over {self._episode} episodes that ended" if self._episode else None
        if stands_still or ended:
            raise breach(
                self.spec.env,
                f"obs.agent_mask is all False at the first {self._num_steps} steps, "
                f"{ended or 'and the state stays as it is'}, expected agents that act",
            )

    def _call(self, name: str, *args: Any) -> Any:
        """Evaluate a function on a new key; give None where that is slow or cannot be done here."""
        program = self._programs[name]
        width = jax.eval_shape(jax.random.key_data, program.in_avals[0]).shape[-1]
        words = self._rng.integers(2**32, size=width, dtype=np.uint32)
        try:
            found = self._interpreter(program, [keys_from_words(words), *args, *self._params])
        except EnvContractError:
            raise
        except Exception:
            # The shapes are right: what cannot be evaluated here may well be compiled.
            return None
        return self._structures[name].unflatten(found)

    def _when(self, seed: int) -> str:
        return f"seed {seed}, episode {self._episode}, step {self._time}"


def _add_axis(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[None], tree)


def _bytes(tree: Any) -> list[bytes]:
    return [_words(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def _words(x: Any) -> np.ndarray:
    is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)
