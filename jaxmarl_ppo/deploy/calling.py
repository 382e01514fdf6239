"""Calls of a policy, from a run or exported: shapes, defaults and batches.

This module, `forms` and `exported` import JAX and NumPy alone.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jaxmarl_ppo.deploy.forms import Factors, Form, form_of_factors, widen_mask, widest

Rows = dict[str, jax.Array]  # [B, ...] each, as in `Signature.inputs`


class AgentShape(NamedTuple):
    """Describes the observations and actions of one agent, in its own widths."""

    slot: int
    feature_shape: tuple[int, ...]
    form: Form  # of its actions

    @property
    def num_actions(self) -> int:
        """Width of its masks: the options of all choices, and the numbers."""
        return self.form.factors.width


@dataclass(frozen=True)
class Signature:
    """Describes inputs and outputs of a policy, in the widths of its widest agent."""

    policy: str
    env: str
    agent_shapes: Mapping[str, AgentShape]  # by agent
    feature_shape: tuple[int, ...]
    asks_agent: bool  # whether its outputs depend on the agent that it plays
    prev_action: bool
    prev_reward: bool
    hidden: tuple[jax.ShapeDtypeStruct, ...]  # of one row

    @functools.cached_property
    def factors(self) -> Factors:
        """Factors of actions in rows: those of the agent that has most."""
        return widest(agent_shape.form.factors for agent_shape in self.agent_shapes.values())

    @property
    def num_actions(self) -> int:
        """Width of masks in rows: the options of all choices, and the numbers."""
        return self.factors.width

    @functools.cached_property
    def row_form(self) -> Form:
        """The plainest form of actions in rows."""
        return form_of_factors(self.factors)

    @functools.cached_property
    def form(self) -> Form:
        """Form of actions: that of all agents where they have the same, else that of rows."""
        forms = {agent_shape.form for agent_shape in self.agent_shapes.values()}
        return forms.pop() if len(forms) == 1 else self.row_form

    @property
    def action(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of one row of actions: `action`, or `choices` and `numbers`."""
        leaves = self.row_form.leaves
        names = ("choices", "numbers") if len(leaves) > 1 else ("action",)
        return {
            name: (leaf.row_shape, "float32" if leaf.kind == "numbers" else "int32")
            for name, leaf in zip(names, leaves, strict=True)
        }

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
            rows |= {f"prev_{name}": row for name, row in self.action.items()}
        if self.prev_reward:
            rows["prev_reward"] = ((), "float32")
        if self.hidden or self.prev_action or self.prev_reward:
            rows["reset"] = ((), "bool")
        return rows

    def join(self, choices: Any, numbers: Any) -> Any:
        """Make actions in rows of choices `[B, C]` and numbers `[B, N]`."""
        parts = self.row_form.flatten(self.row_form.build(choices, numbers))
        return dict(zip(self.action, parts, strict=True)) if len(parts) > 1 else parts[0]

    def split(self, action: Any) -> tuple[Any, Any]:
        """Split actions in rows into choices `[B, C]` and numbers `[B, N]`, undoing `join`."""
        leaves = [action[name] for name in self.action] if isinstance(action, dict) else [action]
        return self.row_form.split(leaves, leaves[0].shape[:1])

    def split_previous(self, inputs: Rows) -> tuple[Any, Any]:
        """Split the previous actions among inputs into choices and numbers."""
        leaves = [inputs[f"prev_{name}"] for name in self.action]
        return self.row_form.split(leaves, leaves[0].shape[:1])

    def of(self, agent_shape: AgentShape | None) -> "Signature":
        """Narrow the signature to the widths of one agent; None keeps the widest."""
        if agent_shape is None:
            return self
        (agent,) = (name for name, own in self.agent_shapes.items() if own is agent_shape)
        return replace(
            self, feature_shape=agent_shape.feature_shape, agent_shapes={agent: agent_shape}
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
        if self.prev_action:
            inputs["prev_action"] = ((), "")  # compared by `_check_previous`
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
            if name == "prev_action":
                self._check_previous(x, batch_shape)
                continue
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

    def _check_previous(self, leaves: Sequence[Any], batch_shape: tuple[int, ...]) -> None:
        """Compare the shapes of a previous action's parts with those of its form.

        Raises:
            ValueError: For a wrong shape.
        """
        what = "prev_action has" if len(leaves) == 1 else "prev_action has a part of"
        for leaf, x in zip(self.form.leaves, leaves, strict=True):
            lead = x.shape[: len(x.shape) - len(leaf.row_shape)]
            if x.shape[len(lead) :] != leaf.row_shape or not _broadcasts(lead, batch_shape):
                raise ValueError(
                    f"{what} shape {x.shape}, but here policy {self.policy!r} takes "
                    f"{_show((*batch_shape, *leaf.row_shape))} for actions {self.form}"
                )

    def mask(self, action_mask: Any) -> Any:
        """Make one array `[..., W]` of a mask, of which there may be an array for each choice.

        Numbers may be left out where there are choices.

        Raises:
            ValueError: If it is neither.
        """
        counts, num_numbers = self.factors
        if isinstance(action_mask, tuple | list):
            parts = [_array(x) for x in action_mask] if _are_arrays(action_mask, counts) else None
            if parts is not None:
                xp = jnp if any(isinstance(x, jax.Array) for x in parts) else np
                lead = np.broadcast_shapes(*(x.shape[:-1] for x in parts))
                parts = [xp.broadcast_to(x, (*lead, x.shape[-1])) for x in parts]
                action_mask = xp.concatenate(parts, axis=-1)
        try:
            mask = _array(action_mask)
        except ValueError:  # of lists that are not all equally long
            options = ", ".join(map(str, counts)) or "no"
            raise ValueError(
                f"action_mask must be one array, ({self.num_actions},) wide, or one for each "
                f"choice of policy {self.policy!r}, of {options} options; got {action_mask!r}"
            ) from None
        if counts and num_numbers and mask.shape[-1:] == (sum(counts),):
            xp = jnp if isinstance(mask, jax.Array) else np
            mask = xp.concatenate([mask, xp.ones((*mask.shape[:-1], num_numbers), bool)], axis=-1)
        return mask

    def rows(self, given: Mapping[str, jax.Array], agent_shape: AgentShape | None) -> Rows:
        """Make flat rows of full width of all inputs, and fill in missing ones."""
        narrow = self.of(agent_shape)
        features = given["features"]
        batch_shape = features.shape[: features.ndim - len(self.feature_shape)]
        num_rows = math.prod(batch_shape)
        own = narrow.inputs
        found = {
            "agent": agent_shape.slot if agent_shape is not None else None,
            "action_mask": self._all_legal(given, agent_shape),
            **{name: x for name, x in given.items() if name != "prev_action"},
            **self._previous(given, narrow, batch_shape),
        }
        if "action_mask" in given:
            found["action_mask"] = widen_mask(
                jnp.asarray(given["action_mask"]).astype(bool), narrow.factors, self.factors
            )
        inputs = {}
        for name, (shape, dtype) in self.inputs.items():
            row = own[name][0] if name == "features" else shape
            x = jnp.asarray(found.get(name, np.zeros(row))).astype(dtype)
            x = jnp.broadcast_to(x, (*batch_shape, *row))
            inputs[name] = pad_rows(x.reshape(num_rows, *row), shape)
        return inputs

    def _all_legal(self, given: Mapping[str, Any], agent_shape: AgentShape | None) -> jax.Array:
        """Make masks of all that the agents have, `[..., W]`."""
        num_slots = 1 + max(one.slot for one in self.agent_shapes.values())
        table = np.zeros((num_slots, self.num_actions), bool)
        for one in self.agent_shapes.values():
            own = np.ones(one.num_actions, bool)
            table[one.slot] = widen_mask(own, one.form.factors, self.factors)
        return jnp.asarray(table)[given["agent"] if agent_shape is None else agent_shape.slot]

    def _previous(
        self, given: Mapping[str, Any], narrow: "Signature", batch_shape: tuple[int, ...]
    ) -> Rows:
        """Make the previous action's inputs in full width, with the batch's axes."""
        if "prev_action" not in given:
            return {}
        choices, numbers = narrow.form.split(given["prev_action"], batch_shape)
        counts, num_numbers = self.factors
        wide = [(choices, len(counts)), (numbers, num_numbers)]
        lead = [(0, 0)] * len(batch_shape)
        choices, numbers = (jnp.pad(x, [*lead, (0, n - x.shape[-1])]) for x, n in wide)
        parts = self.row_form.flatten(self.row_form.build(choices, numbers))
        return {f"prev_{name}": x for name, x in zip(self.action, parts, strict=True)}


class Actor:
    """Acts for batches of agents: a policy of a run, or an exported one."""

    signature: Signature
    params: Any

    def decide(
        self, params: Any, inputs: Rows, hidden: list[jax.Array], key: jax.Array | None
    ) -> tuple[Any, list[jax.Array]]:
        """Compute actions and new memory of rows `[B, ...]` of full width.

        Actions are those of `Signature.join`.
        """
        raise NotImplementedError

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that the policy can play."""
        return tuple(self.signature.agent_shapes)

    def __repr__(self) -> str:
        signature = self.signature
        return (
            f"{type(self).__name__}({signature.policy!r} of {signature.env}, "
            f"plays {', '.join(self.agents)}, {_kind(signature.factors)})"
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
        action_mask: Any = None,
        agent: str | ArrayLike | None = None,
        prev_action: Any = None,
        prev_reward: ArrayLike | None = None,
        reset: ArrayLike | None = None,
        acting: ArrayLike | None = None,
    ) -> tuple[Any, tuple[jax.Array, ...]]:
        """Decide once for every row of a batch.

        Compiled once per shape; can be called under `jit` and `vmap` as well. Actions have the form
        of the agent's action space: `[...]` int32 for `Discrete`, `[..., C]` int32 for
        `MultiDiscrete`, `[..., *shape]` float32 within its bounds for `Box`, a tuple of these for
        `Tuple`. Letters: `...` any batch shape, none included; `D` and `W` the agent's own width of
        observations and masks.

        Args:
            observation: `[..., D]`, or `[..., rows, cols, channels]`, as the environment returns
                it.
            hidden: from `initial_hidden`, or from the agents' last decisions.
            key: draws the actions; None takes the most likely ones.
            action_mask: `[..., W]` bool, the legal options of every choice, one choice after the
                other, then the numbers, which may be left out; or an array `[..., options]` for
                each choice. At least one option of every choice is True. None for all.
            agent: name of the agent that plays all rows, or `[...]` int, the slot of each. Then all
                rows are as wide as the widest agent, and where agents' forms differ, actions are
                integers, vectors, or a tuple of choices `[..., C]` and numbers `[..., N]`. Required
                where the policy depends on the agent: widths, actions or bounds differ, or the
                agent is an input.
            prev_action: the agent's previous action, as returned; given if and only if the policy
                was trained with it.
            prev_reward: `[...]`, the agent's reward since that action; given if and only if the
                policy was trained with it.
            reset: `[...]` bool, rows at the first decision of a life: their memory, previous action
                and reward count as zero. With `reset=True` these can be left out.
            acting: `[...]` bool, rows that decide now; the others keep their memory, and their
                actions mean nothing. None for all.

        Returns:
            `(action, hidden)`: the actions, and the memory to hold until the same agents' next
            decision.

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
        action_mask: Any,
        agent: str | ArrayLike | None,
        prev_action: Any,
        prev_reward: ArrayLike | None,
        reset: ArrayLike | None,
        acting: ArrayLike | None = None,
    ) -> tuple[dict[str, Any], tuple[Any, ...], AgentShape | None]:
        """Make arrays of the arguments and check them."""
        named = {
            "features": observation,
            "agent": None if isinstance(agent, str) else agent,
            "prev_reward": prev_reward,
            "reset": reset,
            "acting": acting,
        }
        given = {name: _array(x) for name, x in named.items() if x is not None}
        held = tuple(_array(x) for x in hidden)
        signature, first = self.signature, isinstance(reset, bool | np.bool_) and reset
        agent_shape = signature.agent_shape(agent)
        narrow = signature.of(agent_shape)
        if action_mask is not None:
            given["action_mask"] = narrow.mask(action_mask)
        if prev_action is not None:
            used = signature.prev_action  # else `check` rejects it
            given["prev_action"] = _flatten_action(narrow, prev_action) if used else prev_action
        for name in ("prev_action", "prev_reward"):
            if getattr(signature, name) and name not in given and not first:
                raise ValueError(
                    f"policy {signature.policy!r} was trained with {name}: pass {name}=, or "
                    "reset=True where all rows decide for the first time"
                )
        narrow.check(given, held)
        self._check_values(given, narrow.factors.counts)
        return given, held, agent_shape

    def _check_values(self, given: Mapping[str, Any], counts: tuple[int, ...]) -> None:
        """Reject rows without a possible action, if they are on the host."""
        # JAX arrays are not read: they may be traced, or not yet computed.
        acting = given.get("acting", np.True_)
        if isinstance(acting, jax.Array):
            return
        features, mask = given["features"], given.get("action_mask")
        if isinstance(features, np.ndarray):
            batch_shape = features.shape[: features.ndim - len(self.signature.feature_shape)]
            sound = np.isfinite(features).reshape(*batch_shape, -1).all(-1)
            _reject_rows(acting & ~sound, "observation holds a number that is not finite")
        if isinstance(mask, np.ndarray):
            ends = np.cumsum(counts, dtype=int)
            for choice, (count, end) in enumerate(zip(counts, ends, strict=True)):
                legal = mask[..., end - count : end].astype(bool).any(-1)
                which = f" in choice {choice + 1}" if len(counts) > 1 else ""
                _reject_rows(acting & ~legal, f"action_mask leaves no legal action{which}")

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
    ) -> tuple[Any, tuple[jax.Array, ...]]:
        signature, acting = self.signature, given.get("acting")
        inputs, flat, batch_shape = self._flatten(given, hidden, agent_shape)
        action, moved = self.decide(params, inputs, flat, key)
        parts = (x.reshape(*batch_shape, x.shape[-1]) for x in signature.split(action))
        moved = [x.reshape(h.shape) for x, h in zip(moved, hidden, strict=True)]
        if acting is not None:
            acting = jnp.broadcast_to(acting.astype(bool), batch_shape)
            where = [acting.reshape(batch_shape + (1,) * (h.ndim - acting.ndim)) for h in hidden]
            moved = [jnp.where(*x) for x in zip(where, moved, hidden, strict=True)]
        return signature.of(agent_shape).form.build(*parts), tuple(moved)

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


def _flatten_action(signature: Signature, action: Any) -> list[Any]:
    """List the arrays of a previous action in the signature's form."""
    try:
        return signature.form.flatten(action)
    except ValueError as error:
        raise ValueError(f"prev_action of policy {signature.policy!r} {error}") from None


def _are_arrays(masks: Sequence[Any], counts: tuple[int, ...]) -> bool:
    """Return whether there is a mask for each choice."""
    if len(masks) != len(counts):
        return False
    shapes = [x.shape if isinstance(x, jax.Array) else np.asarray(x).shape for x in masks]
    return all(shape[-1:] == (n,) for shape, n in zip(shapes, counts, strict=True))


def _kind(factors: Factors) -> str:
    kinds = ["discrete"] * bool(factors.counts) + ["continuous"] * bool(factors.num_numbers)
    return " and ".join(kinds)


def _array(x: Any) -> Any:
    return x if isinstance(x, jax.Array) else np.asarray(x)


def _reject_rows(wrong: np.ndarray, what: str) -> None:
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
