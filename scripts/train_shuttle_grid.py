"""Shuttles with one shared LSTM from Python: train with the preset, then print the deliveries."""

import argparse
import dataclasses

import jaxmarl_envs
from jaxmarl_ppo import Trainer, preset, use_cpu_cores
from jaxmarl_ppo.evaluation import evaluate_run, format_report


def main() -> None:
    """Train, save under `runs/` and evaluate."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = preset("shuttle_grid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--total-env-steps", type=int, default=chosen.config.total_env_steps)
    args = parser.parse_args()
    config = dataclasses.replace(chosen.config, **vars(args))
    env, env_params = jaxmarl_envs.make("shuttle_grid", **chosen.env_kwargs)
    result = Trainer(env, env_params, config).train()
    print(format_report(evaluate_run(result.run_dir)))


if __name__ == "__main__":
    main()
