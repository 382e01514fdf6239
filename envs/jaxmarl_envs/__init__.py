"""Pure-JAX multi-agent environments with a fixed agent axis.

>>> env, params = jaxmarl_envs.make("tic_tac_toe")
>>> obs, state = env.reset(key, params)
>>> obs, state, reward, terminated, truncated, info = env.step(key, state, action, params)

Names are imported when they are first used, so that `import jaxmarl_envs` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmarl_envs.actions import Action, ActionLayout
    from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
    from jaxmarl_envs.adapters.incoming.gymnax import from_gymnax
    from jaxmarl_envs.adapters.incoming.jaxmarl import from_jaxmarl
    from jaxmarl_envs.adapters.incoming.jumanji import from_jumanji
    from jaxmarl_envs.adapters.incoming.openspiel import from_openspiel
    from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
    from jaxmarl_envs.adapters.incoming.pgx import from_pgx
    from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
    from jaxmarl_envs.adapters.incoming.vmas import from_vmas
    from jaxmarl_envs.check.full import check_env
    from jaxmarl_envs.check.quick import quick_check
    from jaxmarl_envs.core import MultiAgentEnv, Observation
    from jaxmarl_envs.lockstep.compare import check_against_original
    from jaxmarl_envs.permission import ask_permission
    from jaxmarl_envs.registry import all_names, installed_names, make, names, register
    from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple

__version__ = "0.1.0"  # of the trainer, too

_NAMES = {  # by the module that has them
    "actions": "Action ActionLayout",
    "adapters.incoming.gymnasium": "from_gymnasium",
    "adapters.incoming.gymnax": "from_gymnax",
    "adapters.incoming.jaxmarl": "from_jaxmarl",
    "adapters.incoming.jumanji": "from_jumanji",
    "adapters.incoming.openspiel": "from_openspiel",
    "adapters.incoming.pettingzoo": "from_pettingzoo",
    "adapters.incoming.pgx": "from_pgx",
    "adapters.incoming.rllib": "from_rllib_env",
    "adapters.incoming.vmas": "from_vmas",
    "check.full": "check_env",
    "check.quick": "quick_check",
    "core": "MultiAgentEnv Observation",
    "lockstep.compare": "check_against_original",
    "permission": "ask_permission",
    "registry": "all_names installed_names make names register",
    "spaces": "Box Discrete MultiDiscrete Tuple",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Action",
    "ActionLayout",
    "Box",
    "Discrete",
    "MultiAgentEnv",
    "MultiDiscrete",
    "Observation",
    "Tuple",
    "__version__",
    "all_names",
    "ask_permission",
    "check_against_original",
    "check_env",
    "from_gymnasium",
    "from_gymnax",
    "from_jaxmarl",
    "from_jumanji",
    "from_openspiel",
    "from_pettingzoo",
    "from_pgx",
    "from_rllib_env",
    "from_vmas",
    "installed_names",
    "make",
    "names",
    "quick_check",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
