"""Sizes of blocks, micro-batches and tiles, from cost models."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jax.core import Tracer

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.machine.tuning import tuning
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.policies.policy_group import PolicyGroup
from jaxmarl_ppo.ppo.grouped_blocks import group_shape, packs_in_groups
from jaxmarl_ppo.types import PyTree

DEFAULT_BPTT_LENGTH = 16
# The least number of blocks (rows shuffled together) that a minibatch should have.
MIN_BLOCKS_PER_MINIBATCH = 32
# Fixed cost of a gradient, in rows: some forty small operations.
ROWS_PER_GRADIENT = 40

# Where the number of micro-batches is fixed, each member leaves one partly empty. They are so small
# that about this many of a member's are full.
FULL_MICRO_BATCHES = 16


class MicroBatches(NamedTuple):
    """Division of a policy group's minibatches; fields are those of `UpdateShape`."""

    micro_batch_blocks: int
    num_parts: int = 1
    num_micro_batches: int | None = None
    at_once: int = 1
    side_by_side: bool = False


def block_rows(
    ppo: PPOConfig, policy_group: PolicyGroup, num_rows: int, num_minibatches: int
) -> int:
    """Choose how many rows are shuffled together; for a recurrent network, the chunk length."""
    if policy_group.network.is_recurrent:
        return ppo.bptt_length or DEFAULT_BPTT_LENGTH
    shares = policy_group.num_trainable * num_minibatches * MIN_BLOCKS_PER_MINIBATCH
    return max(1, min(tuning().block_rows, num_rows // shares))


def spread_of_draws(
    players: Players, policy_group: PolicyGroup, num_policies: int, episodes_per_rollout: float
) -> float:
    """Estimate the standard deviation of a policy's row count, relative to its even share.

    The model is a count of lives that each draw one of the policies.
    """
    if players.is_fixed:
        return 0.0
    # A binomial count of n lives, each drawn with p: sqrt(n p (1 - p)) relative to n p.
    lives_of_each = episodes_per_rollout * policy_group.num_active_rows / num_policies
    return math.sqrt((1.0 - 1.0 / num_policies) / lives_of_each)


def episodes_per_rollout_at_least(
    env: MultiAgentEnv, env_params: PyTree, num_envs: int, num_steps: int
) -> float:
    """Bound from below the number of episodes in a rollout, summed over environments."""
    horizon = env.horizon(env_params)
    # Sizes are static, but a horizon from traced parameters is known only at run time.
    if horizon is None or isinstance(horizon, Tracer):
        return num_envs
    return num_envs * max(1.0, num_steps / max(1, int(horizon)))


def micro_batch_blocks(
    config: TrainConfig,
    is_recurrent: bool,
    block_size: int,
    blocks_per_minibatch: float,
    spread: float,
) -> int:
    """Choose the number of blocks per gradient that makes a minibatch cheapest on average.

    More blocks mean fewer gradients, fewer blocks mean fuller ones. There are no more blocks than
    the wanted rows need. `spread` is the standard deviation of a policy's blocks, relative to
    `blocks_per_minibatch`.
    """
    best = tuning()
    default = best.recurrent_micro_batch_rows if is_recurrent else best.micro_batch_rows
    wanted = config.micro_batch_rows or default
    # Few minibatches exceed three deviations; room for more would nearly always be empty.
    most = max(1, min(wanted // block_size, math.ceil(blocks_per_minibatch * (1 + 3 * spread))))
    size = np.arange(1, most + 1)
    # The cost is averaged over 32 equally likely numbers of blocks, taken to be normal.
    share = np.maximum(1.0 + spread * np.array(NormalDist().quantiles(32)), 0.0)
    num_blocks = np.ceil(blocks_per_minibatch * share)
    num_gradients = np.ceil(num_blocks[:, None] / size).mean(axis=0)
    return int(size[np.argmin(num_gradients * (size * block_size + ROWS_PER_GRADIENT))])


def fixed_micro_batches(
    config: TrainConfig,
    policy_group: PolicyGroup,
    block_size: int,
    num_envs: int,
    num_minibatches: int,
) -> MicroBatches:
    """Choose a fixed number of micro-batches that suffices for any rollout.

    Args:
        config: the run.
        policy_group: the policies that are trained.
        block_size: `B`.
        num_envs: of one device.
        num_minibatches: the fewest of any member.
    """
    recurrent = policy_group.network.is_recurrent
    best = tuning()
    default = best.recurrent_micro_batch_rows if recurrent else best.micro_batch_rows
    wanted = max(1, (config.micro_batch_rows or default) // block_size)  # blocks at once
    num_steps, num_slots, members = (
        config.num_steps,
        len(policy_group.interface.slots),
        policy_group.num_trainable,
    )
    if policy_group.num_active_rows == num_slots and policy_group.own_rows:
        # A slot trains on at most one decision per step: the previous rollout left one open only
        # where the slot does not act at the first step. So all members have the same share.
        each, streams = members, num_envs * len(policy_group.own_rows[0])
        rows, chunks = streams * num_steps, streams * -(-num_steps // block_size)
    else:
        # For all members. Each slot's last chunk, and one for each member, is partly empty.
        each, rows = 1, num_envs * (num_steps * policy_group.num_active_rows + num_slots)
        chunks = rows // block_size + num_envs * num_slots * members
    blocks = chunks if recurrent else -(-rows // block_size)
    if packs_in_groups(policy_group):
        blocks = _grouped_blocks(policy_group, block_size, num_envs, num_steps)
    share = max(2, -(-blocks // num_minibatches))  # `pack_rows` makes two of hardly any rows
    if members == each:
        number = max(1, round(share * members / wanted))
        size, num_parts = _parts(-(-share // number), block_size, policy_group)
        return MicroBatches(size, num_parts, number, side_by_side=True)
    share += 2 * members  # each rounds up
    size = max(1, min(wanted, share // (FULL_MICRO_BATCHES * members)))
    size, num_parts = _parts(size, block_size, policy_group)
    number = share // size + members
    num_passes = -(-number // max(1, wanted // size))
    return MicroBatches(size, num_parts, number, at_once=-(-number // num_passes))


def _grouped_blocks(
    policy_group: PolicyGroup, block_size: int, num_envs: int, num_steps: int
) -> int:
    """Return the number of blocks that `pack_in_groups` has room for."""
    active_rows, rows = policy_group.num_active_rows, num_envs * num_steps
    if active_rows < len(policy_group.interface.slots):
        active_rows, rows = 1, rows * active_rows + num_envs * len(policy_group.interface.slots)
    shape = group_shape(rows, block_size, policy_group.most_trained_in_row)
    return active_rows * shape.num_groups * shape.capacity


def _parts(num_blocks: int, block_size: int, policy_group: PolicyGroup) -> tuple[int, int]:
    """Cut a micro-batch into parts that are each summed in one operation."""
    in_steps = policy_group.network.is_recurrent and not policy_group.network.is_linear
    part_rows = tuning().recurrent_part_rows if in_steps else tuning().part_rows
    if part_rows is None:
        return num_blocks, 1
    of_part = max(1, part_rows // block_size)
    num_parts = -(-num_blocks // of_part)
    return (num_parts * of_part, num_parts) if num_parts > 1 else (num_blocks, 1)
