"""Policies for use outside their runs.

Names are imported when they are first used: an exported policy acts with JAX and NumPy alone.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmarl_ppo.deploy.exported import ExportedPolicy, load_exported
    from jaxmarl_ppo.deploy.policy import Policy

_MODULES = {"ExportedPolicy": "exported", "Policy": "policy", "load_exported": "exported"}

__all__ = ["ExportedPolicy", "Policy", "load_exported"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
