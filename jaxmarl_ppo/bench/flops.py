"""The arithmetic of a workload, and this machine's rate of arithmetic."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.bench.timing import time_calls
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.networks.precision import at_precision
from jaxmarl_ppo.policies.agent_interface import make_agent_interface
from jaxmarl_ppo.policies.network_check import make_network
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.types import PyTree

# Rows of the matrix product that measures the machine's rate.
LIMIT_ROWS = 32768
# Cost of a gradient in forward passes: one forward, two of the same size backward.
GRADIENT_PASSES = 3


def step_flops(
    learner: Learner, decisions: jax.Array | np.ndarray, trained: jax.Array | np.ndarray
) -> float:
    """Count one forward pass per decision, and one gradient per decision and epoch.

    Args:
        learner: of the step.
        decisions: `[P]`, made by each policy.
        trained: `[P]`, those that entered the update.
    """
    passes = np.asarray(decisions, np.float64).copy()
    for group_learner in learner.group_learners:
        ids = np.array(group_learner.policy_ids)
        epochs = np.asarray(group_learner.hyperparams.num_epochs)
        # A magnet is also evaluated, though not differentiated.
        per_epoch = GRADIENT_PASSES + (group_learner.update_shape.magnet != "off")
        passes[ids] += per_epoch * epochs * np.asarray(trained)[ids]
    total, policy_of = 0.0, np.array(learner.players.policy_of)
    for group in learner.players.policy_groups:
        for policy in np.unique(policy_of[np.array(group.players)]):
            shapes = matmul_shapes(_unpadded(learner, group, policy))
            total += passes[policy] * sum(2.0 * m * k * n for m, k, n in shapes)
    return float(total)


def _unpadded(learner: Learner, group: PolicyGroup, policy: int) -> StackedNetwork:
    """Narrow the network to the inputs of one of its policies, since padding is no work."""
    interface, candidates = group.interface, enumerate(learner.players.mapping.candidates)
    slots = tuple(slot for slot, policies in candidates if policy in policies) or interface.slots
    own = make_agent_interface(
        learner.env,
        learner.env_params,
        slots,
        interface.prev_action,
        interface.prev_reward,
        interface.agent_id,
        interface.joint_width > 0,
    )
    module = make_network(
        group.network.module, own, interface.joint_width > 0, group.network.matmul_precision
    )
    return replace(group.network, module=module, input_shape=own.input_shape)


def matmul_shapes(network: StackedNetwork) -> list[tuple[int, int, int]]:
    """List `(M, K, N)` of every matrix product that one row of a network takes."""
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)).params)
    inputs = jax.ShapeDtypeStruct((1, *network.input_shape), jnp.float32)
    hidden = jax.eval_shape(lambda: network.initial_hidden((1,)))

    def forward(params: PyTree, hidden: PyTree, inputs: jax.Array) -> Any:
        params = jax.tree.map(lambda x: x[0], params)
        return network.module.apply({"params": params}, hidden, inputs)

    return _products(jax.make_jaxpr(forward)(params, hidden, inputs).jaxpr)


def _products(jaxpr: Any) -> list[tuple[int, int, int]]:
    found = []
    for equation in jaxpr.eqns:
        out = equation.outvars[0].aval
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            k = int(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted]))
            found.append((out.size // out.shape[-1], k, out.shape[-1]))
        elif equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
            found.append((out.size // features, int(np.prod(kernel)) // features, features))
        for param in equation.params.values():
            inner = getattr(param, "jaxpr", param)
            if hasattr(inner, "eqns"):
                found += _products(inner)
    return found


def matmul_gflops(learner: Learner) -> float:
    """Measure the rate of a square matrix product over many rows, in GFLOP/s.

    It has the width of the layer with most arithmetic, in the network's number type.

    It is square even where the network's is not. A product with more outputs than inputs can be
    bound by memory at this many rows, unlike a training step, and would make the limit too low.
    """
    products = [
        (m * k * n, k, group.network)
        for group in learner.players.policy_groups
        for m, k, n in matmul_shapes(group.network)
    ]
    _, width, network = max(products, key=lambda product: product[:2])
    dtype = getattr(network.module, "dtype", "float32")
    rounds = dtype == "float32" and network.matmul_precision == "bfloat16"
    operands = "bfloat16" if rounds else dtype
    x, kernel = jnp.ones((LIMIT_ROWS, width), operands), jnp.ones((width, width), operands)
    product = jax.jit(functools.partial(jnp.dot, preferred_element_type=dtype))
    with at_precision(network.matmul_precision):
        seconds = time_calls(lambda: product(x, kernel), 30).median
    return 2e-9 * LIMIT_ROWS * width**2 / seconds
