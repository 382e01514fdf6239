"""Checks of the contract that environments keep, with one sentence for what is broken."""

from jaxmarl_envs.check.full import check_env
from jaxmarl_envs.check.quick import quick_check
from jaxmarl_envs.check.types import EnvContractError, EnvReport

__all__ = ["EnvContractError", "EnvReport", "check_env", "quick_check"]
