"""Networks in a configuration: their kinds, their fields, and the values of those."""

import dataclasses
from typing import Annotated, Any, Literal

from flax import linen as nn

from jaxmarl_ppo.config.checks import (
    MAX_INT,
    check_sequence,
    check_share,
    choice,
    rejection,
    rule_of,
    whole_number,
)
from jaxmarl_ppo.networks.actor_critic import NETWORKS, ActorCritic
from jaxmarl_ppo.networks.layers import ACTIVATIONS, DTYPES

# Fields of a network that the environment decides, and those of every flax module.
_TOLD_FIELDS = (
    *("num_outputs", "counts", "num_log_stds", "actor_width", "matmul_precision"),
    *("parent", "name"),
)
_check_size = whole_number(1, MAX_INT)


def _check_sizes(name: str, value: Any) -> tuple[int, ...]:
    sizes = check_sequence(name, value, "a list of whole numbers")
    return tuple(_check_size(f"an element of {name}", size) for size in sizes)


Sizes = Annotated[tuple[int, ...], _check_sizes]
Size = Annotated[int, _check_size]
# Annotations of all fields that a user decides, since a flax module checks nothing.
NETWORK_FIELDS: dict[str, Any] = {
    "hidden_sizes": Sizes,
    "head_sizes": Sizes,
    "channels": Sizes,
    "lstm_size": Size,
    "gru_size": Size,
    "activation": Literal[tuple(ACTIVATIONS)],
    "separate_critic": bool,
    "unimix": Annotated[float, check_share],
    "dtype": Literal[tuple(DTYPES)],
}
NETWORK_RULES = {name: rule_of(annotation) for name, annotation in NETWORK_FIELDS.items()}


def check_network(name: str, network: Any) -> str | nn.Module:
    """Reject values other than networks, and networks with invalid fields.

    A custom module must check its fields itself.
    """
    if isinstance(network, str):
        return choice(*NETWORKS)(name, network)
    if not isinstance(network, nn.Module):
        kinds = ", ".join(map(repr, NETWORKS))
        raise rejection(name, f"{kinds} or a flax.linen module", network)
    if isinstance(network, ActorCritic):
        for field in network_fields(type(network)):
            if field in NETWORK_RULES:  # a subclass may have more
                NETWORK_RULES[field](f"{name}.{field}", getattr(network, field))
    return network


def network_fields(cls: type[nn.Module]) -> list[str]:
    """List the fields of a network that a user decides."""
    return [f.name for f in dataclasses.fields(cls) if f.name not in _TOLD_FIELDS]


def kinds_with(field: str) -> list[str]:
    """List the kinds of networks that have a field set by the user."""
    return [kind for kind, cls in NETWORKS.items() if field in network_fields(cls)]
