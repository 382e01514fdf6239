"""Many runs of one compiled program, trained side by side.

Members differ in their seeds and in numbers that are leaves of the training state: hyper-parameters
and the environment's parameters. Each is a replica on one device, and devices exchange nothing.
"""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from jaxmarl_ppo.devices.compilation import init_options
from jaxmarl_ppo.devices.sharding import AXIS, BY_ENV, SAME, Devices
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.machine.tuning import Layout, tuning
from jaxmarl_ppo.types import Hyperparams, PyTree, TrainState

# Hyper-parameters of the members, by the group learners of a run.
OwnHyperparams = tuple[Hyperparams, ...]
# States of all members, `[L, ...]` leaves.
MemberStates = TrainState
# Placement of members' data: leading axes are spread like those of environments.
BY_MEMBER = BY_ENV


def hyperparams_of(learner: Learner) -> OwnHyperparams:
    """Return the numeric hyper-parameters that a learner's runs begin with."""
    return tuple(group_learner.hyperparams for group_learner in learner.group_learners)


class Members:
    """Replicas on devices, each with one run.

    `L` replicas are `num_members`, rounded up so that all devices have as many; spare ones never
    train. A member trained `in_turn` equals, bit-for-bit, a single run from its key on one device.

    Args:
        learner: of a single run on one device.
        num_members: number of runs side by side.
        num_devices: how many devices they are spread over; None for all, but at most one per
            member.
        layout: whether a device trains its members one after the other or all together; None for
            the faster one on this backend.

    Raises:
        ValueError: For a number out of range, an unknown layout, a learner for several devices, or
            an environment that is stepped on the host.
    """

    def __init__(
        self,
        learner: Learner,
        num_members: int,
        *,
        num_devices: int | None = None,
        layout: Layout | None = None,
    ) -> None:
        _check(learner, num_members, num_devices, layout)
        self.learner, self.num_members = learner, num_members
        self.num_devices = num_devices or min(jax.local_device_count(), num_members)
        self.layout = layout or tuning().layout
        self._per_device = -(-num_members // self.num_devices)
        self.num_replicas = self.num_devices * self._per_device
        self._devices = Devices(self.num_devices)
        self._take = jax.jit(lambda tree, replica: jax.tree.map(lambda x: x[replica], tree))

    def compile(self) -> None:
        """Compile training and initialisation, which the first call would do otherwise."""
        with ThreadPoolExecutor(1) as beside:
            # The compiler releases Python, which traces the other function meanwhile.
            begin = beside.submit(lambda: self._begin)
            _ = self._compiled_train
            begin.result()

    def init(
        self,
        keys: Sequence[jax.Array] | jax.Array,
        hyperparams: Sequence[OwnHyperparams] | None = None,
        env_params: Sequence[PyTree] | None = None,
    ) -> MemberStates:
        """Begin a run as every replica.

        Args:
            keys: of the members, `[num_members]`.
            hyperparams: of each member; None for the learner's. Made by `hyperparams_of` from a
                learner of the member's configuration.
            env_params: of each member; None for the learner's.

        Raises:
            ValueError: If their number differs from that of members, or they need another compiled
                program.
        """
        for name, given in (
            ("keys", keys),
            ("hyperparams", hyperparams),
            ("env_params", env_params),
        ):
            if given is not None and len(given) != self.num_members:
                raise ValueError(
                    f"{name} must be one for each of the {self.num_members} members, got "
                    f"{len(given)}"
                )
        states = None
        for replica in range(self.num_members):
            one = self.begin(
                keys[replica],
                None if hyperparams is None else hyperparams[replica],
                None if env_params is None else env_params[replica],
            )
            # Spare replicas also hold the first member, for its shape.
            states = self.fill(one) if states is None else self.write(states, replica, one)
        assert states is not None
        return states

    def begin(
        self,
        key: jax.Array,
        hyperparams: OwnHyperparams | None = None,
        env_params: PyTree | None = None,
    ) -> TrainState:
        """Make the state that a single run begins with.

        Raises:
            ValueError: If hyper-parameters or parameters need another compiled program.
        """
        own = hyperparams_of(self.learner)
        if hyperparams is not None:
            _check_hyperparams(hyperparams, own)
        params = self.learner.env_params
        if env_params is not None:
            _check_alike("env_params", env_params, params)
        return self._begin(
            key,
            own if hyperparams is None else hyperparams,
            params if env_params is None else env_params,
        )

    def put(
        self,
        states: MemberStates,
        replica: int,
        key: jax.Array,
        hyperparams: OwnHyperparams | None = None,
        env_params: PyTree | None = None,
    ) -> MemberStates:
        """Begin a run in the place of a replica; donates the memory of `states`.

        Reset its metrics with `write(metrics, replica, no_metrics)`.
        """
        return self.write(states, replica, self.begin(key, hyperparams, env_params))

    @cached_property
    def no_metrics(self) -> Metrics:
        """The metrics of one member before its first iteration, on the host."""
        state = self._begun
        none = metrics_lib.empty(
            self.learner.players,
            state.per_env.running.lives,
            state.population.league,
        )
        return jax.tree.map(lambda x: np.array(x), none)

    def fill(self, value: PyTree) -> PyTree:
        """Make a tree of `[L, ...]` leaves, spread over devices, one value for all replicas."""
        return self._fill(value)

    def train(
        self, states: MemberStates, counts: np.ndarray, metrics: Metrics
    ) -> tuple[MemberStates, Metrics]:
        """Advance every member by its own number of iterations; a fault ends a member's.

        Args:
            states: `[L, ...]` leaves, whose memory is donated.
            counts: `[num_members]` or `[L]` int; a member with 0 stays as it is.
            metrics: `[L, ...]` leaves of earlier iterations, to which these are added; their memory
                is donated.
        """
        padded = np.zeros(self.num_replicas, np.int32)
        padded[: len(counts)] = counts
        return self._compiled_train(states, padded, metrics)

    def write(self, tree: PyTree, replica: int, value: PyTree) -> PyTree:
        """Put a single member's data in a replica's place in a tree, whose memory is donated."""
        return self._write(tree, np.int32(replica), value)

    def member(self, tree: PyTree, replica: int) -> Any:
        """Copy one member's part of states or metrics, onto its own device."""
        device, own = divmod(replica, self._per_device)

        def part(x: jax.Array) -> jax.Array:
            shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
            return shards[device].data

        return self._take(jax.tree.map(part, tree), own)

    def place(self, tree: PyTree) -> PyTree:
        """Spread a tree of `[L, ...]` leaves that lies on the host over the devices."""
        sharding = NamedSharding(self._devices.mesh, BY_MEMBER)
        return jax.device_put(tree, sharding, may_alias=False)

    def _start(self, key: jax.Array, hyperparams: OwnHyperparams, env_params: PyTree) -> TrainState:
        group_learners = tuple(
            dataclasses.replace(group_learner, hyperparams=own)
            for group_learner, own in zip(self.learner.group_learners, hyperparams, strict=True)
        )
        learner = dataclasses.replace(
            self.learner, group_learners=group_learners, env_params=env_params
        )
        return learner.init(key)

    def _train(
        self, states: MemberStates, counts: jax.Array, metrics: Metrics, axis_name: str | None
    ) -> tuple[MemberStates, Metrics]:
        """Train the members of one device."""
        del axis_name  # nothing is exchanged
        train = self.learner.train_steps
        if self.layout == "side_by_side":
            return jax.vmap(train)(states, counts, metrics)
        return jax.lax.map(lambda one: train(*one), (states, counts, metrics))

    @cached_property
    def _begun(self) -> Any:
        """Shapes of the state that a run begins with."""
        return jax.eval_shape(self._start, jax.random.key(0), *self._own)

    @cached_property
    def _begin(self) -> Any:
        compiled = jax.jit(self._start, compiler_options=init_options())
        return compiled.lower(jax.random.key(0), *self._own).compile()

    @cached_property
    def _compiled_train(self) -> Any:
        train = self._devices.jit(
            self._train, (BY_MEMBER,) * 3, (BY_MEMBER, BY_MEMBER), donate=(0, 2)
        )
        replicas = jax.tree.map(self._of_replicas, (self._begun, self.no_metrics))
        counts = jax.ShapeDtypeStruct((self.num_replicas,), np.int32)
        return train.lower(replicas[0], counts, replicas[1]).compile()

    @cached_property
    def _fill(self) -> Any:
        def repeat(tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.repeat(x[None], self.num_replicas, axis=0), tree)

        return jax.jit(repeat, out_shardings=NamedSharding(self._devices.mesh, BY_MEMBER))

    @cached_property
    def _write(self) -> Any:
        def write(tree: PyTree, replica: jax.Array, value: PyTree, axis_name: str | None) -> PyTree:
            first = 0 if axis_name is None else jax.lax.axis_index(AXIS) * self._per_device
            own = replica - first
            # Past the last replica on all devices but one, where the scatter drops it.
            own = jnp.where((own >= 0) & (own < self._per_device), own, self._per_device)
            return jax.tree.map(lambda x, y: x.at[own].set(y, mode="drop"), tree, value)

        return self._devices.jit(write, (BY_MEMBER, SAME, SAME), BY_MEMBER, donate=(0,))

    @property
    def _own(self) -> tuple[OwnHyperparams, PyTree]:
        return hyperparams_of(self.learner), self.learner.env_params

    def _of_replicas(self, x: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(self._devices.mesh, BY_MEMBER)
        return jax.ShapeDtypeStruct((self.num_replicas, *x.shape), x.dtype, sharding=sharding)


def _check(
    learner: Learner, num_members: int, num_devices: int | None, layout: Layout | None
) -> None:
    available = jax.local_device_count()
    if learner.num_devices != 1:
        raise ValueError(
            "a member lives on one device, but its learner is made for "
            f"{learner.num_devices}; make it with num_devices=1"
        )
    if learner.env.steps_on_host:
        raise ValueError(
            f"environment {learner.env.name!r} is stepped in Python, which serves one run at a "
            "time; train one run after the other"
        )
    if num_members < 1:
        raise ValueError(f"num_members must be at least 1, got {num_members}")
    if num_devices is not None and not 1 <= num_devices <= min(available, num_members):
        raise ValueError(
            f"num_devices={num_devices} must be from 1 to {min(available, num_members)}: there are "
            f"{available} devices and {num_members} members"
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
                    f"{name} shapes the compiled program: it is {wanted.tolist()} for all members, "
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
        f"{name} of a member must have the shapes of the learner's, but differ in "
        f"{', '.join(differ) or 'their kind'}; a schedule has as many points in all members"
    )
