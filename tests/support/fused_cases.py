"""Random minibatches of random small networks, for the kernel of their gradients."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import Action
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.networks.distributions import MaskedCategorical
from jaxmarl_ppo.networks.factored import FactoredDistribution, as_factored
from jaxmarl_ppo.networks.layers import ACTIVATIONS
from jaxmarl_ppo.networks.numbers import NUMBERS
from jaxmarl_ppo.ops.packing import pack
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import update
from jaxmarl_ppo.ppo.loss import UpdateShape
from jaxmarl_ppo.ppo.minibatches import Blocks, Selection
from jaxmarl_ppo.ppo.optimiser import flatten
from jaxmarl_ppo.types import Decisions, Hyperparams, Moments


@dataclass
class Case:
    """A minibatch of some policies, and how they are trained."""

    inputs: update.UpdateInputs
    params: jax.Array
    selection: Selection


ACTIONS = ("choice", "choices", "squashed", "clipped", "choices and squashed", "choice and clipped")


def distribution_of(rng, actions, num_actions):
    """Draw a distribution: of one choice with so many options, several, numbers, or both."""
    if actions == "choice":
        return MaskedCategorical(num_actions)
    counts = {
        "choice": (num_actions,),
        "choices": tuple(int(x) for x in rng.integers(1, 10, rng.integers(2, 6))),
    }.get(actions.split()[0], ())
    kind = NUMBERS.get(actions.split()[-1])
    numbers = kind(int(rng.choice([1, 2, 3, 5, 17]))) if kind else None
    return FactoredDistribution(counts, numbers) if counts else numbers


def module_of(rng, num_inputs):
    """Draw a network; one in ten has layers of the greatest width."""
    sizes = [128, 65] if rng.random() < 0.1 else [1, 3, 8, 16, 17, 33]
    hidden = tuple(int(x) for x in rng.choice(sizes, rng.integers(0, 4)))
    heads = tuple(int(x) for x in rng.choice(sizes, rng.choice([0, 0, 1])))
    separate = bool(rng.random() < 0.5)
    central = separate and num_inputs > 1 and rng.random() < 0.3
    return MLP(
        hidden_sizes=hidden,
        head_sizes=heads,
        activation=str(rng.choice(list(ACTIVATIONS))),
        separate_critic=separate,
        actor_width=int(rng.integers(1, num_inputs)) if central else 0,
    )


def blocks_of(rng, num_blocks, num_inputs, distribution, imitates):
    """Draw blocks, some of whose rows are padding."""
    size = (num_blocks, int(rng.choice([1, 3, 8, 32])))
    factored = as_factored(distribution)
    masks = []
    for count in factored.counts:
        mask = rng.random((*size, count)) < 0.7
        masks.append(mask | (np.arange(count) == rng.integers(count, size=size)[..., None]))

    def floats(*more):
        return rng.normal(size=(*size, *more)).astype(np.float32)

    def action():
        drawn = [np.argmax(mask * rng.random(mask.shape), -1).astype(np.int32) for mask in masks]
        numbers = factored.numbers and np.where(exists, floats(factored.numbers.num_dims), 0.0)
        if distribution is factored:
            return Action(np.stack(drawn, -1) if drawn else None, numbers)
        return drawn[0] if drawn else numbers

    exists = np.zeros((*size, 0), bool)
    if factored.numbers:
        exists = rng.random((*size, factored.numbers.num_dims)) < 0.8

    def imitated():
        shown = rng.random(size) < 0.7
        drawn = action()
        if isinstance(drawn, Action):
            if drawn.choices is None:
                return drawn
            return drawn.replace(choices=np.where(shown[..., None], drawn.choices, -1))
        return np.where(shown, drawn, -1) if masks else drawn

    # All of them, most of them, or none; and the last ones of a block are mostly padding.
    acted = rng.random(size) < rng.choice([0.0, 0.7, 1.0], p=[0.05, 0.55, 0.4])
    acted &= np.arange(size[1]) < rng.integers(1, size[1] + 1, size=(num_blocks, 1))
    decisions = Decisions(
        inputs=floats(num_inputs),
        action_mask=np.concatenate([*masks, exists], -1),
        action=action(),
        log_prob=0.5 * floats(),
        value=floats(),
        hidden=(),
        is_first=rng.random(size) < 0.2,
        acted=acted,
        policy_index=np.zeros(size, np.int32),
        imitated=imitated() if imitates else None,
    )
    return Blocks(decisions, floats(), floats(), (), (), np.zeros(0, np.int32))


def add_log_probs(network, stack, blocks, owner):
    """Add to each row's `log_prob`, noise, that of the policy whose block it is."""
    own = [
        network.evaluate(network.select(stack, k), blocks.decisions, blocks.resume, ())[0]
        for k in range(network.num_members)
    ]
    decisions = blocks.decisions
    log_prob = decisions.log_prob + np.stack(own)[owner, np.arange(len(owner))]
    return replace(blocks, decisions=decisions.replace(log_prob=log_prob))


