"""Key of a compiled program, shared by runs whose learners differ only in numbers.

A learner holds static options of its program, and numbers that are arguments of the program as part
of the training state: hyper-parameters and environment parameters. The key of a program consists of
the former, and of the shapes of the latter.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Hashable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.ppo.group_learner import PolicyGroupLearner

# By class, the fields whose numbers are part of the state.
_ARGUMENTS: dict[type, set[str]] = {
    Learner: {"env_params"},
    PolicyGroupLearner: {"hyperparams"},
}
# The parts of the latter that a program still depends on.
_SHAPING = ("num_epochs", "num_minibatches")


def program_key(learner: Learner) -> Hashable:
    """Make the key of the program that trains a run.

    Two runs with one key share one program, with the numbers of each in its state. Objects without
    comparable value, such as environments, are equal only if identical; they must live as long as
    the key.
    """
    return _key(learner)


def _key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray | jax.Array):
        return (*_shape(value), hashlib.sha256(np.asarray(value).tobytes()).digest())
    if isinstance(value, Mapping):
        return tuple((key, _key(child)) for key, child in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(_key, value))
    if isinstance(value, functools.partial):
        return (_key(value.func), _key(value.args), _key(value.keywords))
    if isinstance(value, MethodType):
        return (value.__func__, _key(value.__self__))
    if isinstance(value, FunctionType):
        return _function_key(value)
    if isinstance(value, nn.Module):
        return value  # it compares by its fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (
            type(value),
            *(_field_key(value, field.name) for field in dataclasses.fields(value)),
        )
    if isinstance(value, bool | int | float | str | bytes | type | None):
        return value
    return id(value)


def _field_key(owner: Any, name: str) -> Hashable:
    value = getattr(owner, name)
    if name not in _ARGUMENTS.get(type(owner), ()):
        return _key(value)
    leaves, structure = jax.tree.flatten(value)
    fixed = [_key(getattr(value, each)) for each in _SHAPING if hasattr(value, each)]
    return (structure, *map(_shape, leaves), *fixed)


def _shape(value: Any) -> tuple[Hashable, ...]:
    return (np.shape(value), str(np.asarray(value).dtype))


def _function_key(function: FunctionType) -> Hashable:
    """Compare closures by their code and their captured values."""
    code: CodeType = function.__code__
    cells = tuple(_key(cell.cell_contents) for cell in function.__closure__ or ())
    return (code, cells, _key(function.__defaults__ or ()), _key(function.__kwdefaults__ or {}))
