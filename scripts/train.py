"""Train an environment from Python with its preset, then print an evaluation of the run.

    python scripts/train.py crypto --seed 1

does what `jaxmarl-ppo train` and `jaxmarl-ppo evaluate` do. Copy it to change what they cannot.
"""

import argparse
import dataclasses
import sys

import jaxmarl_envs
from jaxmarl_ppo import Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_run, format_report


def main() -> None:
    """Train, save under `runs/` and evaluate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("env", help="such as tic_tac_toe, crypto, shuttle_grid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total-env-steps", type=int, help="[the preset's]")
    args = parser.parse_args()
    use_cpu_cores()
    chosen = preset(args.env)
    env, env_params = jaxmarl_envs.make(args.env, **chosen.env_kwargs)
    config = dataclasses.replace(chosen.config, seed=args.seed)
    if args.total_env_steps is not None:
        config = dataclasses.replace(config, total_env_steps=args.total_env_steps)
    result = Trainer(env, env_params, config).train()
    print(format_report(evaluate_run(result.run_dir)))


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"error: {error}")
