"""A process that trains one side of one scenario and records it; `processes.run_side` starts it.

python -m ray_baseline.child '{"side": "ours", "scenario": "crypto", "rllib": {}, "seconds": 30,
"seed": 0, "started": 1700000000.0, "record": "FILE"}'
"""

import dataclasses
import importlib
import json
import os
import sys
import time
from contextlib import closing

from jaxmarl_ppo.machine import awake
from ray_baseline.processes import session_cpu_s
from ray_baseline.scenarios import SCENARIOS

# By side the module and its function.
TRAIN = {
    "ours": ("ray_baseline.our_side", "train"),
    "twins": ("ray_baseline.our_side", "train_on_twins"),
    "slow_env": ("ray_baseline.our_side", "train_by_preset"),
    "rllib": ("ray_baseline.rllib_side", "train"),
}


def main(request: str) -> None:
    """Write a line of JSON for every window of training, until time is up."""
    asked = json.loads(request)
    scenario = SCENARIOS[asked["scenario"]]
    settings = dataclasses.replace(scenario.rllib, **asked["rllib"])
    scenario = dataclasses.replace(scenario, rllib=settings)
    is_compiled = asked["side"] == "ours"
    if asked["side"] != "rllib":
        from jaxmarl_ppo import use_cpu_cores

        use_cpu_cores()
    module, function = TRAIN[asked["side"]]
    train = getattr(importlib.import_module(module), function)
    with (
        # Each side as it is fastest: RLlib's many processes are 4 to 11 percent slower with it.
        awake.cores_awake(is_compiled and awake.is_virtual() and not awake.has_cpu_quota()),
        open(asked["record"], "w") as record,
        closing(train(scenario, asked["seed"])) as windows,
    ):
        used_s = session_cpu_s(os.getsid(0))
        for window in windows:
            wall_s = time.time() - asked["started"]
            before_s, used_s = used_s, session_cpu_s(os.getsid(0))
            times = {"wall_s": wall_s, "cpu_s": used_s - before_s}
            record.write(json.dumps({**times, **window}) + "\n")
            record.flush()
            if wall_s > asked["seconds"]:
                break


if __name__ == "__main__":
    main(sys.argv[1])