def hyperparams_of(rng, number, shape, imitates):
    def between(low, high):
        return jnp.asarray(rng.uniform(low, high, number), jnp.float32)

    unused = jnp.full(number, jnp.nan)
    return Hyperparams(
        learning_rate=unused,
        entropy_coef=between(0.0, 0.3),
        gamma=unused,
        gae_lambda=unused,
        clip_eps=between(0.05, 0.4),
        value_clip_eps=between(0.1, 1.0),
        value_coef=between(0.2, 1.0),
        max_grad_norm=unused,
        target_kl=unused,
        kl_coef=between(0.1, 3.0),
        num_epochs=jnp.ones(number, jnp.int32),
        num_minibatches=jnp.ones(number, jnp.int32),
        magnet_coef=between(0.1, 1.0) if shape.magnet != "off" else None,
        imitate_coef=between(0.1, 1.0) if imitates else None,
        log_barrier_coef=between(0.01, 0.3) if rng.random() < 0.5 else None,
    )


def draw(seed, module=None, **options):
    """Draw a case; `options` are fields of `UpdateShape`, `precision`, `actions`, or sizes."""
    rng = np.random.default_rng(seed)
    num_inputs = options.pop("num_inputs", int(rng.choice([1, 5, 16, 23, 40, 128])))
    num_actions = options.pop("num_actions", int(rng.choice([2, 3, 9, 16, 17, 64])))
    number = options.pop("num_policies", int(rng.integers(1, 4)))
    imitates = options.pop("imitates", bool(rng.random() < 0.3))
    normalises = options.pop("normalises", bool(rng.random() < 0.3))
    precision = options.pop("precision", "float32")
    actions = options.pop("actions", str(np.random.default_rng([seed, 1]).choice(ACTIONS)))
    distribution = distribution_of(rng, actions, num_actions)
    factored = as_factored(distribution)
    module = (module or module_of(rng, num_inputs)).clone(
        num_outputs=distribution.num_outputs,
        counts=factored.counts,
        num_log_stds=factored.numbers.num_log_stds if factored.numbers else 0,
        matmul_precision=precision,
    )
    network = StackedNetwork(
        module,
        distribution,
        (num_inputs,),
        num_members=number,
        normalise_observations=normalises,
        matmul_precision=precision,
    )
    # Of each policy some blocks, or none; behind them some that are of nobody.
    counts = rng.integers(0, 6, number)
    blocks = blocks_of(rng, counts.sum() + 2, num_inputs, distribution, imitates)
    start = np.cumsum(counts) - counts + np.minimum(counts, rng.integers(0, 2, number))
    order = rng.permutation(counts.sum() + 2)
    choices = {
        "value_clip": str(rng.choice(["off", "ppo2", "squared_error"])),
        "kl_control": str(rng.choice(["off", "early_stop", "penalty"])),
        "magnet": str(rng.choice(["off", "off", "average"])),
    }
    shape = UpdateShape(
        num_epochs=1,
        num_minibatches=1,
        micro_batch_blocks=max(1, int(counts.max())),
        adam_eps=1e-5,
        num_micro_batches=1,
        side_by_side=True,
        **{**choices, **options},
    )

    def noisy(x, amount):
        return jnp.asarray(x + amount * rng.normal(size=x.shape), jnp.float32)

    stack = network.init(jax.random.key(seed))
    # Larger heads and biases than at the start of training, so that everything has a gradient.
    stack = stack.replace(params=jax.tree.map(lambda x: noisy(x, 0.2), stack.params))
    if normalises:
        ones = jnp.ones((number, num_inputs))
        moments = Moments(jnp.ones(number), noisy(ones, 0.5), jnp.abs(noisy(ones, 0.5)))
        stack = stack.replace(obs_moments=moments)
    owner = np.zeros(len(order), int)
    for k, (first, end) in enumerate(zip(start, np.cumsum(counts), strict=True)):
        owner[order[first:end]] = k
    blocks = add_log_probs(network, stack, blocks, owner)
    magnet = None
    if shape.magnet != "off":
        magnet = jax.tree.map(lambda x: noisy(x, 0.1), stack.params)
    inputs = update.UpdateInputs(
        network,
        shape,
        stack,
        blocks,
        hyperparams_of(rng, number, shape, imitates),
        packed=pack(jax.tree.map(jnp.asarray, blocks).contents),
        magnet=magnet,
    )
    ends = jnp.asarray(np.cumsum(counts), jnp.int32)
    selection = Selection(jnp.asarray(order, jnp.int32), jnp.asarray(start, jnp.int32), ends)
    return Case(inputs, flatten(stack.params), selection)


def run(case, fused):
    """Return what sums a minibatch's gradients up, and its arrays."""
    own = case.inputs
    shape = replace(own.shape, fused=fused)

    def gradient(stack, packed, hyperparams, magnet, params, selection):
        inputs = replace(
            own, shape=shape, stack=stack, packed=packed, hyperparams=hyperparams, magnet=magnet
        )
        return update._accumulate(inputs, params, selection)

    arrays = (own.stack, own.packed, own.hyperparams, own.magnet, case.params, case.selection)
    return gradient, arrays
