"""Benchmark of training speed on this machine, the same as `jaxmarl-ppo bench`.

python scripts/benchmark.py --env crypto --mapping per_agent --num-envs 256 --num-steps 128 --json
"""

import sys

from jaxmarl_ppo import use_cpu_cores
from jaxmarl_ppo.cli.bench import main

if __name__ == "__main__":
    use_cpu_cores()
    try:
        main(sys.argv[1:], prog="benchmark.py")
    except ValueError as error:
        sys.exit(f"error: {error}")
