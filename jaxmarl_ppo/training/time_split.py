"""The rollout's share of an iteration's time, measured during training."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from jaxmarl_ppo.devices.compilation import jit_rollout
from jaxmarl_ppo.devices.sharding import Devices
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import TrainState

# A run of this length justifies the core seconds for compiling its rollout separately.
AFTER_S = 60.0
REPEATS = 3


class TimeSplit:
    """Times separate rollouts of a state, once a run has lasted a while.

    An iteration is one compiled program, so its parts cannot be timed; its first half, compiled
    again, can. The state is only read, so training stays the same bit-for-bit. Environments stepped
    on the host are excluded, since their games would advance. So are jobs of several processes,
    which would have to measure at the same moment.

    Args:
        learner: of the run.
        devices: that it trains on.
        after_s: seconds from now on before anything is done.
    """

    def __init__(self, learner: Learner, devices: Devices, after_s: float = AFTER_S) -> None:
        self.rollout_share: float | None = None
        self._learner, self._devices = learner, devices
        self._due = time.perf_counter() + after_s
        self._is_over = learner.env.steps_on_host or jax.process_count() > 1
        self._beside = ThreadPoolExecutor(1)
        self._compilation: Future[Any] | None = None
        self._was_compiled = False  # before the newest iteration began

    def poll(self, state: TrainState, iteration_s: float) -> None:
        """Do what is due between two iterations.

        Args:
            state: of training.
            iteration_s: seconds that an iteration takes.
        """
        if self._is_over or time.perf_counter() < self._due:
            return
        if self._compilation is None:
            lowered = jit_rollout(self._learner, self._devices).lower(state, jax.random.key(0))
            self._compilation = self._beside.submit(lowered.compile)
        elif not self._was_compiled:
            # Iterations during a compilation are slow, so the next one counts.
            self._was_compiled = self._compilation.done()
        else:
            self._is_over = True
            self.rollout_share = self._measure(state, iteration_s)

    def close(self) -> None:
        """Wait for a running compilation, which cannot be interrupted."""
        self._beside.shutdown()

    def _measure(self, state: TrainState, iteration_s: float) -> float | None:
        """Time a few rollouts; None where memory does not suffice for one beside the state."""
        assert self._compilation is not None
        seconds = []
        try:
            play = self._compilation.result()
            for _ in range(1 + REPEATS):  # the first touches new memory
                began = time.perf_counter()
                jax.block_until_ready(play(state, jax.random.key(0)))
                seconds.append(time.perf_counter() - began)
        except jax.errors.JaxRuntimeError:
            return None
        return min(1.0, sorted(seconds[1:])[REPEATS // 2] / iteration_s)
