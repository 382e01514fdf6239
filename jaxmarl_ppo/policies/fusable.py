"""Which networks can be computed by the kernels of `fused_network` and `ppo/fused_gradient`.

Apart from them, since Pallas takes a while to import.
"""

from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.policies.stacked_network import StackedNetwork

# The largest networks: their weights and sums of gradients must stay on the chip.
MAX_LAYERS, MAX_WIDTH, MAX_ACTIONS = 4, 128, 64


def why_not_fused(network: StackedNetwork) -> str | None:
    """Say why a policy group cannot be computed by these kernels; None if it can."""
    module, distribution = network.module, network.distribution
    if type(module) is not MLP:
        return f"its network is of the class {type(module).__name__}, not MLP"
    assert isinstance(module, MLP)
    layers = (*module.hidden_sizes, *module.head_sizes)
    if len(layers) > MAX_LAYERS:
        return f"it has {len(layers)} hidden layers, more than {MAX_LAYERS}"
    width = max((*network.input_shape, *layers))
    if width > MAX_WIDTH:
        return f"it has a layer or inputs of width {width}, more than {MAX_WIDTH}"
    if type(distribution) is not MaskedCategorical:
        return "its actions are not one choice"
    if distribution.num_actions > MAX_ACTIONS:
        return f"it has {distribution.num_actions} actions, more than {MAX_ACTIONS}"
    if module.unimix:
        return f"unimix={module.unimix}"
    if module.dtype != "float32":
        return f"dtype={module.dtype!r}"
    return None
