"""Which networks can be computed by the kernels of `fused_network` and `ppo/fused_gradient`.

This is a module of its own because theirs import Pallas, which takes a while.
"""

from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.factored import as_factored
from jaxmarl_ppo.networks.numbers import ClippedGaussian, SquashedGaussian
from jaxmarl_ppo.policies.stacked_network import StackedNetwork

# The largest networks: their weights and sums of gradients must stay on the chip.
MAX_LAYERS, MAX_WIDTH = 4, 128
# The most options of all choices, each counted like the largest of them, and the most numbers.
MAX_ACTIONS = 64


def why_not_fused(network: StackedNetwork) -> str | None:
    """Say why a policy group cannot be computed by these kernels; None if it can."""
    module, distribution = network.module, as_factored(network.distribution)
    if type(module) is not MLP:
        return f"its network is of the class {type(module).__name__}, not MLP"
    assert isinstance(module, MLP)
    layers = (*module.hidden_sizes, *module.head_sizes)
    if len(layers) > MAX_LAYERS:
        return f"it has {len(layers)} hidden layers, more than {MAX_LAYERS}"
    width = max((*network.input_shape, *layers))
    if width > MAX_WIDTH:
        return f"it has a layer or inputs of width {width}, more than {MAX_WIDTH}"
    counts, numbers = distribution.counts, distribution.numbers
    if len(counts) * max(counts, default=0) > MAX_ACTIONS:
        return f"it has {len(counts)} x {max(counts)} options, more than {MAX_ACTIONS}"
    if not isinstance(numbers, SquashedGaussian | ClippedGaussian | None):
        return f"its numbers have the distribution {type(numbers).__name__}, not a Gaussian"
    if numbers is not None and numbers.num_dims > MAX_ACTIONS:
        return f"it has {numbers.num_dims} numbers, more than {MAX_ACTIONS}"
    if module.unimix:
        return f"unimix={module.unimix}"
    if module.dtype != "float32":
        return f"dtype={module.dtype!r}"
    return None
