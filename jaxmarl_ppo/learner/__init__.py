"""The algorithm as pure functions: `TrainState` in, `TrainState` out."""

from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.learner.metrics import Metrics, merge
from jaxmarl_ppo.learner.summary import summarise

__all__ = ["Learner", "Metrics", "make_learner", "merge", "summarise"]
