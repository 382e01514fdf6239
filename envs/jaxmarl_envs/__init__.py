"""Pure-JAX multi-agent environments with a fixed agent axis.

>>> env, params = jaxmarl_envs.make("tic_tac_toe")
>>> obs, state = env.reset(key, params)
>>> obs, state, reward, terminated, truncated, info = env.step(key, state, action, params)
"""

from jaxmarl_envs.check import check_env, quick_check
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.permission import ask_permission
from jaxmarl_envs.registry import all_names, installed_names, make, names, register
from jaxmarl_envs.spaces import Box, Discrete

__all__ = [
    "Box",
    "Discrete",
    "MultiAgentEnv",
    "Observation",
    "all_names",
    "ask_permission",
    "check_env",
    "installed_names",
    "make",
    "names",
    "quick_check",
    "register",
]
