"""What a user says of a network: its kinds, its fields, and what they may be."""

import dataclasses
from typing import Any

from flax import linen as nn

from jaxmarl_ppo.config.checks import (
    MAX_INT,
    Rule,
    check_bool,
    check_sequence,
    check_share,
    choice,
    refusal,
    whole_number,
)
from jaxmarl_ppo.networks.actor_critic import NETWORKS, ActorCritic
from jaxmarl_ppo.networks.layers import ACTIVATIONS, DTYPES

# Fields of a network that the environment decides, and those of every flax module.
_TOLD_FIELDS = (
    *("num_outputs", "continuous", "actor_width", "matmul_precision"),
    *("parent", "name"),
)
_check_size = whole_number(1, MAX_INT)


def _check_sizes(name: str, value: Any) -> tuple[int, ...]:
    sizes = check_sequence(name, value, "a list of whole numbers")
    return tuple(_check_size(f"an element of {name}", size) for size in sizes)


# Of all fields that a user decides, since a flax module checks nothing.
NETWORK_RULES: dict[str, Rule] = {
    "hidden_sizes": _check_sizes,
    "head_sizes": _check_sizes,
    "channels": _check_sizes,
    "lstm_size": _check_size,
    "gru_size": _check_size,
    "activation": choice(*ACTIVATIONS),
    "separate_critic": check_bool,
    "unimix": check_share,
    "dtype": choice(*DTYPES),
}


def check_network(name: str, network: Any) -> str | nn.Module:
    """Refuse what is no network, and fields of one that nothing can be built of.

    A module of the user's own checks its fields itself, if anybody does.
    """
    if isinstance(network, str):
        return choice(*NETWORKS)(name, network)
    if not isinstance(network, nn.Module):
        kinds = ", ".join(map(repr, NETWORKS))
        raise refusal(name, f"{kinds} or a flax.linen module", network)
    if isinstance(network, ActorCritic):
        for field in network_fields(type(network)):
            if field in NETWORK_RULES:  # a subclass may have more
                NETWORK_RULES[field](f"{name}.{field}", getattr(network, field))
    return network


def network_fields(cls: type[nn.Module]) -> list[str]:
    """List the fields of a network that a user decides."""
    return [f.name for f in dataclasses.fields(cls) if f.name not in _TOLD_FIELDS]


def kinds_with(field: str) -> list[str]:
    """List the kinds of networks of which a user decides a field."""
    return [kind for kind, cls in NETWORKS.items() if field in network_fields(cls)]
