"""Jobs of several processes on this machine: how tests start them, and what each one runs."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 240.0
ROOT = Path(__file__).resolve().parents[2]
NUM_ENVS, NUM_STEPS = 8, 8


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment(**more):
    """Variables of a process that compiles as the tests do, in a place that all may write to."""
    paths = [str(ROOT), str(ROOT / "envs"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        **more,
    }


class Job:
    """Processes that each run this file, or a code that is given."""

    def __init__(self, place, count, plan=None, code=None, plans=(), variables=None):
        self.processes = []
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        coordinator = f"127.0.0.1:{free_port()}"
        for index in range(count):
            own = dict(plan or {}) | dict(plans[index] if plans else {})
            own |= {"coordinator": coordinator, "count": count, "index": index}
            command = [sys.executable, "-c", code] if code else [sys.executable, __file__]
            said = (place / f"{index}.txt").open("wb")
            with said:
                self.processes.append(
                    subprocess.Popen(
                        [*command, json.dumps(own)],
                        env=environment(**(variables(index) if variables else {})),
                        stdout=said,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self):
        """Wait for all; returns their exit statuses."""
        deadline = time.monotonic() + TIMEOUT_S
        try:
            return [p.wait(max(0.1, deadline - time.monotonic())) for p in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def said(self, index):
        return (self.place / f"{index}.txt").read_text(errors="replace")

    def wait_for(self, condition):
        """Wait until something has come about while all processes go on."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            dead = [index for index, p in enumerate(self.processes) if p.poll() is not None]
            assert not dead, self.said(dead[0])
            assert time.monotonic() < deadline
            time.sleep(0.02)


def config(num_iterations, **kwargs):
    """The configuration of a tiny run."""
    import jaxmarl_ppo as jp

    return jp.TrainConfig(
        total_env_steps=num_iterations * NUM_ENVS * NUM_STEPS,
        num_envs=NUM_ENVS,
        num_steps=NUM_STEPS,
        log_interval=2,
        mapping="per_agent",
        default_policy=jp.PolicySpec(network=jp.MLP(hidden_sizes=(8,))),
        default_ppo=jp.PPOConfig(num_epochs=2, num_minibatches=2),
        **{"num_devices": 2, **kwargs},
    )


def train(run_dir, num_iterations, fails=False, **kwargs):
    """Train a tiny run."""
    import jaxmarl_envs
    import jaxmarl_ppo as jp

    def fail(entry):
        raise ValueError("nothing works")

    if "evaluation" in kwargs:
        kwargs["evaluation"] = jp.EvaluationConfig(**kwargs["evaluation"])
    env, params = jaxmarl_envs.make("crypto")
    callbacks = [fail] if fails else []
    trainer = jp.Trainer(
        env, params, config(num_iterations, **kwargs), run_dir, progress=False, callbacks=callbacks
    )
    return trainer.train()


def main():
    """Be a process of a job."""
    plan = json.loads(sys.argv[1])
    from jaxmarl_ppo import join_processes, use_cpu_cores

    use_cpu_cores(plan.pop("cores", 1))
    job = join_processes(plan.pop("coordinator"), plan.pop("count"), plan.pop("index"))
    if plan.pop("resumes", False):
        from jaxmarl_ppo import Trainer

        total = plan.pop("num_iterations") * NUM_ENVS * NUM_STEPS
        run_dir = plan.pop("run_dir")
        result = Trainer.resume(run_dir, total_env_steps=total, progress=False, **plan).train()
    else:
        result = train(**plan)
    print(f"process {job.index} came to {result}")


if __name__ == "__main__":
    main()
