"""In what the products of networks are computed; everything else is float32 always."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import jax

from jaxmarl_envs.backend import backend, local_devices

MatmulPrecision = Literal["float32", "tf32", "bfloat16"]
MATMUL_PRECISIONS: tuple[MatmulPrecision, ...] = get_args(MatmulPrecision)
# What JAX calls them. Left to itself a GPU takes TF32, and a TPU rounds to bfloat16; what JAX calls
# "tensorfloat32" XLA may compile to float32 on a GPU, and does with JAX 0.10.
_JAX_NAMES = {"float32": "float32", "tf32": "TF32_TF32_F32"}
# The first GPUs of NVIDIA's that know TF32.
_TF32_CAPABILITY = 8.0


def check_precision(precision: str) -> None:
    """Reject what products cannot be computed in by the machine that is compiled for.

    Raises:
        ValueError: If it is unknown, or TF32 where there is none.
    """
    if precision not in MATMUL_PRECISIONS:
        raise ValueError(
            f"unknown matmul_precision {precision!r}; valid: {', '.join(MATMUL_PRECISIONS)}"
        )
    if precision == "tf32" and not has_tf32():
        raise ValueError(
            f"matmul_precision='tf32' needs a GPU that has it (NVIDIA's from Ampere on), and this "
            f"is compiled for a {backend()}; valid here: float32, bfloat16"
        )


def has_tf32() -> bool:
    """Return whether the machine that is compiled for multiplies in TF32."""
    if backend() != "gpu":
        return False
    capability = str(getattr(local_devices()[0], "compute_capability", ""))
    # Such as 7.5; others than NVIDIA's have names, and XLA knows what they can.
    is_number = capability.replace(".", "", 1).isdigit()
    return not is_number or float(capability) >= _TF32_CAPABILITY


def at_precision(precision: str) -> AbstractContextManager[None]:
    """Have JAX compute all products that are traced meanwhile, and their gradients, so finely.

    A CPU knows float32 alone. In bfloat16 layers round by themselves, see `dot_general_in`.
    """
    if backend() == "cpu" or precision not in _JAX_NAMES:
        return nullcontext()
    return jax.default_matmul_precision(_JAX_NAMES[precision])
