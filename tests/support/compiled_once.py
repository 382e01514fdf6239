"""Runs of equal configuration in one test module share what is traced and compiled for them.

Learners are compared by value: environment, parameters, networks, hyper-parameters. Whoever asks
for a learner that is equal to one of the same module gets that one, on which JAX's own caches and
those here hang. A test that replaces parts of the code (`monkeypatch`) shares nothing.
"""

import dataclasses
import functools
import sys
from collections.abc import Mapping
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv

_FLAGS = ("jax_disable_most_optimizations", "jax_enable_x64", "jax_default_matmul_precision")


class CompiledOnce:
    """What the tests of a module have compiled so far, and the functions that look there first.

    Attributes:
        shares: whether they do; False while a test replaces parts of the code.
    """

    def __init__(self, patch):
        """Replace the functions where runs and their readers call them, if these are imported."""
        self.shares = True
        self._learners, self._compiled = {}, {}
        self._kept = []  # so that no identity is given twice
        trainer = sys.modules.get("jaxmarl_ppo.training.trainer")
        if trainer is None:
            return
        self._make_learner = trainer.make_learner
        self._compile_run = trainer.compile_run
        self._make_members = trainer.make_members
        patch.setattr(trainer, "make_learner", self.make_learner)
        patch.setattr(trainer.run_folder, "make_learner", self.make_learner)
        patch.setattr(trainer, "compile_run", self.compile_run)
        patch.setattr(trainer, "make_members", self.make_members)

    def make_learner(self, env, env_params, config, *, strict=True):
        """Make a learner, or return the one of equal value."""
        made = self._make_learner(env, env_params, config, strict=strict)
        if not self.shares or env.steps_on_host:
            return made
        return self._learners.setdefault(self._value(made), made)

    def compile_run(self, learner, devices, key):
        """Compile a run, unless this learner's was compiled for as many devices."""
        make = functools.partial(self._compile_run, learner, devices, key)
        return self._found_or(make, learner, devices.num_devices)

    def make_members(self, learner, config):
        """Make what trains a group, unless this learner's was made for as many runs."""
        make = functools.partial(self._make_members, learner, config)
        return self._found_or(make, learner, config.num_seeds, config.num_devices)

    def _found_or(self, make, learner, *numbers):
        if not self.shares or learner.env.steps_on_host:
            return make()
        self._kept.append(learner)
        key = (make.func, id(learner), *numbers, *(jax.config.values[flag] for flag in _FLAGS))
        if key not in self._compiled:
            self._compiled[key] = make()
        return self._compiled[key]

    def _value(self, x):
        """Make a hashable value that is equal for what is traced and compiled alike."""
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        if isinstance(x, jax.Array | np.ndarray | np.generic):
            return str(x.dtype), x.shape, np.asarray(x).tobytes()
        if x is None or isinstance(x, str | bool | int | float | bytes):
            return type(x), repr(x)
        if isinstance(x, list | tuple):
            return type(x), *map(self._value, x)
        if isinstance(x, Mapping):
            return type(x), *((key, self._value(value)) for key, value in x.items())
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            names = (field.name for field in dataclasses.fields(x))
            return type(x), *(self._value(getattr(x, name)) for name in names)
        if isinstance(x, FunctionType):
            bound = [cell.cell_contents for cell in x.__closure__ or ()]
            return x.__code__, x.__module__, self._value([bound, x.__defaults__, x.__kwdefaults__])
        if isinstance(x, MultiAgentEnv):
            return type(x), self._value(vars(x))
        self._kept.append(x)
        return id(x)
