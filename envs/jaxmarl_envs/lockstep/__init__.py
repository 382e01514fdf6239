"""Environments of other libraries, stepped beside their originals and compared number by number.

>>> env, params = jaxmarl_envs.make("jumanji", env_id="Connector-v3")
>>> jaxmarl_envs.check_against_original(env, params)
"""

from jaxmarl_envs.lockstep.compare import LockstepReport, check_against_original
from jaxmarl_envs.lockstep.lookup import original_of
from jaxmarl_envs.lockstep.original import Original, Reported

__all__ = ["LockstepReport", "Original", "Reported", "check_against_original", "original_of"]
