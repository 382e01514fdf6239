"""What a run is to reach: its measure is known before anything is trained."""

import jax
import pytest

from jaxmarl_envs import make
from jaxmarl_ppo import EvaluationConfig, ObjectiveConfig, TrainConfig, Trainer, make_learner
from jaxmarl_ppo.evaluation.scenarios.registry import matches
from jaxmarl_ppo.runs.log import scalars
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Objective


@pytest.mark.parametrize(
    ("measure", "meant"),
    [
        ("agents/x/retrun_mean", "agents/x/return_mean"),
        ("all/return_men", "all/return_mean"),
        ("policies/shared/entropie", "policies/shared/entropy"),
        ("evaluation/all/return_meen", "evaluation/all/return_mean"),
        ("evaluation/agents/x/return_see", "evaluation/agents/x/return_se"),
        ("evaluation/exploitability/gredy", "evaluation/exploitability/greedy"),
        ("evaluation/opponents/random/x/return_men", "evaluation/opponents/random/x/return_mean"),
        ("evaluation/against/x", None),
    ],
)
def test_a_misspelt_measure_is_found_at_the_start(tmp_path, measure, meant):
    env, params = make("tic_tac_toe")

    def begin(measure):
        evaluation = EvaluationConfig(every_env_steps=64, opponents=("random",))
        objective = ObjectiveConfig(measure=measure)
        config = TrainConfig(num_envs=4, num_steps=8, evaluation=evaluation, objective=objective)
        return Trainer(env, params, config, tmp_path / "run", progress=False, check_env=False)

    with pytest.raises(ValueError, match="is not among the metrics of") as caught:
        begin(measure)
    assert not (tmp_path / "run").exists()
    assert (f"did you mean {meant!r}?" in str(caught.value)) == (meant is not None)
    if meant is not None:
        begin(meant)


@pytest.mark.parametrize("name", ["kuhn_poker", "tic_tac_toe"])
def test_evaluations_report_the_numbers_that_are_listed(name):
    env, params = make(name)
    config = TrainConfig(
        num_envs=4, num_steps=8, evaluation=EvaluationConfig(every_env_steps=64, episodes=2)
    )
    learner = make_learner(env, params, config)
    evaluator = MeanwhileEvaluator(learner, config)
    population = jax.jit(learner.init)(jax.random.key(0)).population
    reported = dict(scalars(evaluator.evaluate(population, 1)))
    listed = evaluator.numbers()
    assert not [path for path in reported if not any(matches(path, each) for each in listed)]
    # Numbers that only some episodes have.
    rare = ("lives_mean", "episodes", "unfinished")
    needed = [each for each in listed if each.rpartition("/")[2] not in rare]
    assert not [each for each in needed if not any(matches(path, each) for path in reported)]


@pytest.mark.parametrize(
    ("goal", "worse", "better"), [("maximise", 0.4, 0.6), ("minimise", 0.6, 0.4)]
)
def test_a_measure_of_nan_is_neither_the_best_nor_worse(goal, worse, better):
    env, params = make("tic_tac_toe")
    objective = ObjectiveConfig(measure="all/return_mean", goal=goal, patience=2)
    config = TrainConfig(num_envs=4, num_steps=8, objective=objective)
    tracked = Objective(config, make_learner(env, params, config))
    values = (float("nan"), 0.5, float("nan"), worse, float("nan"), better, worse)
    best = [tracked.see_entry({"all": {"return_mean": value}}) for value in values]
    assert best == [None, 0.5, None, None, None, better, None]
    assert tracked.best == better
    assert tracked.stopped_by is None
    tracked.see_entry({"all": {"return_mean": worse}})
    assert tracked.stopped_by == f"all/return_mean was not better than {better:g} 2 times in a row"
