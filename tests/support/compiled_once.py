"""Runs of equal configuration in one test module share what is traced and compiled for them.

Who asks for a learner that is equal in value to an earlier one of the same module gets the earlier
one, on which JAX's own caches and the one here depend.
"""

import dataclasses
import functools
import sys

import jax

# What is compiled depends on these, too.
FLAGS = ("jax_disable_most_optimizations", "jax_enable_x64", "jax_default_matmul_precision")


class CompiledOnce:
    """What the tests of a module have compiled so far, and the functions that look there first.

    Attributes:
        shares: whether they do; False while a test replaces parts of the code.
    """

    def __init__(self, patch):
        """Replace the functions wherever they are called, if training is imported at all."""
        self.shares = True
        self._learners, self._compiled = {}, {}
        trainer = sys.modules.get("jaxmarl_ppo.training.trainer")
        if trainer is None:
            return
        self._make_learner = trainer.make_learner
        self._make_runs = trainer.make_runs
        patch.setattr(trainer, "make_runs", self.make_runs)
        # Where it is called, not where it is defined or shown to users.
        shown = ("jaxmarl_ppo", "jaxmarl_ppo.learner", "jaxmarl_ppo.learner.build")
        for name, module in list(sys.modules.items()):
            if name not in shown and vars(module).get("make_learner") is self._make_learner:
                patch.setattr(module, "make_learner", self.make_learner)

    def make_learner(self, env, env_params, config, *, strict=True):
        """Make a learner, or return the one of equal value."""
        made = self._make_learner(env, env_params, config, strict=strict)
        return self._learners.setdefault(_value(made), made) if self._is_shared(made) else made

    def make_runs(self, learner, config):
        """Make the program of runs, unless this learner's was made for as many."""
        make = functools.partial(self._make_runs, learner, config)
        return self._find_or(make, learner, config.num_seeds, config.num_devices)

    def _is_shared(self, learner):
        return self.shares and not learner.env.steps_on_host

    def _find_or(self, make, learner, *numbers):
        if not self._is_shared(learner):
            return make()
        flags = [jax.config.values[flag] for flag in FLAGS]
        key = (make.func, learner, *numbers, *flags)
        if key not in self._compiled:
            self._compiled[key] = make()
        return self._compiled[key]


def _value(learner):
    """Return what is equal for learners whose runs are the same but for their seeds."""
    from jaxmarl_ppo.devices.compiled_runs import hyperparams_of
    from jaxmarl_ppo.sweeps.program_key import program_key

    env = learner.env
    numbers = jax.tree.leaves((learner.env_params, hyperparams_of(learner)))
    program = program_key(dataclasses.replace(learner, env=None))
    return program, program_key([type(env), vars(env), numbers])
