"""From a configuration to a learner: where everything that depends on both is checked."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.agent_inputs import AgentInputs, make_agent_inputs
from jaxmarl_ppo.config import PPOConfig, ScheduleSpec, TrainConfig, schedule_points
from jaxmarl_ppo.learner import Learner
from jaxmarl_ppo.mapping import make_mapping
from jaxmarl_ppo.networks import ACTIVATIONS, NETWORKS, ActorCritic
from jaxmarl_ppo.policy_bank import PolicyBank
from jaxmarl_ppo.ppo import UpdateShape
from jaxmarl_ppo.types import Hyperparams, PyTree, Schedule

DEFAULT_BPTT_LENGTH = 16
# A gradient over this many rows keeps its activations in a CPU's cache; an accelerator wants few
# large kernels.
MICRO_BATCH_ROWS = {"cpu": 4096}
MICRO_BATCH_ROWS_ELSEWHERE = 65536
# Rows that are shuffled together, and how many such blocks a minibatch should at least have.
MAX_BLOCK_ROWS = 32
MIN_BLOCKS_PER_MINIBATCH = 32


def make_learner(env: MultiAgentEnv, env_params: PyTree, config: TrainConfig) -> Learner:
    """Build the pure training functions of a run.

    Raises:
        ValueError: what does not fit together, before anything is compiled.
    """
    mapping = make_mapping(config.policies, env.agents)
    for name in config.ppo_overrides:
        if name not in mapping.names:
            raise ValueError(
                f"ppo_overrides names the unknown policy {name!r}; "
                f"the policies are {', '.join(mapping.names)}"
            )
    spec = config.policy
    encoder = make_agent_inputs(
        env, env_params, spec.prev_action, spec.prev_reward, spec.append_agent_id
    )
    bank = PolicyBank(
        mapping=mapping,
        network=make_network(spec.network, encoder),
        distribution=encoder.distribution,
        input_shape=encoder.input_shape,
        normalise_observations=spec.normalise_observations,
        normalise_rewards=spec.normalise_rewards,
    )
    check_network(bank)
    num_rows = config.num_envs * config.num_steps * env.num_agents
    block_size = _block_size(config, bank, num_rows)
    ppo = config.ppo
    return Learner(
        env=env,
        env_params=env_params,
        bank=bank,
        encoder=encoder,
        hyperparams=make_hyperparams(config, mapping.names),
        update_shape=UpdateShape(
            num_epochs=ppo.num_epochs,
            num_minibatches=ppo.num_minibatches,
            micro_batch_blocks=_micro_batch_blocks(config, bank, num_rows, block_size),
            value_clip=ppo.value_clip,
            kl_control=ppo.kl_control,
            adam_eps=ppo.adam_eps,
        ),
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        block_size=block_size,
        discount_by_tick=ppo.discount_by == "tick",
        normalise_advantages=ppo.normalise_advantages,
        kl_coef=0.2 if ppo.initial_kl_coef is None else ppo.initial_kl_coef,
        stagger_starts=config.stagger_starts,
    )


def make_network(network: str | nn.Module, encoder: AgentInputs) -> nn.Module:
    """The named or given module, told how many distribution inputs are needed."""
    module = NETWORKS[network]() if isinstance(network, str) else network
    if isinstance(module, ActorCritic) and module.activation not in ACTIVATIONS:
        raise ValueError(
            f"unknown activation {module.activation!r}; valid: {', '.join(ACTIVATIONS)}"
        )
    planes = len(encoder.input_shape) > 1
    if isinstance(module, ActorCritic) and planes != bool(module.conv_channels):
        wanted = "planes [rows, cols, channels]" if module.conv_channels else "flat features"
        raise ValueError(
            f"network {type(module).__name__} needs {wanted}, but the environment's features have "
            f"shape {encoder.input_shape}; "
            + (
                "use network 'cnn'"
                if planes
                else "use 'mlp' or 'lstm', or an environment in planes"
            )
        )
    fields = {field.name for field in dataclasses.fields(module)}
    told: dict[str, Any] = {}
    if "num_outputs" in fields:
        told["num_outputs"] = encoder.distribution.num_outputs
    if "continuous" in fields:
        told["continuous"] = encoder.continuous
    return module.clone(**told)


def check_network(bank: PolicyBank) -> None:
    """One abstract call, so that a module of the user's own fails here and not in a trace.

    Raises:
        ValueError: the module cannot be called, returns other shapes than it must, or starts lives
            from a memory that is not zero.
    """
    name = type(bank.network).__name__
    for batch_shape in ((3,), (3, 2)):
        _check_call(bank, name, batch_shape)
    if any(leaf.any() for leaf in jax.tree.leaves(bank.initial_hidden((1,)))):
        raise ValueError(f"network {name}: initial_hidden must be all zeros")


def _check_call(bank: PolicyBank, name: str, batch_shape: tuple[int, ...]) -> None:
    inputs = jax.ShapeDtypeStruct((*batch_shape, *bank.input_shape), jnp.float32)
    hidden = _try(name, "initial_hidden", lambda: bank.initial_hidden(batch_shape))
    variables, returned = _try(
        name,
        f"the call with hidden {_shapes(hidden)} and inputs {inputs.shape}",
        lambda key, hidden, inputs: (
            (variables := bank.network.init(key, hidden, inputs)),
            bank.network.apply(variables, hidden, inputs),
        ),
        jax.random.key(0),
        hidden,
        inputs,
    )
    if set(variables) - {"params"}:
        raise ValueError(
            f"network {name} has variables {sorted(variables)}; only 'params' are trained"
        )
    if not (isinstance(returned, tuple) and len(returned) == 3):
        raise ValueError(
            f"network {name} must return (hidden, distribution inputs, value), "
            f"got {_shapes(returned)}"
        )
    expected = ((*batch_shape, bank.distribution.num_outputs), batch_shape)
    same_hidden = _shapes(returned[0]) == _shapes(hidden)
    if not same_hidden or tuple(getattr(x, "shape", None) for x in returned[1:]) != expected:
        raise ValueError(
            f"network {name} returned shapes {_shapes(returned)} for rows of shape {batch_shape}; "
            f"it must return hidden {_shapes(hidden)}, distribution inputs {expected[0]} and "
            f"value {expected[1]}"
        )


def make_hyperparams(config: TrainConfig, policies: tuple[str, ...]) -> Hyperparams:
    """Numeric hyper-parameters of every policy, `[K]` leaves."""
    configs = [config.ppo_overrides.get(name, config.ppo) for name in policies]

    def numbers(get: Callable[[PPOConfig], float | None], absent: float = 0.0) -> jax.Array:
        values = [get(ppo) for ppo in configs]
        return jnp.array([absent if value is None else value for value in values], jnp.float32)

    def schedules(get: Callable[[PPOConfig], ScheduleSpec]) -> Schedule:
        points = [list(schedule_points(get(ppo), config.total_env_steps)) for ppo in configs]
        longest = max(len(p) for p in points)
        for p in points:
            while len(p) < longest:
                p.append((p[-1][0] + 1.0, p[-1][1]))
        table = jnp.array(points, jnp.float32)
        return Schedule(steps=table[..., 0], values=table[..., 1])

    return Hyperparams(
        learning_rate=schedules(lambda ppo: ppo.learning_rate),
        entropy_coef=schedules(lambda ppo: ppo.entropy_coef),
        gamma=numbers(lambda ppo: ppo.gamma),
        gae_lambda=numbers(lambda ppo: ppo.gae_lambda),
        clip_eps=numbers(lambda ppo: ppo.clip_eps),
        value_clip=numbers(lambda ppo: ppo.value_clip_eps),
        value_coef=numbers(lambda ppo: ppo.value_coef),
        max_grad_norm=numbers(lambda ppo: ppo.max_grad_norm, absent=jnp.inf),
        target_kl=numbers(lambda ppo: ppo.target_kl),
    )


def _block_size(config: TrainConfig, bank: PolicyBank, num_rows: int) -> int:
    ppo = config.ppo
    if bank.is_recurrent:
        length = ppo.bptt_length or DEFAULT_BPTT_LENGTH
        slots = min(map(bank.mapping.slot_policy.count, range(bank.num_policies)))
        chunks = config.num_envs * slots * -(-config.num_steps // length)
        if ppo.num_minibatches > chunks:
            raise ValueError(
                f"num_minibatches={ppo.num_minibatches} exceeds the {chunks} chunks of "
                f"{length} decisions that a policy can have in a rollout; set num_minibatches to "
                f"at most {chunks}, or lower bptt_length"
            )
        return length
    if ppo.bptt_length is not None:
        raise ValueError(
            f"bptt_length={ppo.bptt_length} has no effect on a network without memory; "
            "use network 'lstm' or drop bptt_length"
        )
    if ppo.num_minibatches > num_rows:
        raise ValueError(
            f"num_minibatches={ppo.num_minibatches} exceeds the {num_rows} rows of a rollout "
            f"(num_envs * num_steps * agents); set num_minibatches to at most {num_rows}"
        )
    shares = bank.num_policies * ppo.num_minibatches * MIN_BLOCKS_PER_MINIBATCH
    return max(1, min(MAX_BLOCK_ROWS, num_rows // shares))


def _micro_batch_blocks(
    config: TrainConfig, bank: PolicyBank, num_rows: int, block_size: int
) -> int:
    """Blocks per gradient: an even part of a full minibatch, at most the wanted rows."""
    wanted = config.micro_batch_rows or MICRO_BATCH_ROWS.get(
        jax.default_backend(), MICRO_BATCH_ROWS_ELSEWHERE
    )
    full = -(-num_rows // (bank.num_policies * config.ppo.num_minibatches * block_size))
    parts = -(-full * block_size // wanted)
    return max(1, -(-full // parts))


def _try(name: str, what: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return jax.eval_shape(function, *args)
    except Exception as error:
        raise ValueError(f"network {name}: {what} failed: {error}") from error


def _shapes(tree: PyTree) -> Any:
    return jax.tree.map(lambda x: getattr(x, "shape", x), tree)
