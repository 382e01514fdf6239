#!/usr/bin/env bash
# VMAS 1.5.2 with torch 2.13.0: what happens in one environment of a batch can depend on another one.
#
# The environments of a batch are taken to be separate. But whether two entities collide is first
# asked of the whole batch: if in no environment their circumscribed circles meet, the pair is left
# out. A contact begins 0.0067 outside of these circles at the end of a line. So a ball at rest at
# that distance from the end of a wall is pushed away only if in another environment the ball is near
# the wall. The position of the ball after one step, by where the other environment's ball is:
#
#     other ball far: 0.6050, other ball near: 0.6068
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    vmas==1.5.2 torch==2.13.0 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import torch
import vmas
from vmas.simulator.core import Agent, Landmark, Line, Sphere, World
from vmas.simulator.scenario import BaseScenario


class Wall(BaseScenario):
    def make_world(self, batch_dim, device, **kwargs):
        world = World(batch_dim, device)
        world.add_agent(Agent("ball", shape=Sphere(0.1)))
        world.add_landmark(Landmark("wall", collide=True, shape=Line(length=1.0)))
        return world

    def reset_world_at(self, env_index=None):
        pass

    def observation(self, agent):
        return agent.state.pos

    def reward(self, agent):
        return torch.zeros(self.world.batch_dim)


def play(other_x):
    """Return where the ball of environment 0 is after a step without a force."""
    env = vmas.make_env(Wall(), num_envs=2)
    env.agents[0].set_pos(torch.tensor([[0.605, 0.0], [other_x, 0.0]]), batch_index=None)
    observations, *_ = env.step([torch.zeros(2, 2)])
    return observations[0][0, 0].item()


print(f"other ball far: {play(5.0):.4f}, other ball near: {play(0.3):.4f}")
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py)
expected='other ball far: 0.6050, other ball near: 0.6068'
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
