"""One small course of events as an environment of every kind that comes in from plain Python."""

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env


class Plan:
    """Agents `a` and `b` act at every step; all are terminated at step `length`.

    Subclasses say otherwise. An environment of Gymnasium has `a` alone.
    """

    agents = ("a", "b")
    length = 5
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    actions = spaces.Discrete(2)

    def begin(self, seed):
        """Note that an episode begins."""

    def act(self, actions):
        """Note what agents do."""

    def see(self, agent, time):
        return np.array([time], np.float32)

    def pay(self, agent, time):
        return 1.0

    def tell(self, agent, time):
        return {}

    def ends(self, agent):
        return self.length

    # ---- As environments -------------------------------------------------------------------------

    def start(self, seed):
        self.time, self.alive = 0, list(self.agents)
        self.begin(seed)
        return self.row(self.see), self.row(self.tell)

    def row(self, function):
        return {agent: function(agent, self.time) for agent in self.alive}

    def advance(self, actions):
        """Return observations, rewards, which agents end, and infos."""
        self.act(actions)
        self.time += 1
        seen, infos = self.row(self.see), self.row(self.tell)
        rewards = {agent: self.pay(agent, self.time) for agent in self.agents}
        ended = {agent: self.time >= self.ends(agent) for agent in self.alive}
        self.alive = [agent for agent in self.alive if not ended[agent]]
        return seen, {a: r for a, r in rewards.items() if r is not None}, ended, infos


class Single(gymnasium.Env):
    def __init__(self, plan):
        self.plan = plan
        self.observation_space, self.action_space = plan.space, plan.actions

    def reset(self, *, seed=None, options=None):
        seen, infos = self.plan.start(seed)
        return seen["a"], infos["a"]

    def step(self, action):
        seen, rewards, ended, infos = self.plan.advance({"a": action})
        return seen["a"], rewards["a"], ended["a"], False, infos["a"]


class Parallel(ParallelEnv):
    def __init__(self, plan):
        self.plan, self.metadata = plan, {"name": "plan", "is_parallelizable": True}
        self.possible_agents, self.render_mode = list(plan.agents), None

    def observation_space(self, agent):
        return self.plan.space

    def action_space(self, agent):
        return self.plan.actions

    def reset(self, seed=None, options=None):
        found = self.plan.start(seed)
        self.agents = list(self.plan.alive)
        return found

    def step(self, actions):
        seen, rewards, ended, infos = self.plan.advance(actions)
        self.agents = list(self.plan.alive)
        return seen, rewards, ended, dict.fromkeys(ended, False), infos

    def close(self):
        pass


class InTurn(AECEnv):
    """Agents act one after another; a step of the plan is a round of all who live.

    Unlike PettingZoo's conversion, `rewards` also has those of agents that are gone.
    """

    def __init__(self, plan):
        super().__init__()
        self.plan, self.metadata = plan, {"name": "plan"}
        self.possible_agents, self.render_mode = list(plan.agents), None

    def observation_space(self, agent):
        return self.plan.space

    def action_space(self, agent):
        return self.plan.actions

    def reset(self, seed=None, options=None):
        self.seen, self.infos = self.plan.start(seed)
        self.agents, self.acted = list(self.plan.alive), {}
        self.agent_selection = self.agents[0]
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0.0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))

    def observe(self, agent):
        return self.seen[agent]

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self.acted[agent] = action
        self._clear_rewards()
        if len(self.acted) == len(self.agents):
            seen, rewards, self.terminations, self.infos = self.plan.advance(self.acted)
            self.seen, self.rewards, self.acted = {**self.seen, **seen}, rewards, {}
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        self._deads_step_first()


class Multi:
    def __init__(self, plan):
        self.plan, self.possible_agents = plan, list(plan.agents)
        self.observation_space, self.action_space = plan.space, plan.actions

    def reset(self, *, seed=None, options=None):
        return self.plan.start(seed)

    def step(self, actions):
        seen, rewards, ended, infos = self.plan.advance(actions)
        return seen, rewards, {**ended, "__all__": not self.plan.alive}, {"__all__": False}, infos


KINDS = {
    "gymnasium": (from_gymnasium, Single),
    "parallel": (from_pettingzoo, Parallel),
    "aec": (from_pettingzoo, lambda plan: parallel_to_aec(Parallel(plan))),
    "rllib": (from_rllib_env, Multi),
}


def bring_in(kind, plan, **options):
    """Bring an environment of a kind in, whose every object has a plan of its own."""
    bring, make = KINDS[kind]
    return bring(lambda: make(plan()), num_workers=0, **options)
