"""Evaluation of crypto: how often the listeners name the goal."""

from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.statistics import mean_and_se


def report_crypto(evaluation: Evaluation) -> Report:
    """Report how often the listeners name the goal."""
    agents = evaluation.learner.env.agents
    accuracy = {
        agent: mean_and_se(evaluation.totals.metrics["accuracy"][:, agents.index(agent)])["mean"]
        for agent in ("bob_0", "eve_0")
    }
    headline = (
        f"bob_0 names the goal at {100 * accuracy['bob_0']:.1f} % of the steps, "
        f"eve_0 at {100 * accuracy['eve_0']:.1f} % (a perfect cipher: 100 % and 50 %)"
    )
    return {"accuracy": accuracy, "headline": [headline]}
