"""The precision of networks' products; everything else is always float32."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import jax

from jaxmarl_envs.backend import backend, local_devices

MatmulPrecision = Literal["float32", "tf32", "bfloat16"]
MATMUL_PRECISIONS: tuple[MatmulPrecision, ...] = get_args(MatmulPrecision)
# JAX's names. By default a GPU uses TF32, and a TPU rounds to bfloat16. XLA may compile JAX's
# "tensorfloat32" to float32 on a GPU, and does with JAX 0.10.
_JAX_NAMES = {"float32": "float32", "tf32": "TF32_TF32_F32"}
# The first NVIDIA GPUs with TF32.
_TF32_CAPABILITY = 8.0


def check_precision(precision: str) -> None:
    """Reject a precision that the target machine does not support.

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
    """Return whether the target machine multiplies in TF32."""
    if backend() != "gpu":
        return False
    capability = str(getattr(local_devices()[0], "compute_capability", ""))
    # Such as 7.5; other vendors' have names, and XLA knows their abilities.
    is_number = capability.replace(".", "", 1).isdigit()
    return not is_number or float(capability) >= _TF32_CAPABILITY


def at_precision(precision: str) -> AbstractContextManager[None]:
    """Set the precision of all products traced within, and of their gradients.

    A CPU only supports float32. For bfloat16 layers round themselves, see `dot_general_in`.
    """
    if backend() == "cpu" or precision not in _JAX_NAMES:
        return nullcontext()
    return jax.default_matmul_precision(_JAX_NAMES[precision])
