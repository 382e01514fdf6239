"""One compiled program, and the runs that it trains: one, or several side by side.

Runs differ in their seeds and in numbers that are leaves of the training state: hyper-parameters
and the environment's parameters. Devices are a mesh of runs and environments: every run has a row
of devices over which its environments are spread, a row trains one run or more, and rows exchange
nothing.
"""

import dataclasses
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxmarl_ppo.devices.compilation import options_of_once
from jaxmarl_ppo.devices.sharding import BY_RUN, RUNS, SAME, Devices, of_runs, state_specs
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.tuning import Layout, tuning
from jaxmarl_ppo.types import Hyperparams, Population, PyTree, TrainState

# Hyper-parameters of the runs, by the group learners of a run.
OwnHyperparams = tuple[Hyperparams, ...]
# Where the state and the metrics of a single run lie on its devices.
_ONE: dict[type, Any] = {TrainState: state_specs(), Metrics: SAME}


def hyperparams_of(learner: Learner) -> OwnHyperparams:
    """Return the numeric hyper-parameters that a learner's runs begin with."""
    return tuple(group_learner.hyperparams for group_learner in learner.group_learners)


class CompiledRuns:
    """Replicas on rows of devices, each with one run.

    States and metrics of several runs have a leading axis `L` of replicas. `L` is `num_runs`,
    rounded up so that all rows have as many; spare replicas never train. With `num_runs=1` there is
    no such axis, and the program is `Learner.train_steps` itself. A run that is trained `in_turn`
    equals, bit-for-bit, the one that is alone on as many devices.

    Args:
        learner: of a single run. Its `num_devices` is the number of devices of each row.
        num_runs: number of runs side by side.
        num_rows: number of rows; None for as many as there are devices for, but at most one per
            run.
        layout: whether a row trains its runs one after the other or all together; None for the
            faster one on this backend.

    Raises:
        ValueError: For a number out of range, an unknown layout, or several runs of an environment
            that is stepped on the host.
    """

    def __init__(
        self,
        learner: Learner,
        num_runs: int = 1,
        *,
        num_rows: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        _check(learner, num_runs, num_rows, layout)
        self.learner, self.num_runs = learner, num_runs
        self.num_rows = num_rows or min(_most_rows(learner), num_runs)
        self.layout = layout or tuning().layout
        self.replicas_per_row = -(-num_runs // self.num_rows)
        self.num_replicas = self.num_rows * self.replicas_per_row
        self._is_one = num_runs == 1
        self._devices = Devices(learner.num_devices, self.num_rows)
        self._take = jax.jit(lambda tree, replica: jax.tree.map(lambda x: x[replica], tree))
        self._no_metrics: Metrics | None = None

    @property
    def num_devices(self) -> int:
        """Number of devices that train."""
        return self.num_rows * self.learner.num_devices

    def compile(self) -> float:
        """Compile training and initialisation, which the first call would do otherwise.

        Returns:
            Seconds that tracing took.
        """
        began = time.perf_counter()
        self.learner.env.prepare(self.learner.num_envs)
        _ = self._lowered_begin
        with ThreadPoolExecutor(1) as beside:
            # The compiler releases Python, which traces the other function meanwhile.
            begin = beside.submit(lambda: self._begin)
            _ = self._lowered_train
            trace_s = time.perf_counter() - began
            _ = self.compiled_train
            begin.result()
        return trace_s

    def init(
        self,
        keys: Sequence[jax.Array] | jax.Array,
        hyperparams: Sequence[OwnHyperparams] | None = None,
        env_params: Sequence[PyTree] | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Begin a run as every replica.

        Args:
            keys: of the runs, `[num_runs]`.
            hyperparams: of each run; None for the learner's. Made by `hyperparams_of` from a
                learner of the run's configuration.
            env_params: of each run; None for the learner's.

        Returns:
            States and empty metrics, of several runs with `[L, ...]` leaves.

        Raises:
            ValueError: If their number differs from that of runs, or they need another compiled
                program.
        """
        for name, given in (
            ("keys", keys),
            ("hyperparams", hyperparams),
            ("env_params", env_params),
        ):
            if given is not None and len(given) != self.num_runs:
                raise ValueError(
                    f"{name} must be one for each of the {self.num_runs} runs, got {len(given)}"
                )
        states = None
        for replica in range(self.num_runs):
            one = self.begin(
                keys[replica],
                None if hyperparams is None else hyperparams[replica],
                None if env_params is None else env_params[replica],
            )
            # Spare replicas also hold the first run, for its shape.
            states = self.fill(one) if states is None else self.write(states, replica, one)
        assert states is not None
        return states, self.fill(self.no_metrics)

    def begin(
        self,
        key: jax.Array,
        hyperparams: OwnHyperparams | None = None,
        env_params: PyTree | None = None,
    ) -> TrainState:
        """Make the state that a single run begins with, on one device.

        Raises:
            ValueError: If hyper-parameters or parameters need another compiled program.
        """
        own, params = self._own
        if hyperparams is not None:
            _check_hyperparams(hyperparams, own)
        if env_params is not None:
            _check_alike("env_params", env_params, params)
        state, metrics = self._begin(
            key,
            own if hyperparams is None else hyperparams,
            params if env_params is None else env_params,
        )
        if self._no_metrics is None:
            # On the host, where they are never donated.
            self._no_metrics = jax.tree.map(np.array, jax.device_get(metrics))
        return state

    @property
    def no_metrics(self) -> Metrics:
        """The metrics of one run before its first iteration, on the host."""
        if self._no_metrics is None:
            self.begin(jax.random.key(0))
        assert self._no_metrics is not None
        return self._no_metrics

    def fill(self, value: PyTree) -> Any:
        """Spread one run's state or metrics over devices as the value of all replicas."""
        if self._is_one:
            return self._place(value)
        return self._fill[type(value)](value)

    def train(
        self, states: TrainState, counts: np.ndarray, metrics: Metrics
    ) -> tuple[TrainState, Metrics]:
        """Advance every run by its own number of iterations; a fault ends a run's.

        Args:
            states: of all replicas; their memory is donated.
            counts: `[num_runs]` or `[L]` int; a run with 0 stays as it is.
            metrics: of earlier iterations, to which these are added; their memory is donated.
        """
        if self._is_one:
            return self.compiled_train(states, np.int32(counts[0]), metrics)
        padded = np.zeros(self.num_replicas, np.int32)
        padded[: len(counts)] = counts
        return self.compiled_train(states, padded, metrics)

    def write(self, tree: PyTree, replica: int, value: PyTree) -> Any:
        """Put a single run's state or metrics in a replica's place; donates the memory of `tree`.

        A run that begins in a place also needs `no_metrics` there.
        """
        if self._is_one:
            return self._place(value)
        return self._write[type(tree)](tree, np.int32(replica), value)

    def run(self, tree: PyTree, replica: int) -> Any:
        """Take one run's part of states or metrics; of several runs a copy, on its own devices."""
        if self._is_one:
            return tree
        row, own = divmod(replica, self.replicas_per_row)
        mesh = self._devices.row(row)

        def part(x: jax.Array) -> jax.Array:
            where = {device: place for place, device in enumerate(mesh.devices.flat)}
            shards = [shard for shard in x.addressable_shards if shard.device in where]
            shards.sort(key=lambda shard: where[shard.device])
            if len(shards) == 1:
                return shards[0].data
            assert isinstance(x.sharding, NamedSharding)
            spec = PartitionSpec(None, *x.sharding.spec[1:])
            return jax.make_array_from_single_device_arrays(
                (self.replicas_per_row, *x.shape[1:]),
                NamedSharding(mesh, spec),
                [shard.data for shard in shards],
            )

        return self._take(jax.tree.map(part, tree), own)

    def averaged(self, states: TrainState) -> Population:
        """Return the players of all replicas to evaluate and save, see `Learner.averaged`."""
        averaged = self.learner.averaged
        return averaged(states) if self._is_one else jax.vmap(averaged)(states)

    def on_host(self, tree: PyTree) -> list[Any]:
        """Copy metrics or a part of states to the host, and return each replica's."""
        # Copied, since on a CPU this may be the device's own memory, which training reuses.
        found = jax.tree.map(np.array, jax.device_get(tree))
        if self._is_one:
            return [found]
        leaves, structure = jax.tree.flatten(found)
        return [structure.unflatten(own) for own in zip(*leaves, strict=True)]

    def _start(
        self, key: jax.Array, hyperparams: OwnHyperparams, env_params: PyTree
    ) -> tuple[TrainState, Metrics]:
        group_learners = tuple(
            dataclasses.replace(group_learner, hyperparams=own)
            for group_learner, own in zip(self.learner.group_learners, hyperparams, strict=True)
        )
        learner = dataclasses.replace(
            self.learner, group_learners=group_learners, env_params=env_params
        )
        state = learner.init(key)
        lives, league = state.per_env.running.lives, state.population.league
        return state, metrics_lib.empty(learner.players, lives, league)

    def _train(
        self, states: TrainState, counts: jax.Array, metrics: Metrics, axis_name: str | None
    ) -> tuple[TrainState, Metrics]:
        """Train the runs of a row, on one of its devices."""

        def train(
            state: TrainState, count: jax.Array, metrics: Metrics
        ) -> tuple[TrainState, Metrics]:
            return self.learner.train_steps(state, count, metrics, axis_name)

        if self._is_one:
            return train(states, counts, metrics)
        if self.layout == "side_by_side":
            return jax.vmap(train)(states, counts, metrics)
        return jax.lax.map(lambda one: train(*one), (states, counts, metrics))

    @cached_property
    def _lowered_begin(self) -> Any:
        begin = jax.jit(self._start, compiler_options=options_of_once())
        return begin.lower(jax.random.key(0), *self._own)

    @cached_property
    def _begin(self) -> Any:
        return self._lowered_begin.compile()

    @cached_property
    def _lowered_train(self) -> Any:
        states, metrics = (self._specs(kind) for kind in (TrainState, Metrics))
        # The numbers of iterations are an argument, so slices of any size share one compilation.
        where = states, SAME if self._is_one else BY_RUN, metrics
        train = self._devices.jit(self._train, where, (states, metrics), donate=(0, 2))
        replicas = () if self._is_one else (self.num_replicas,)

        def of_replicas(one: PyTree) -> PyTree:
            return jax.tree.map(
                lambda x, where: jax.ShapeDtypeStruct(
                    (*replicas, *x.shape), x.dtype, sharding=where
                ),
                one,
                self._where(one),
            )

        state, metrics = map(of_replicas, self._lowered_begin.out_info)
        return train.lower(state, jax.ShapeDtypeStruct(replicas, np.int32), metrics)

    @cached_property
    def compiled_train(self) -> Any:
        """The compiled program: of states, numbers of iterations and metrics."""
        return self._lowered_train.compile()

    def _where(self, one: PyTree) -> PyTree:
        """Return where the states or metrics of all replicas lie, by the shapes of a single run."""
        return self._devices.shardings(self._specs(type(one)), one)

    def _specs(self, kind: type) -> Any:
        return _ONE[kind] if self._is_one else of_runs(_ONE[kind])

    def _place(self, value: PyTree) -> Any:
        """Spread the only run's data over its devices."""
        if not isinstance(value, TrainState):
            return value
        return self._devices.place(jax.tree.map(jnp.asarray, value))

    @cached_property
    def _fill(self) -> dict[type, Any]:
        """Functions that spread states and metrics."""

        def repeat(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.repeat(x[None], self.num_replicas, axis=0), tree)

        return {
            type(one): jax.jit(repeat, out_shardings=self._where(one))
            for one in self._lowered_begin.out_info
        }

    @cached_property
    def _write(self) -> dict[type, Any]:
        """Functions that write into states and metrics."""

        def write(tree: PyTree, replica: jax.Array, value: PyTree, axis_name: str | None) -> PyTree:
            del axis_name
            row = 0 if self.num_devices == 1 else jax.lax.axis_index(RUNS)
            own = replica - row * self.replicas_per_row
            # Past the last replica on all rows but one, where the scatter drops it.
            is_here = (own >= 0) & (own < self.replicas_per_row)
            own = jnp.where(is_here, own, self.replicas_per_row)
            return jax.tree.map(lambda x, y: x.at[own].set(y, mode="drop"), tree, value)

        return {
            kind: self._devices.jit(write, (of_runs(one), SAME, one), of_runs(one), donate=(0,))
            for kind, one in _ONE.items()
        }

    @property
    def _own(self) -> tuple[OwnHyperparams, PyTree]:
        return hyperparams_of(self.learner), self.learner.env_params


def _most_rows(learner: Learner) -> int:
    """Count the rows that there are devices for."""
    if learner.num_devices > jax.local_device_count():
        return 1  # a single run on devices of several processes
    return jax.local_device_count() // learner.num_devices


def _check(learner: Learner, num_runs: int, num_rows: int | None, layout: Layout | None) -> None:
    if num_runs < 1:
        raise ValueError(f"num_runs must be at least 1, got {num_runs}")
    if learner.env.steps_on_host and num_runs > 1:
        raise ValueError(
            f"environment {learner.env.name!r} is stepped in Python, which serves one run at a "
            "time; train one run after the other"
        )
    most = min(_most_rows(learner), num_runs)
    if num_rows is not None and not 1 <= num_rows <= most:
        raise ValueError(
            f"num_rows={num_rows} must be from 1 to {most}: there are {num_runs} runs, and "
            f"{jax.local_device_count()} devices, of which each row takes {learner.num_devices}"
        )
    if layout is not None and layout not in get_args(Layout):
        raise ValueError(f"unknown layout {layout!r}; valid: {', '.join(get_args(Layout))}")


def _check_hyperparams(given: OwnHyperparams, own: OwnHyperparams) -> None:
    """Reject hyper-parameters that the compiled program cannot have."""
    _check_alike("hyperparams", given, own)
    for mine, learners in zip(given, own, strict=True):
        for name in ("num_epochs", "num_minibatches"):
            found, wanted = (np.asarray(getattr(x, name)) for x in (mine, learners))
            if not np.array_equal(found, wanted):
                raise ValueError(
                    f"{name} shapes the compiled program: it is {wanted.tolist()} for all runs, "
                    f"got {found.tolist()}"
                )


def _check_alike(name: str, given: PyTree, own: PyTree) -> None:
    """Reject a tree of other structure, shapes or types than the learner's own."""

    def shapes(tree: PyTree) -> list[tuple[Any, ...]]:
        flat, _ = jax.tree_util.tree_flatten_with_path(tree)
        return [
            (jax.tree_util.keystr(path), jnp.shape(leaf), jnp.result_type(leaf))
            for path, leaf in flat
        ]

    if jax.tree.structure(given) == jax.tree.structure(own) and shapes(given) == shapes(own):
        return
    differ = sorted({path for path, *_ in set(shapes(given)) ^ set(shapes(own))})
    raise ValueError(
        f"{name} of a run must have the shapes of the learner's, but differ in "
        f"{', '.join(differ) or 'their kind'}; a schedule has as many points in all runs"
    )
