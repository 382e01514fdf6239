#!/usr/bin/env bash
# Ray 2.60.0: RLlib loses a player's last transition where a rollout fragment ends near the end of a
# game, unless the player gets an observation at its end.
#
# Tic-tac-toe, a player for each side. `step` returns the observation of whoever moves next; at the
# end of a game either that of both players, or only that of the one who did not move. The mover's
# reward is in `step`'s dictionary of rewards in both cases. Random moves, one environment, 8,000
# moves. `lost` are the last transitions of players that are in no sampled fragment, which should be
# none. The rewards of a game add up to 0, and so should its return, the mean over the last games.
# All five play the same moves:
#
#     both observe the end, fragments of 1: lost 0 of 2100, mean return 0.00
#     both observe the end, fragments of 10: lost 0 of 2100, mean return 0.00
#     one observes the end, fragments of 1: lost 1050 of 2100, mean return -0.87
#     one observes the end, fragments of 10: lost 102 of 2100, mean return -0.08
#     one observes the end, fragments of 40: lost 29 of 2100, mean return -0.03
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    'ray[rllib]==2.60.0' torch==2.13.0
cat >"$place/try.py" <<'PY'
import numpy as np
from gymnasium.spaces import Box, Discrete
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

LINES = np.array([*np.arange(9).reshape(3, 3), *np.arange(9).reshape(3, 3).T, (0, 4, 8), (2, 4, 6)])
games = []


class Game(MultiAgentEnv):
    def __init__(self, config):
        super().__init__()
        self.both = config["both"]
        self.agents = self.possible_agents = ["x", "o"]
        self.observation_spaces = dict.fromkeys(self.agents, Box(-1, 1, (9,)))
        self.action_spaces = dict.fromkeys(self.agents, Discrete(9, seed=0))

    def reset(self, *, seed=None, options=None):
        self.board = np.zeros(9, np.float32)
        return {"x": self.board.copy()}, {}

    def step(self, actions):
        ((mover, action),) = actions.items()
        other, sign = ("o", 1) if mover == "x" else ("x", -1)
        free = np.flatnonzero(self.board == 0)
        self.board[free[action % len(free)]] = sign  # every action is legal
        won = (self.board[LINES] == sign).all(1).any()
        over = bool(won or len(free) == 1)
        observed = [mover, other] if over and self.both else [other]
        rewards = {mover: float(won), other: -float(won)} if over else {mover: 0.0}
        games.extend([mover] * over)
        ends = {"__all__": over}
        return {who: self.board.copy() for who in observed}, rewards, ends, {"__all__": False}, {}


def play(both, fragment, num_moves=8_000):
    games.clear()
    config = (
        PPOConfig()
        .environment(Game, env_config={"both": both}, disable_env_checking=True)
        .env_runners(num_env_runners=0, create_local_env_runner=True)
        .multi_agent(policies={"x", "o"}, policy_mapping_fn=lambda agent, *_, **__: agent)
        .debugging(log_level="ERROR", seed=0)
    )
    runner = MultiAgentEnvRunner(config=config)
    last = 0
    for _ in range(num_moves // fragment):
        for episode in runner.sample(num_timesteps=fragment, random_actions=True):
            for single in episode.agent_episodes.values():
                last += bool(single.is_terminated and len(single.get_actions()))
    mean = runner.get_metrics()["episode_return_mean"]
    mean = mean.peek() if hasattr(mean, "peek") else mean
    which = "both observe" if both else "one observes"
    lost = f"lost {2 * len(games) - last} of {2 * len(games)}"
    print(f"{which} the end, fragments of {fragment}: {lost}, mean return {mean:.2f}")


for both, fragment in ((True, 1), (True, 10), (False, 1), (False, 10), (False, 40)):
    play(both, fragment)
PY
found=$(cd "$place" && venv/bin/python -W ignore try.py 2>/dev/null)
expected="both observe the end, fragments of 1: lost 0 of 2100, mean return 0.00
both observe the end, fragments of 10: lost 0 of 2100, mean return 0.00
one observes the end, fragments of 1: lost 1050 of 2100, mean return -0.87
one observes the end, fragments of 10: lost 102 of 2100, mean return -0.08
one observes the end, fragments of 40: lost 29 of 2100, mean return -0.03"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
