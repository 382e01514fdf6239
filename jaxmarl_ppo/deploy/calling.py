"""Calls of a policy, from a run or exported: shapes, defaults and batches.

This module and `exported` import JAX and NumPy alone.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

Rows = dict[str, jax.Array]  # [B, ...] each, as in `Signature.inputs`


class AgentShape(NamedTuple):
    """Describes the observations and actions of one agent, in its own widths."""

    slot: int
    feature_shape: tuple[int, ...]
    num_actions: int  # or dimensions of continuous actions


@dataclass(frozen=True)
class Signature:
    """Describes inputs and outputs of a policy, in the widths of its widest agent."""

    policy: str
    env: str
    agent_shapes: Mapping[str, AgentShape]  # by agent
    feature_shape: tuple[int, ...]
    num_actions: int
    continuous: bool
    asks_agent: bool  # whether its outputs depend on the agent that it plays
    prev_action: bool
    prev_reward: bool
    hidden: tuple[jax.ShapeDtypeStruct, ...]  # of one row

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of one row of every input, by name."""
        rows: dict[str, tuple[tuple[int, ...], str]] = {
            "features": (self.feature_shape, "float32"),
            "action_mask": ((self.num_actions,), "bool"),
        }
        if self.asks_agent:
            rows["agent"] = ((), "int32")  # its slot
        if self.prev_action:
            action = ((self.num_actions,), "float32") if self.continuous else ((), "int32")
            rows["prev_action"] = action
        if self.prev_reward:
            rows["prev_reward"] = ((), "float32")
        if self.hidden or self.prev_action or self.prev_reward:
            rows["reset"] = ((), "bool")
        return rows

    def of(self, agent_shape: AgentShape | None) -> "Signature":
        """Narrow the signature to the widths of one agent; None keeps the widest."""
        if agent_shape is None:
            return self
        return replace(
            self, feature_shape=agent_shape.feature_shape, num_actions=agent_shape.num_actions
        )

    def agent_shape(self, agent: Any) -> AgentShape | None:
        """Look up the agent of a call; None where every row names its own.

        Raises:
            ValueError: If it is unknown, or has to be given and is not.
        """
        names = ", ".join(self.agent_shapes)
        if agent is None and self.asks_agent:
            raise ValueError(
                f"policy {self.policy!r} acts differently for each of its agents: pass agent=, "
                f"one of {names}, or an array of their slots"
            )
        if isinstance(agent, str) and agent not in self.agent_shapes:
            raise ValueError(
                f"policy {self.policy!r} does not play agent {agent!r}; it plays {names}"
            )
        slots = [agent_shape.slot for agent_shape in self.agent_shapes.values()]
        # Values of an array on a device are not read: that would wait for it.
        known = agent is None or isinstance(agent, str | jax.Array) or np.isin(agent, slots).all()
        if not known:
            raise ValueError(
                f"policy {self.policy!r} plays {names} in the slots {slots}, got agent={agent!r}"
            )
        if not self.asks_agent:
            return next(iter(self.agent_shapes.values()))
        return self.agent_shapes[agent] if isinstance(agent, str) else None

    def check(self, given: Mapping[str, Any], hidden: tuple[Any, ...]) -> None:
        """Compare shapes with the policy's inputs.

        Raises:
            ValueError: For a wrong shape, or an input that is missing or without effect.
        """
        inputs = {**self.inputs, "reset": ((), "bool"), "acting": ((), "bool")}
        features, rank = given["features"].shape, len(self.feature_shape)
        batch_shape = features[: max(len(features) - rank, 0)]
        if 0 in batch_shape:
            raise ValueError(f"observation has shape {features}, but there must be one row or more")
        for name, x in given.items():
            if name not in inputs and name != "agent":
                raise ValueError(
                    f"{name} has no effect on policy {self.policy!r}, which was trained without "
                    "it; drop it"
                )
            row = inputs[name][0] if name in inputs else ()
            lead = x.shape[: len(x.shape) - len(row)]
            if x.shape[len(lead) :] != row or not _broadcasts(lead, batch_shape):
                shown = "observation" if name == "features" else name
                raise ValueError(
                    f"{shown} has shape {x.shape}, but here policy {self.policy!r} takes "
                    f"{_show((*batch_shape, *row) if name != 'features' else ('...', *row))}"
                )
        held, wanted = [x.shape for x in hidden], [(*batch_shape, *x.shape) for x in self.hidden]
        if held != wanted:
            raise ValueError(
                f"hidden has the shapes {held}, but policy {self.policy!r} holds {wanted} for "
                f"observations of shape {features}; begin with initial_hidden({batch_shape})"
            )

    def rows(self, given: Mapping[str, jax.Array], agent_shape: AgentShape | None) -> Rows:
        """Make flat rows of full width of all inputs, and fill in missing ones."""
        own = self.of(agent_shape).inputs
        features = given["features"]
        batch_shape = features.shape[: features.ndim - len(self.feature_shape)]

        def default(name: str) -> jax.Array | np.ndarray:
            if name == "agent":
                assert agent_shape is not None  # else every row names its own
                return np.array(agent_shape.slot)
            if name == "action_mask":
                counts = np.zeros(1 + max(one.slot for one in self.agent_shapes.values()), np.int32)
                for one in self.agent_shapes.values():
                    counts[one.slot] = one.num_actions
                slot = given["agent"] if agent_shape is None else agent_shape.slot
                return jnp.arange(own[name][0][0]) < jnp.asarray(counts)[slot][..., None]
            return np.zeros(own[name][0], own[name][1])

        inputs = {}
        for name, (shape, dtype) in self.inputs.items():
            x = jnp.asarray(given[name] if name in given else default(name)).astype(dtype)
            x = jnp.broadcast_to(x, (*batch_shape, *own[name][0]))
            x = x.reshape(math.prod(batch_shape), *own[name][0])
            inputs[name] = pad_rows(x, shape)
        return inputs


