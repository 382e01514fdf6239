"""What computes: modules, their memory, and distributions of actions."""

from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.networks.distributions import (
    ActionDistribution,
    BoundedGaussian,
    MaskedCategorical,
)

__all__ = [
    "CNN",
    "GRU",
    "LSTM",
    "MLP",
    "ActionDistribution",
    "BoundedGaussian",
    "MaskedCategorical",
    "MinGRU",
]
