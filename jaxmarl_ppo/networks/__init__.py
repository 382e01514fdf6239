"""Networks: modules, their memory, and action distributions."""

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