class Actor:
    """Acts for batches of agents: a policy of a run, or an exported one."""

    signature: Signature
    params: Any

    def decide(
        self, params: Any, inputs: Rows, hidden: list[jax.Array], key: jax.Array | None
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Compute actions and new memory of rows `[B, ...]` of full width."""
        raise NotImplementedError

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that the policy can play."""
        return tuple(self.signature.agent_shapes)

    def __repr__(self) -> str:
        signature = self.signature
        return (
            f"{type(self).__name__}({signature.policy!r} of {signature.env}, "
            f"plays {', '.join(self.agents)}, "
            f"{'continuous' if signature.continuous else 'discrete'})"
        )

    def initial_hidden(self, batch_shape: int | tuple[int, ...] = ()) -> tuple[jax.Array, ...]:
        """Make the memory of agents that have not decided yet: `[*batch_shape, H]` each, zeros.

        `()` for a policy without memory.
        """
        shape = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        return tuple(jnp.zeros((*shape, *x.shape), x.dtype) for x in self.signature.hidden)

    def act(
        self,
        observation: ArrayLike,
        hidden: tuple[Any, ...] | list[Any],
        key: ArrayLike | None = None,
        *,
        action_mask: ArrayLike | None = None,
        agent: str | ArrayLike | None = None,
        prev_action: ArrayLike | None = None,
        prev_reward: ArrayLike | None = None,
        reset: ArrayLike | None = None,
        acting: ArrayLike | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Decide once for every row of a batch.

        Compiled once per shape; can be called under `jit` and `vmap` as well. Letters: `...` any
        batch shape, none included; `D` and `N` the agent's own width and number of actions.

        Args:
            observation: `[..., D]`, or `[..., rows, cols, channels]`, as the environment returns
                it.
            hidden: from `initial_hidden`, or from the agents' last decisions.
            key: draws the actions; None takes the most likely ones.
            action_mask: `[..., N]` bool, at least one True in every row; None for all.
            agent: name of the agent that plays all rows, or `[...]` int, the slot of each (then all
                rows are as wide as the widest agent). Required where the policy depends on the
                agent: widths or bounds differ, or the agent is an input.
            prev_action: `[...]` int or `[..., N]` float, the agent's previous action, as returned;
                given if and only if the policy was trained with it.
            prev_reward: `[...]`, the agent's reward since that action; given if and only if the
                policy was trained with it.
            reset: `[...]` bool, rows at the first decision of a life: their memory, previous action
                and reward count as zero. With `reset=True` these can be left out.
            acting: `[...]` bool, rows that decide now; the others keep their memory, and their
                actions mean nothing. None for all.

        Returns:
            `(action, hidden)`: `[...]` int32 or `[..., N]` float32 within the agent's bounds, and
            the memory to hold until the same agents' next decision.

        Raises:
            ValueError: For a wrong shape, or an input that is missing or without effect. Given
                NumPy arrays or lists, also for a row that decides on an observation that is not
                finite or without a legal action. In JAX arrays, and under `jit`, such rows are not
                detected: their actions are meaningless.
        """
        given, held, agent_shape = self._given(
            observation, hidden, action_mask, agent, prev_action, prev_reward, reset, acting
        )
        return self._act(self.params, given, held, _check_key(key), agent_shape)

    def _given(
        self,
        observation: ArrayLike,
        hidden: tuple[Any, ...] | list[Any],
        action_mask: ArrayLike | None,
        agent: str | ArrayLike | None,
        prev_action: ArrayLike | None,
        prev_reward: ArrayLike | None,
        reset: ArrayLike | None,
        acting: ArrayLike | None = None,
    ) -> tuple[dict[str, Any], tuple[Any, ...], AgentShape | None]:
        """Make arrays of the arguments and check them."""
        named = {
            "features": observation,
            "action_mask": action_mask,
            "agent": None if isinstance(agent, str) else agent,
            "prev_action": prev_action,
            "prev_reward": prev_reward,
            "reset": reset,
            "acting": acting,
        }
        given = {name: _array(x) for name, x in named.items() if x is not None}
        held = tuple(_array(x) for x in hidden)
        signature, first = self.signature, isinstance(reset, bool | np.bool_) and reset
        agent_shape = signature.agent_shape(agent)
        for name in ("prev_action", "prev_reward"):
            if getattr(signature, name) and name not in given and not first:
                raise ValueError(
                    f"policy {signature.policy!r} was trained with {name}: pass {name}=, or "
                    "reset=True where all rows decide for the first time"
                )
        signature.of(agent_shape).check(given, held)
        self._check_values(given)
        return given, held, agent_shape

    def _check_values(self, given: Mapping[str, Any]) -> None:
        """Reject rows without a possible action, if they are on the host."""
        # JAX arrays are not read: they may be traced, or not yet computed.
        acting = given.get("acting", np.True_)
        if isinstance(acting, jax.Array):
            return
        features, mask = given["features"], given.get("action_mask")
        if isinstance(features, np.ndarray):
            batch_shape = features.shape[: features.ndim - len(self.signature.feature_shape)]
            sound = np.isfinite(features).reshape(*batch_shape, -1).all(-1)
            _refuse_rows(acting & ~sound, "observation holds a number that is not finite")
        if isinstance(mask, np.ndarray) and not self.signature.continuous:
            _refuse_rows(acting & ~mask.astype(bool).any(-1), "action_mask leaves no legal action")

    @functools.cached_property
    def _act(self) -> Any:
        return jax.jit(self._act_batch, static_argnames=("agent_shape",))

    def _act_batch(
        self,
        params: Any,
        given: dict[str, jax.Array],
        hidden: tuple[jax.Array, ...],
        key: jax.Array | None,
        agent_shape: AgentShape | None,
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        signature, acting = self.signature, given.get("acting")
        inputs, flat, batch_shape = self._flatten(given, hidden, agent_shape)
        action, moved = self.decide(params, inputs, flat, key)
        if signature.continuous:
            action = action[:, : signature.of(agent_shape).num_actions]
        moved = [x.reshape(h.shape) for x, h in zip(moved, hidden, strict=True)]
        if acting is not None:
            acting = jnp.broadcast_to(acting.astype(bool), batch_shape)
            where = [acting.reshape(batch_shape + (1,) * (h.ndim - acting.ndim)) for h in hidden]
            moved = [jnp.where(*x) for x in zip(where, moved, hidden, strict=True)]
        return action.reshape(*batch_shape, *action.shape[1:]), tuple(moved)

    def _flatten(
        self,
        given: dict[str, jax.Array],
        hidden: tuple[jax.Array, ...],
        agent_shape: AgentShape | None,
    ) -> tuple[Rows, list[jax.Array], tuple[int, ...]]:
        """Flatten inputs and memory into rows, and return the batch shape that they had."""
        features = given["features"]
        batch_shape = features.shape[: features.ndim - len(self.signature.feature_shape)]
        size = math.prod(batch_shape)
        flat = [
            h.reshape(size, *x.shape).astype(x.dtype)
            for h, x in zip(hidden, self.signature.hidden, strict=True)
        ]
        return self.signature.rows(given, agent_shape), flat, batch_shape


def pad_rows(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Pad `x [B, ...]` with zeros at the ends of its axes up to `[B, *shape]`."""
    return jnp.pad(x, [(0, 0), *((0, b - a) for a, b in zip(x.shape[1:], shape, strict=True))])


def _array(x: Any) -> Any:
    return x if isinstance(x, jax.Array) else np.asarray(x)


def _refuse_rows(wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        place = ", ".join(str(index) for index in np.argwhere(wrong)[0])
        raise ValueError(what + (f" in row {place}" if place else ""))


def _check_key(key: Any) -> Any:
    if key is None:
        return None
    key = _array(key)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if key.shape != () if typed else key.dtype != np.uint32 or key.ndim != 1:
        raise ValueError(
            f"key must be one key such as jax.random.key(0), got {key.dtype} of shape {key.shape}"
        )
    return key


def _broadcasts(shape: tuple[int, ...], batch_shape: tuple[int, ...]) -> bool:
    pairs = zip(shape[::-1], batch_shape[::-1], strict=False)
    return len(shape) <= len(batch_shape) and all(a in (1, b) for a, b in pairs)


def _show(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
