"""From values to runs, and which of them share a compiled program."""

import dataclasses

import jax
import pytest
from lamps import Lamps

import jaxmarl_envs
from jaxmarl_ppo.config.mapping import Ensemble
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.search import Choices, Range
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner import build
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP
from jaxmarl_ppo.sweeps.candidates import Candidates
from jaxmarl_ppo.sweeps.program import choose_replica
from jaxmarl_ppo.sweeps.program_key import program_key

PPO = PPOConfig(num_minibatches=2)
SPEC = PolicySpec(network=MLP(hidden_sizes=(4,)))
CONFIG = TrainConfig(
    num_envs=4, num_steps=8, default_policy=SPEC, default_ppo=PPO, num_devices=1,
    objective=ObjectiveConfig("agents/x/return_mean"),
)  # fmt: skip


@pytest.fixture(scope="module")
def game():
    return jaxmarl_envs.make("tic_tac_toe", size=2, k=2)


def candidates(game, space, **changes):
    return Candidates(*game, dataclasses.replace(CONFIG, **changes), space)


def test_values_are_those_of_the_run(game):
    space = {
        "default_ppo.learning_rate": Range(1e-4, 1e-2),
        "default_policy.network": Choices([{"kind": "lstm", "lstm_size": 8}, "mlp"]),
        "policies.x.ppo.gamma": Range(0.5, 1.0),
        "policies.x.kind": Choices(["network", "snapshots"]),
    }
    made = candidates(game, space, mapping="per_agent").make(
        {
            "default_ppo.learning_rate": 2e-3,
            "default_policy.network": '{"kind": "lstm", "lstm_size": 8}',
            "policies.x.kind": "network",
            "policies.x.ppo.gamma": 0.75,
        }
    )
    assert made.config.default_ppo == dataclasses.replace(PPO, learning_rate=2e-3)
    assert made.config.default_policy.network == LSTM(lstm_size=8)
    assert made.config.policies["x"].ppo.gamma == 0.75
    assert made.learner.num_devices == 1


def test_parameters_of_the_environment_are_searched():
    env = Lamps()
    base = Candidates(env, env.default_params, CONFIG, {"env.params.life": Range(3, 9)})
    made = base.make({"env.params.life": 4})
    assert (made.env_params.life, made.env_params.fault_time) == (4, 17)
    wrong = Candidates(env, env.default_params, CONFIG, {"env.params.live": Range(3, 9)})
    with pytest.raises(ValueError, match=r"env.params has no 'live'; did you mean 'life'"):
        wrong.make({"env.params.live": 4})
    kwargs = Candidates(env, env.default_params, CONFIG, {"env.kwargs.size": Range(3, 9)})
    with pytest.raises(ValueError, match="searched of env has no 'kwargs'; valid: params"):
        kwargs.make({"env.kwargs.size": 4})


@pytest.mark.parametrize(
    ("space", "changes", "message"),
    [
        ({"default_ppo.gama": Range(0.5, 0.9)}, {}, "default_ppo has no 'gama'; did you mean"),
        (
            {"default_ppo.gamma": Range(0.5, 1.5)},
            {},
            r"reach default_ppo.gamma = 1.5, where default_ppo.gamma must be finite and lie in",
        ),
        (
            {"default_ppo.gamma": Range(0.5, 0.9), "num_envs": Choices([4, 0])},
            {},
            r"default_ppo.gamma = 0.5, num_envs = 0, where num_envs must be a whole number",
        ),
        ({"default_ppo.num_minibatches": Range(1, 1000)}, {}, "exceeds the .* rows of a rollout"),
        (
            {"mapping": Choices(["shared", "per_agent"])},
            {"objective": ObjectiveConfig("policies/shared/entropy")},
            "mapping = 'per_agent', where objective.measure=.* names 'shared' among the policies",
        ),
        (
            {"default_ppo.gamma": Range(0.5, 0.9)},
            {"evaluation": EvaluationConfig(every_env_steps=64, opponents=("nobody",))},
            "evaluation.opponents names 'nobody'",
        ),
    ],
)
def test_every_end_of_a_space_is_checked(game, space, changes, message):
    with pytest.raises(ValueError, match=message):
        candidates(game, space, **changes).check()


