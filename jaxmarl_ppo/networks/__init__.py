"""Networks: modules, their memory, and action distributions."""

from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.networks.distributions import ActionDistribution, MaskedCategorical
from jaxmarl_ppo.networks.factored import FactoredDistribution
from jaxmarl_ppo.networks.numbers import BetaDistribution, ClippedGaussian, SquashedGaussian

__all__ = [
    "CNN",
    "GRU",
    "LSTM",
    "MLP",
    "ActionDistribution",
    "BetaDistribution",
    "ClippedGaussian",
    "FactoredDistribution",
    "MaskedCategorical",
    "MinGRU",
    "SquashedGaussian",
]
