"""What computes: modules, their memory, and distributions of actions."""

from jaxmarl_ppo.networks.actor_critic import CNN, LSTM, MLP
from jaxmarl_ppo.networks.distributions import (
    ActionDistribution,
    BoundedGaussian,
    MaskedCategorical,
)

__all__ = ["CNN", "LSTM", "MLP", "ActionDistribution", "BoundedGaussian", "MaskedCategorical"]
