"""Many runs: several at once, and searches over their configurations."""

import importlib.util

from jaxmarl_ppo.machine.extras import how_to_install

for _package in ("optuna", "cmaes"):
    if importlib.util.find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"a search needs {_package}: {how_to_install('optuna')}", name=_package
        )
