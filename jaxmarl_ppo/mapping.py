"""Which policy plays which agent."""

from collections.abc import Mapping
from dataclasses import dataclass

SHARED, PER_AGENT = "shared", "per_agent"


@dataclass(frozen=True)
class PolicyMapping:
    """A fixed assignment of policies to agent slots."""

    names: tuple[str, ...]  # K policy names
    slot_policy: tuple[int, ...]  # A indices into `names`


def make_mapping(policies: str | Mapping[str, str], agents: tuple[str, ...]) -> PolicyMapping:
    """Resolve a mapping given by the user.

    Args:
        policies: `"shared"` (one policy, named `shared`, plays every agent), `"per_agent"` (each
            agent has a policy of its own name), or a table from agent name to policy name that
            names every agent.
        agents: the environment's agents.

    Raises:
        ValueError: an unknown word, an unknown agent or an agent without a policy.
    """
    if isinstance(policies, str):
        if policies == SHARED:
            return PolicyMapping((SHARED,), (0,) * len(agents))
        if policies == PER_AGENT:
            return PolicyMapping(agents, tuple(range(len(agents))))
        raise ValueError(
            f"unknown policy mapping {policies!r}; valid: {SHARED!r}, {PER_AGENT!r}, "
            "or a table from agent to policy"
        )
    for agent in policies:
        if agent not in agents:
            raise ValueError(
                f"the policy mapping names the unknown agent {agent!r}; "
                f"the agents are {', '.join(agents)}"
            )
    missing = [agent for agent in agents if agent not in policies]
    if missing:
        raise ValueError(
            f"the policy mapping gives no policy to {', '.join(missing)}; name one of: "
            f"{', '.join(sorted(set(policies.values()))) or 'any policy'}"
        )
    names = tuple(dict.fromkeys(policies[agent] for agent in agents))
    return PolicyMapping(names, tuple(names.index(policies[agent]) for agent in agents))