def test_a_space_whose_ends_are_sound_is_not_refused(game):
    space = {"default_ppo.gamma": Range(0.5, 1.0), "mapping": Choices(["shared", "per_agent"])}
    candidates(game, space).check()


def test_snapshots_that_are_exchanged_are_refused(game):
    pool = Snapshots("x", size=None, on_device=2, add_every=4, exchange_every=2)
    space = {"default_ppo.gamma": Range(0.5, 1.0)}
    mapping = {"x": "x", "o": ["x", "past"]}
    with pytest.raises(ValueError, match=r"do not all lie on the device \(on_device\)"):
        candidates(game, space, mapping=mapping, policies={"past": pool}).check()


def test_a_run_goes_to_the_device_that_has_the_least_to_do():
    assert [choose_replica(taken, 6, 3) for taken in ([], [0], [0, 3], [0, 1, 3], [3, 4, 5])] == [
        0,
        3,
        1,
        4,
        0,
    ]
    assert choose_replica([0, 1, 2, 4], 5, 3) == 3  # the sixth replica is nobody's


def key_of(game, **changes):
    return program_key(build.make_learner(*game, dataclasses.replace(CONFIG, **changes)))


def ppo(**changes):
    return {"default_ppo": dataclasses.replace(PPO, **changes)}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seed": 3},
        ppo(learning_rate=1e-4),
        ppo(gamma=0.5, gae_lambda=0.5, clip_eps=0.1, value_coef=1.0, entropy_coef=0.5),
        ppo(max_grad_norm=None),
        {"objective": ObjectiveConfig("agents/o/return_mean")},
        {"mapping": {"x": "shared", "o": "shared"}},
    ],
)
def test_numbers_share_a_program(game, changes):
    assert key_of(game, **changes) == key_of(game)
    assert hash(key_of(game, **changes)) == hash(key_of(game))


@pytest.mark.parametrize(
    "changes",
    [
        ppo(learning_rate=Linear(1e-3, 0.0)),  # two points instead of one
        ppo(gamma=Linear(0.5, 0.9)),
        ppo(num_epochs=2),
        ppo(num_minibatches=4),
        ppo(optimiser="sgd"),
        ppo(adam_eps=1e-3),
        ppo(normalise_advantages=False),
        ppo(discount_by="step"),
        ppo(value_clip="ppo2", value_clip_eps=0.2),
        {"default_policy": PolicySpec(network=MLP(hidden_sizes=(5,)))},
        {"default_policy": PolicySpec(network=MLP(hidden_sizes=(4,), activation="relu"))},
        {"default_policy": dataclasses.replace(SPEC, normalise_observations=True)},
        {"num_envs": 8},
        {"num_steps": 4},
        {"mapping": "per_agent"},
        {"mapping": {"x": ["shared", "other"], "o": "shared"}},
        {"stagger_starts": False},
        {"skip_nonfinite_updates": True},
        {"matmul_precision": "bfloat16"},
    ],
)
def test_what_is_compiled_does_not(game, changes):
    assert key_of(game, **changes) != key_of(game)


def test_draws_of_mappings_are_compared_by_what_they_draw(game):
    one, other = ({"x": {"a": w, "b": 1.0}, "o": "a"} for w in (1.0, 2.0))
    assert key_of(game, mapping=one) == key_of(game, mapping=dict(one))
    assert key_of(game, mapping=one) != key_of(game, mapping=other)
    assert key_of(game, mapping=Ensemble(2)) == key_of(game, mapping="ensemble:2")


def test_environments_are_the_same_if_they_are_one(game):
    assert key_of(game) != key_of(jaxmarl_envs.make("tic_tac_toe", size=2, k=2))


def test_the_key_tells_what_the_compiler_would(game):
    """Runs of one key have one program to the letter, and runs of two have two."""

    def program(**changes):
        learner = build.make_learner(*game, dataclasses.replace(CONFIG, **changes))
        state = jax.eval_shape(learner.init, jax.random.key(0))
        return key_of(game, **changes), jax.jit(learner.train_step).lower(state).as_text()

    base, number, shape = program(), program(**ppo(gamma=0.5)), program(**ppo(num_epochs=2))
    assert base == number
    assert (base[0] == shape[0], base[1] == shape[1]) == (False, False)
