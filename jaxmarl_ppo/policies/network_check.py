"""Networks of a configuration, built for an environment and checked before compilation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_ppo.machine.text import listed
from jaxmarl_ppo.networks.actor_critic import CNN, FLAT, NETWORKS, ActorCritic
from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PyTree


def named_network(network: str | nn.Module) -> nn.Module:
    """Return the module of a specification, by name or as given."""
    return NETWORKS[network]() if isinstance(network, str) else network


def make_network(
    network: str | nn.Module,
    interface: AgentInterface,
    central_critic: bool = False,
    matmul_precision: str = "float32",
) -> nn.Module:
    """Return the named or given module, with the required number of distribution inputs.

    Raises:
        ValueError: For features of another kind than the module takes, a central critic that
            shares layers with the actor, or a custom module that does not round its products to
            bfloat16 though it must.
    """
    module = named_network(network)
    rank = len(interface.input_shape)
    if isinstance(module, ActorCritic) and rank != (3 if module.conv_channels else 1):
        wanted = "planes [rows, cols, channels]" if module.conv_channels else "flat features"
        flatten = f"make the environment with flatten=True and use network {listed(FLAT)}"
        advice = {
            1: f"use network {listed(FLAT)}, or an environment in planes",
            3: f"use network 'cnn', or {flatten}",
        }
        raise ValueError(
            f"network {type(module).__name__} needs {wanted}, but the environment's features have "
            f"shape {interface.input_shape}; {advice.get(rank, flatten)}"
        )
    # A custom module may set its own sizes, and need not have these fields.
    fields = {field.name for field in dataclasses.fields(module)}
    told: dict[str, Any] = {}
    if "num_outputs" in fields:
        told["num_outputs"] = interface.distribution.num_outputs
    if isinstance(module, ActorCritic):
        told["counts"] = interface.counts
        if not interface.counts:
            told["unimix"] = 0.0  # which `check_effects` rejects where no policy has choices
        told["num_log_stds"] = interface.numbers.num_log_stds if interface.numbers else 0
    if "matmul_precision" in fields:
        told["matmul_precision"] = matmul_precision
    elif matmul_precision == "bfloat16":
        raise ValueError(
            f"matmul_precision='bfloat16' has no effect on the layers of {type(module).__name__}, "
            "a module of your own without a field matmul_precision; give it one that its layers "
            "go by (jaxmarl_ppo.networks.matmul.dot_general_in), or drop matmul_precision"
        )
    if central_critic:
        if not ("actor_width" in fields and getattr(module, "separate_critic", False)):
            raise ValueError(
                f"central_critic needs a network with separate_critic=True, so that the actor is "
                f"kept from what the critic sees; {type(module).__name__} shares its layers"
            )
        told["actor_width"] = interface.actor_width
    return module.clone(**told)


def check_network(network: StackedNetwork) -> None:
    """Call a network abstractly, so that a custom module fails here and not in a trace.

    Most of our own fit whatever they are given, and tests call this for each of them. Only
    convolutions can be too large for an observation.

    Raises:
        ValueError: If the module or one of its stages cannot be called or returns wrong shapes, or
            if initial memory is not zero.
    """
    kind = type(network.module)
    if kind in NETWORKS.values() and kind is not CNN:
        return
    check_calls(network)


def check_calls(network: StackedNetwork) -> None:
    """Call any network abstractly, whoever wrote it.

    Raises:
        ValueError: As `check_network`.
    """
    name = type(network.module).__name__
    # Acting calls a module with one batch axis; the update of a module without memory uses two.
    for batch_shape in ((3,), (3, 2)):
        _check_call(network, name, batch_shape)
    # `recurrence.advance` begins lives at zero and does not ask the module.
    if any(leaf.any() for leaf in jax.tree.leaves(network.initial_hidden((1,)))):
        raise ValueError(f"network {name}: initial_hidden must be all zeros")
    if network.is_linear:
        _check_linear(network, name, (3, 2))


def _check_call(network: StackedNetwork, name: str, batch_shape: tuple[int, ...]) -> None:
    inputs = jax.ShapeDtypeStruct((*batch_shape, *network.input_shape), jnp.float32)
    hidden = _try(name, "initial_hidden", lambda: network.initial_hidden(batch_shape))
    variables, returned = _try(
        name,
        f"the call with hidden {_shapes(hidden)} and inputs {inputs.shape}",
        lambda key, hidden, inputs: (
            (variables := network.module.init(key, hidden, inputs)),
            network.module.apply(variables, hidden, inputs),
        ),
        jax.random.key(0),
        hidden,
        inputs,
    )
    if set(variables) - {"params"}:
        raise ValueError(
            f"network {name} has variables {sorted(variables)}; only 'params' are trained"
        )
    if not (isinstance(returned, tuple) and len(returned) == 3):
        raise ValueError(
            f"network {name} must return (hidden, distribution inputs, value), "
            f"got {_shapes(returned)}"
        )
    expected = ((*batch_shape, network.distribution.num_outputs), batch_shape)
    same_hidden = _shapes(returned[0]) == _shapes(hidden)
    if not same_hidden or tuple(getattr(x, "shape", None) for x in returned[1:]) != expected:
        raise ValueError(
            f"network {name} returned shapes {_shapes(returned)} for rows of shape {batch_shape}; "
            f"it must return hidden {_shapes(hidden)}, distribution inputs {expected[0]} and "
            f"value {expected[1]}"
        )


def _check_linear(network: StackedNetwork, name: str, batch_shape: tuple[int, ...]) -> None:
    """Compare the stages of a linear memory with the module's call."""
    hidden = network.initial_hidden(batch_shape)
    inputs = jnp.zeros((*batch_shape, *network.input_shape))

    def stages(key: jax.Array) -> tuple[PyTree, PyTree]:
        variables = network.module.init(key, hidden, inputs)
        stage = functools.partial(network.module.apply, variables)
        encoded = stage(inputs, method="encode")
        coefficients = stage(encoded, method="coefficients")
        return coefficients, stage(stage(hidden, encoded, method="read"), method="decode")

    coefficients, told = _try(name, "one of its stages", stages, jax.random.key(0))
    expected = (_shapes(hidden),) * 2
    if _shapes(coefficients) != expected:
        raise ValueError(
            f"network {name}: coefficients returned shapes {_shapes(coefficients)} for rows of "
            f"shape {batch_shape}; it must return (a, b) {expected}"
        )
    expected = ((*batch_shape, network.distribution.num_outputs), batch_shape)
    if _shapes(told) != expected:
        raise ValueError(
            f"network {name}: decode returned shapes {_shapes(told)} for rows of shape "
            f"{batch_shape}; it must return {expected}"
        )


def _try(name: str, what: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return jax.eval_shape(function, *args)
    except Exception as error:  # a custom module can raise anything
        raise ValueError(f"network {name}: {what} failed: {error}") from error


def _shapes(tree: PyTree) -> Any:
    return jax.tree.map(lambda x: getattr(x, "shape", x), tree)
