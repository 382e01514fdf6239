"""Tuning by backend: the choices that differ between CPU, GPU and TPU, in one place.

Every entry was measured on a CPU, some on a GPU, too (docs/performance.md). The other entries of
accelerators follow from how they work: few large kernels, none of which waits for the host.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jaxmarl_envs.backend import backend

Layout = Literal["in_turn", "side_by_side"]


@dataclass(frozen=True)
class Tuning:
    """The choices of a backend.

    Attributes:
        copies_inputs: whether a kernel's gradient is the product of a transposed copy of the inputs
            (`networks/matmul.py`).
        micro_batch_rows: over which a gradient is computed at once. On a CPU, so few that they stay
            in a core's cache and are not worth sharing out between cores.
        recurrent_micro_batch_rows: the same for recurrent networks.
        part_rows: of a micro-batch, whose gradient is summed up in one go; None for all of them.
        recurrent_part_rows: the same for networks with steps of memory, which each sum a gradient
            of every part.
        block_rows: the most that are shuffled together, by networks without memory.
        rows_last: whether rows are the fastest axis of what there is of many decisions, which then
            lie slot after slot (`ops/rows.py`). A TPU fills the fastest axis up to 128.
        packs_in_place: whether rows are cut into blocks where they lie if it is known beforehand
            whose they are (`ppo/minibatches.py`).
        max_steps_in_turn: longest chunk whose steps of linear memory are written out one after the
            other; those of longer ones are composed in a tree (`networks/recurrence.py`).
        recomputes_steps: whether the gradient of memory computes each step once more instead of
            keeping all that it took.
        sums_kernel_gradient_once: whether the gradient of a recurrent kernel is one product after
            the loop over steps, instead of one in every step (`recurrence.unroll_product`).
        fixed_trip_counts: whether loops run as often as they ever could, which is known beforehand.
            A CPU leaves them when nothing is left to do; an accelerator would wait for its host to
            see that.
        picks_by_comparing: whether one number of a row is picked by comparing instead of by its
            place, whose gradient would be a scatter.
        max_actions_in_turn: most actions of a categorical distribution that are gone through one by
            one, so that all that is computed of a decision is one kernel; more are an axis.
        unrolls_integrals: whether the points of a numerical integral are written out one after the
            other, instead of a loop (`networks/numbers.py`).
        packs: whether small arrays that are taken together are laid side by side
            (`ops/packing.py`), and without `rows_last` those that a step writes (`ops/steps.py`).
        fuses_networks: whether small networks can be computed in kernels of their own, where a run
            asks for that (`policies/fused_network.py`, `ppo/fused_gradient.py`).
        credit_unroll: most steps of a rollout that an iteration of the loop over advantages has.
        values_ends_at_once: whether final observations are valued after a rollout, all at once,
            instead of step by step, where there is no memory to be kept for that.
        max_pass_rows: most rows of drawn policies that are computed at once
            (`policies/tile_sizes.py`).
        weighs_tiles: whether their tiles are chosen by what each of them costs; where everything
            fits at once it is one pass.
        max_candidates: most policies that all compute a row which any of them may play, so that
            rows need not be sorted (`policies/policy_group.py`); 0 to sort whatever is drawn.
        layout: how the members of one device are trained (`devices/compiled_runs.py`).
        compiler_options: of what runs often.
        options_of_many: further ones, where there are several devices, used or not.
        options_of_once: instead of both, of what runs once.
    """

    copies_inputs: bool
    micro_batch_rows: int
    recurrent_micro_batch_rows: int
    part_rows: int | None
    recurrent_part_rows: int | None
    block_rows: int
    rows_last: bool
    packs_in_place: bool
    max_steps_in_turn: int
    recomputes_steps: bool
    sums_kernel_gradient_once: bool
    fixed_trip_counts: bool
    picks_by_comparing: bool
    max_actions_in_turn: int
    unrolls_integrals: bool
    packs: bool
    fuses_networks: bool
    credit_unroll: int
    values_ends_at_once: bool
    max_pass_rows: int
    weighs_tiles: bool
    max_candidates: int
    layout: Layout
    compiler_options: dict[str, Any] = field(default_factory=dict)
    options_of_many: dict[str, Any] = field(default_factory=dict)
    options_of_once: dict[str, Any] = field(default_factory=dict)


CPU = Tuning(
    copies_inputs=True,
    micro_batch_rows=512,
    recurrent_micro_batch_rows=768,
    part_rows=None,
    recurrent_part_rows=None,
    block_rows=32,
    rows_last=False,
    packs_in_place=False,
    max_steps_in_turn=32,
    recomputes_steps=False,
    sums_kernel_gradient_once=True,
    fixed_trip_counts=False,
    picks_by_comparing=False,
    max_actions_in_turn=0,
    unrolls_integrals=False,
    packs=False,
    fuses_networks=False,
    credit_unroll=1,
    values_ends_at_once=False,
    max_pass_rows=1024,
    weighs_tiles=True,
    max_candidates=0,
    layout="in_turn",
    # XLA keeps to vectors of 256 bits where a core has 512; others are not affected.
    compiler_options={"xla_cpu_prefer_vector_width": 512},
    # CPU devices are cores here, so none may split its operations.
    options_of_many={"xla_cpu_multi_thread_eigen": False},
    # Half the compilation, for code that is slower.
    options_of_once={"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1},
)
GPU = Tuning(
    copies_inputs=False,
    micro_batch_rows=262144,
    recurrent_micro_batch_rows=262144,
    part_rows=512,
    recurrent_part_rows=4096,
    block_rows=32,
    rows_last=False,
    packs_in_place=False,
    # One kernel forward and one backward; a tree has one for each of its levels.
    max_steps_in_turn=32,
    recomputes_steps=True,
    sums_kernel_gradient_once=False,
    fixed_trip_counts=True,
    picks_by_comparing=True,
    max_actions_in_turn=16,
    unrolls_integrals=True,
    packs=True,
    fuses_networks=True,
    credit_unroll=8,
    values_ends_at_once=True,
    max_pass_rows=262144,
    weighs_tiles=False,
    max_candidates=4,
    layout="side_by_side",
    # XLA joins the first layers of actor and critic to one product, whose halves then each take a
    # kernel to add a bias; apart they add it themselves.
    compiler_options={"xla_gpu_dot_merger_threshold_mb": 0},
)
# Its vectors are of 128 rows, and what it launches costs little.
TPU = replace(
    GPU,
    micro_batch_rows=65536,
    part_rows=None,
    recurrent_part_rows=None,
    block_rows=128,
    rows_last=True,
    packs_in_place=True,
    max_steps_in_turn=0,
    max_actions_in_turn=0,
    unrolls_integrals=False,
    fuses_networks=False,
    credit_unroll=1,
    max_pass_rows=32768,
    max_candidates=8,
    compiler_options={},
)


def tuning() -> Tuning:
    """Return the choices of the backend that programs are compiled for."""
    return {"cpu": CPU, "tpu": TPU}.get(backend(), GPU)
