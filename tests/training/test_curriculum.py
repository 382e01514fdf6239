"""Numbers that change while a run goes on: by stages of a curriculum, and by callbacks."""

import dataclasses

import numpy as np
import pytest
from lamps import (
    CONFIG,
    NUM_ENVS,
    NUM_STEPS,
    LampParams,
    Lamps,
    Rounds,
    assert_same,
    make_trainer,
    read_entries,
    without_clock,
)

from jaxmarl_envs.check import EnvContractError
from jaxmarl_envs.spaces import Box
from jaxmarl_envs.toy import RememberCue
from jaxmarl_ppo import Callback, CallbackError, Choices, Stage, TrainConfig, Trainer
from jaxmarl_ppo.config.pbt import PbtConfig
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig, ObjectiveConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.runs.checkpoint_arrays import to_arrays
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.manifest import read_position

PER_ITERATION = NUM_ENVS * NUM_STEPS
PAYS, SHINES = "env.params.pays", "env.params.shines"
ENDS_AT = {n: f"env_steps >= {n * PER_ITERATION}" for n in range(1, 10)}
SAVES = CheckpointConfig(every_minutes=None)


def train(folder, curriculum, params=None, callbacks=(), **changes):
    changes = {"log_interval": 1, "curriculum": tuple(curriculum), **changes}
    return make_trainer(folder, params, callbacks=callbacks, **changes).train()


def iterations(count):
    return {"total_env_steps": count * PER_ITERATION}


def stages_of(result):
    return [entry["curriculum"]["stage"] for entry in result.history]


def same_run(first, second):
    assert without_clock(first.history) == without_clock(second.history)
    assert_same(first.state.replace(key=()), second.state.replace(key=()))
    assert first.state.key == second.state.key


# The first stage ends by a condition, the second by its length, and the last has no values.
STAGES = (
    Stage({PAYS: 3.0}, advance_when=ENDS_AT[2]),
    Stage({PAYS: 2.0, "default_ppo.gamma": 0.5}, max_env_steps=3 * PER_ITERATION),
    Stage({}),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole") / "run", STAGES)


def test_a_stage_has_its_own_numbers_from_its_first_step_on(whole):
    assert stages_of(whole) == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    assert [entry.get("values") for entry in whole.history[1:6:2]] == [
        {PAYS: 3.0},
        {PAYS: 2.0, "default_ppo.gamma": 0.5},
        None,
    ]
    # A metric is what each agent earned: the pay for every right switch, of five in a life.
    for entry in whole.history:
        pay = entry.get("values", {}).get(PAYS, 1.0)
        lit = np.array([entry["agents"][name]["lit"] for name in Lamps.agents])
        best = 5 * np.maximum(pay, _pay_before(whole, entry))
        assert np.all(lit <= best)
        assert np.all(lit > 0.0)


def _pay_before(result, entry):
    index = max(0, entry["iteration"] - 2)
    return result.history[index].get("values", {}).get(PAYS, 1.0)


def test_the_first_stage_is_a_run_with_these_numbers(tmp_path):
    of_stage = train(tmp_path / "stage", STAGES, **iterations(2))
    alike = train(tmp_path / "alike", (), LampParams(pays=3.0), **iterations(2))
    assert_same(of_stage.population, alike.population)
    changed = dataclasses.replace(CONFIG.default_ppo, gamma=0.5)
    begins = (Stage({"gamma": 0.5}, max_env_steps=9 * PER_ITERATION), Stage({}))
    of_stage = train(tmp_path / "gamma", begins, **iterations(2))
    alike = train(tmp_path / "alike too", (), default_ppo=changed, **iterations(2))
    assert_same(of_stage.population, alike.population)
    assert_same(of_stage.state.training, alike.state.training)


def test_a_later_stage_changes_what_is_learnt(tmp_path, whole):
    only_pay = dataclasses.replace(STAGES[1], values={PAYS: 2.0})
    other = train(tmp_path / "run", (STAGES[0], only_pay, STAGES[2]))
    assert without_clock(other.history)[:2] == without_clock(whole.history)[:2]
    losses = [
        [entry["policies"]["bob_0"]["value_loss"] for entry in result.history]
        for result in (other, whole)
    ]
    assert losses[0][2] != losses[1][2]  # gamma differs from the third iteration on
    assert float(whole.state.training[0].hyperparams.gamma[0]) == pytest.approx(0.99)


def test_a_stage_can_be_left_for_the_one_before_it_but_not_too_early(tmp_path):
    forth = Stage(
        {PAYS: 2.0}, advance_when="bob_0.return_mean > -1", min_env_steps=3 * PER_ITERATION
    )
    back = Stage({}, return_when="agents/ann_0/return_mean > -1")
    result = train(tmp_path / "run", (forth, back))
    assert stages_of(result) == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("stopped_after", [1, 2, 4, 7])
def test_a_run_that_was_stopped_goes_on_in_its_stage(whole, tmp_path, stopped_after):
    folder = tmp_path / "run"
    until = (ENDS_AT[stopped_after],)
    train(folder, STAGES, checkpoints=SAVES, until=until)
    assert read_position(checkpoints_of(folder)[-1]).changes["stage"] == int(
        np.searchsorted([2, 5], stopped_after, side="right")
    )
    resumed = Trainer.resume(folder, env=Lamps(), progress=False, check_env=False, until=())
    same_run(resumed.train(), whole)


def test_a_longer_run_keeps_the_numbers_of_its_stage(tmp_path):
    schedule = dataclasses.replace(CONFIG.default_ppo, learning_rate=Linear(1e-2, 1e-3))
    folder = tmp_path / "run"
    stages = (STAGES[0], Stage(STAGES[1].values))
    train(folder, stages, default_ppo=schedule, checkpoints=SAVES, **iterations(4))
    longer = Trainer.resume(
        folder, env=Lamps(), progress=False, check_env=False, total_env_steps=5 * PER_ITERATION
    ).train()
    assert float(longer.state.training[0].hyperparams.gamma[0]) == 0.5
    assert longer.history[-1]["values"] == STAGES[1].values


@pytest.mark.rare
def test_seeds_have_stages_of_their_own(tmp_path):
    limit = 3.2
    stages = (
        Stage({PAYS: 1.5}, advance_when=f"ann_0.return_mean > {limit}"),
        Stage({"default_ppo.gamma": 0.5}),
    )
    group = train(tmp_path / "group", stages, num_seeds=2)
    for index, member in enumerate(group.members):
        seed = CONFIG.seed + index
        alone = train(tmp_path / f"alone-{seed}", stages, seed=seed, num_devices=1)
        assert stages_of(alone) == stages_of(member)
        found, expected = to_arrays(member.state), to_arrays(alone.state)
        for name in expected:
            # Without optimisation two programs may round a last bit differently.
            np.testing.assert_allclose(
                found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name
            )
    assert len({tuple(stages_of(member)) for member in group.members}) == 2
    means = np.mean([stages_of(member) for member in group.members], axis=0)
    assert stages_of(group) == means.tolist()
    differ = [0.0 < mean < 1.0 for mean in means]
    assert [not entry.get("values") for entry in group.history] == differ


def test_an_evaluation_can_end_a_stage(tmp_path):
    evaluation = EvaluationConfig(every_env_steps=2 * PER_ITERATION, episodes=2)
    last = Stage({})
    stages = (Stage({PAYS: 2.0}, advance_when="evaluation/agents/ann_0/length_mean >= 5"), last)
    result = make_trainer(
        tmp_path / "run",
        env=Rounds(),
        curriculum=stages,
        evaluation=evaluation,
        log_interval=1,
        **iterations(4),
    ).train()
    assert stages_of(result) == [0, 0, 1, 1]
    # Evaluations are of the environment as it was given.
    assert result.evaluations[0]["all"]["return_max"] <= 10.0


class Wide(Lamps):
    """Lamps whose space of observations depends on a parameter."""

    def observation_space(self, agent, params):
        return Box(0.0, float(params.shines), (2,))


def test_a_stage_that_changes_a_space_is_refused(tmp_path):
    stages = (Stage({SHINES: 2.0}, max_env_steps=PER_ITERATION), Stage({}))
    with pytest.raises(ValueError, match=r"values changes the observation_space of ann_0 from Box"):
        make_trainer(tmp_path / "run", env=Wide(), curriculum=stages)


def test_a_stage_whose_environment_is_invalid_is_refused(tmp_path):
    stages = (Stage({"env.params.delay": -3}, max_env_steps=PER_ITERATION), Stage({}))
    config = TrainConfig(log_interval=1, curriculum=stages)
    env = RememberCue()
    with pytest.raises(EnvContractError):
        Trainer(env, env.default_params, config, tmp_path / "run", progress=False)


def test_an_entry_that_began_in_another_stage_has_no_say(tmp_path):
    evaluation = EvaluationConfig(every_env_steps=3 * PER_ITERATION, episodes=2)
    stages = (
        Stage({PAYS: 2.0}, advance_when="evaluation.all.return_mean > -1"),
        Stage({PAYS: 3.0}, advance_when="ann_0.return_mean > -1"),
        Stage({}),
    )
    result = make_trainer(
        tmp_path / "run",
        env=Rounds(),
        curriculum=stages,
        evaluation=evaluation,
        log_interval=2,
    ).train()
    # The evaluation after three iterations ends the first stage, within the second entry's.
    assert [entry["iteration"] for entry in result.history] == [2, 4, 6, 8, 10]
    assert stages_of(result) == [0, 1, 1, 2, 2]


def test_what_a_curriculum_goes_by_cannot_be_changed_on_resuming(tmp_path):
    folder = tmp_path / "run"
    train(folder, STAGES, checkpoints=SAVES, until=("curriculum.stage >= 1",))
    options = {"env": Lamps(), "progress": False, "check_env": False}
    with pytest.raises(ValueError, match="a run cannot resume with another log_interval: it was 1"):
        Trainer.resume(folder, changes={"log_interval": 4}, **options)
    assert Trainer.resume(folder, until=(), **options).train().env_steps == 10 * PER_ITERATION


def _goes_up(**values):
    return (Stage(values, max_env_steps=PER_ITERATION), Stage({}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"curriculum": (Stage({PAYS: 2.0}),)}, "curriculum has one stage, which never ends"),
        (
            {"curriculum": (Stage({PAYS: 2.0}), Stage({}))},
            r"curriculum\[0\] never ends; set advance_when or max_env_steps",
        ),
        ({"curriculum": [3]}, r"curriculum\[0\] must be a Stage, got 3"),
        (
            {"curriculum": (dataclasses.replace(STAGES[0], return_when="a>1"), STAGES[2])},
            r"return_when='a>1' has no effect in curriculum\[0\]",
        ),
        ({"curriculum": STAGES[:2]}, "max_env_steps=96 has no effect in the last stage"),
        (
            {"curriculum": _goes_up(**{"env.params.pay": 2.0})},
            r"curriculum\[0\].values: env.params has no 'pay'; did you mean 'pays'\?",
        ),
        (
            {"curriculum": _goes_up(**{"env.params.life": 2.5})},
            r"curriculum\[0\].values.env.params.life must be a whole number from .*, got 2.5",
        ),
        (
            {"curriculum": _goes_up(**{"env.params.life": True})},
            "env.params.life must be a whole number from .*, got True",
        ),
        (
            {"curriculum": _goes_up(**{"env.params.life": 2**31})},
            "must be a whole number from -2147483648 to 2147483647, got 2147483648",
        ),
        (
            {"curriculum": _goes_up(**{PAYS: 2.0}), "log_interval": None},
            "curriculum needs log_interval",
        ),
        (
            {
                "curriculum": _goes_up(**{PAYS: 2.0}),
                "objective": ObjectiveConfig(measure="agents/ann_0/return_mean"),
            },
            "would compare stages with different parameters",
        ),
        (
            {
                "curriculum": (
                    STAGES[0],
                    dataclasses.replace(STAGES[0], advance_when="a>2"),
                    STAGES[2],
                )
            },
            r"curriculum\[1\] has the values of the stage before it",
        ),
        (
            {"curriculum": (Stage({PAYS: 2.0}, ENDS_AT[1], min_env_steps=10**9), Stage({}))},
            r"curriculum\[0\].min_env_steps=1000000000 is not reached within total_env_steps=320",
        ),
        (
            {
                "curriculum": _goes_up(gamma=0.5),
                "policies": {name: PolicySpec(ppo=CONFIG.default_ppo) for name in Lamps.agents},
                "default_policy": PolicySpec(),
                "default_ppo": PPOConfig(),
            },
            "default_ppo.gamma has no effect: all trained policies have a ppo of their own",
        ),
        ({"curriculum": _goes_up(gamma=2.0)}, r"curriculum\[0\]: gamma must be .*, got 2.0"),
        (
            {"curriculum": _goes_up(learning_rate=1e-3)},
            "curriculum has default_ppo.learning_rate, which has a schedule",
        ),
        (
            {"curriculum": _goes_up(log_barrier_coef=0.1)},
            "curriculum has default_ppo.log_barrier_coef, which is None",
        ),
        (
            {"curriculum": _goes_up(**{PAYS: 2.0}), "env_schedules": {"pays": Linear(1.0, 0.0)}},
            "curriculum has env.params.pays, which has a schedule in env_schedules",
        ),
        (
            {"curriculum": _goes_up(**{"policies.ann_0.ppo.gamma": 0.5})},
            "curriculum: policies has no 'ann_0'",
        ),
        (
            {
                "curriculum": _goes_up(**{"policies.ann_0.ppo.gamma": 0.5}),
                "policies": {"ann_0": PolicySpec()},
            },
            "policies.ann_0 has no ppo of its own",
        ),
        (
            {"curriculum": (dataclasses.replace(STAGES[0], advance_when="ann.x>1"), STAGES[2])},
            r"curriculum\[0\].advance_when names 'ann.x', which is not in the log",
        ),
        (
            {"curriculum": (dataclasses.replace(STAGES[0], advance_when="wall_s>1"), STAGES[2])},
            r"curriculum\[0\].advance_when names 'wall_s', which is not in the log",
        ),
        (
            {
                "curriculum": (
                    dataclasses.replace(STAGES[0], advance_when="evaluation.a>1"),
                    STAGES[2],
                )
            },
            "needs evaluations while training",
        ),
    ],
)
def test_a_curriculum_that_cannot_be_is_refused_before_anything_is_compiled(
    tmp_path, changes, message
):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stage({"num_envs": 3}), "values of a stage has 'num_envs', which cannot change"),
        (lambda: Stage({"ppo.num_epochs": 3}), "num_epochs, which cannot change during a run; val"),
        (lambda: Stage({"learnin_rate": 3}), "did you mean 'learning_rate'"),
        (lambda: Stage({"ppo.gama": 3}), "default_ppo has no 'gama'; did you mean 'gamma'"),
        (lambda: Stage({"gamma": 0.5, "ppo.gamma": 0.5}), "has default_ppo.gamma twice"),
        (lambda: Stage({PAYS: "much"}), "must be a finite number, got 'much'"),
        (lambda: Stage({PAYS: Linear(1, 0)}), "must be a finite number, got Linear"),
        (lambda: Stage([PAYS]), "must be a table from path to number"),
        (lambda: Stage({}, advance_when="fast"), "must be the name of a metric, one of >"),
        (lambda: Stage({}, advance_when=3), "must be a condition such as"),
        (lambda: Stage({}, min_env_steps=3), "min_env_steps=3 of a stage has no effect"),
        (
            lambda: Stage({}, "a>1", min_env_steps=3, max_env_steps=2),
            "max_env_steps=2 of a stage must be at least min_env_steps=3",
        ),
    ],
)
def test_a_stage_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.rare
def test_members_that_copy_each_other_copy_the_stage_too(tmp_path):
    pbt = {
        "num_seeds": 4,
        "pbt": PbtConfig({"default_ppo.gamma": Choices((0.8, 0.9))}, resample_probability=0.0),
        "objective": ObjectiveConfig(measure="evaluation/agents/ann_0/return_mean"),
        "evaluation": EvaluationConfig(every_env_steps=2 * PER_ITERATION, episodes=2),
        "log_interval": 2,
        "env": Rounds(),
    }
    with pytest.raises(ValueError, match=r"curriculum has default_ppo.gamma, but with pbt members"):
        make_trainer(tmp_path / "no", curriculum=STAGES, **pbt)
    stages = (
        Stage({PAYS: 1.5}, advance_when="ann_0.return_mean > 3.6", max_env_steps=6 * PER_ITERATION),
        Stage({}),
    )
    group = train(tmp_path / "group", stages, checkpoints=SAVES, until=(ENDS_AT[4],), **pbt)
    resumed = Trainer.resume(
        group.run_dir, env=Rounds(), progress=False, check_env=False, until=()
    ).train()
    unbroken = train(tmp_path / "unbroken", stages, **pbt)
    for own, other in zip(resumed.members, unbroken.members, strict=True):
        assert without_clock(own.history) == without_clock(other.history)
    assert_same(resumed.population, unbroken.population)
    pays = np.asarray(unbroken.state.env_params.pays)
    assert [1.5 if stages_of(m)[-1] == 0 else 1.0 for m in unbroken.members] == pays[:4].tolist()


class Raise(Callback):
    """Raises the pay once enough is earned, and lowers the entropy bonus."""

    def __init__(self, method="on_log"):
        self.method = method

    def on_start(self, run):
        self.control = run.control
        self.seen = [run.resumed_at, dict(run.control.values)]

    def on_log(self, entry):
        if self.method == "on_log" and entry["iteration"] in (2, 6):
            self.control.set("env_params.pays", 1.0 + entry["iteration"])
            self.control.set("entropy_coef", 0.02)

    def on_checkpoint(self, path):
        if self.method == "on_checkpoint":
            self.control.set(PAYS, 2.0)


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    return train(tmp_path_factory.mktemp("raised") / "run", (), callbacks=[Raise()])


def test_a_callback_changes_numbers_from_the_next_iteration_on(raised):
    values = [entry.get("values") for entry in raised.history]
    coef = {"default_ppo.entropy_coef": 0.02}
    assert values == [None] * 2 + [{PAYS: 3.0, **coef}] * 4 + [{PAYS: 7.0, **coef}] * 4
    assert float(raised.state.env_params.pays) == 7.0
    assert "curriculum" not in raised.history[-1]
    recorded = read_entries(raised.run_dir)
    assert [entry.get("values") for entry in recorded] == values


@pytest.mark.parametrize("stopped_after", [1, 3, 7])
def test_a_run_changed_by_callbacks_resumes_with_them(raised, tmp_path, stopped_after):
    folder = tmp_path / "run"
    until = (ENDS_AT[stopped_after],)
    train(folder, (), callbacks=[Raise()], checkpoints=SAVES, until=until)
    options = {"env": Lamps(), "progress": False, "check_env": False, "until": ()}
    if stopped_after > 1:
        with pytest.raises(ValueError, match=r"\(env.params.pays = .*\), and Raise is missing"):
            Trainer.resume(folder, **options)
    callback = Raise()
    same_run(Trainer.resume(folder, callbacks=[callback], **options).train(), raised)
    was = {1: {}, 3: {PAYS: 3.0}, 7: {PAYS: 7.0}}[stopped_after]
    assert callback.seen[0] == stopped_after * PER_ITERATION
    assert {path: x for path, x in callback.seen[1].items() if path == PAYS} == was


def test_a_run_can_go_on_without_the_callbacks_that_changed_it(tmp_path):
    folder = tmp_path / "run"
    train(folder, (), callbacks=[Raise()], checkpoints=SAVES, until=(ENDS_AT[3],))
    options = {"env": Lamps(), "progress": False, "check_env": False, "until": ()}
    result = Trainer.resume(folder, without_callbacks=True, **options).train()
    assert result.history[-1]["values"][PAYS] == 3.0
    with pytest.raises(ValueError, match="without_callbacks has no effect"):
        Trainer.resume(folder, without_callbacks=True, callbacks=[Raise()], **options)


def test_a_callback_changes_all_seeds(tmp_path):
    group = train(tmp_path / "run", (), callbacks=[Raise()], num_seeds=2, **iterations(4))
    for member in group.members:
        assert [e.get("values", {}).get(PAYS) for e in member.history] == [None, None, 3.0, 3.0]
    assert np.asarray(group.state.env_params.pays)[:2].tolist() == [3.0, 3.0]


def test_a_change_that_cannot_be_is_an_error_of_the_callback(tmp_path):
    class Sets(Callback):
        def __init__(self, path, value):
            self.change = path, value

        def on_start(self, run):
            run.control.set(*self.change)

    for path, value, message in (
        ("env.params.pay", 2.0, "env.params has no 'pay'; did you mean 'pays'"),
        ("gamma", 7.0, "gamma must be"),
        ("learning_rate", 1e-3, "which has a schedule"),
        ("num_envs", 3, "'num_envs', which cannot change during a run"),
        (SHINES, None, "must be a finite number"),
    ):
        with pytest.raises(CallbackError, match=message):
            train(tmp_path / f"run {path}", (), callbacks=[Sets(path, value)])
    with pytest.raises(CallbackError, match=r"env.params.pays belongs to the curriculum"):
        train(tmp_path / "clash", STAGES, callbacks=[Sets(PAYS, 2.0)])
    callback = Raise("on_checkpoint")
    with pytest.raises(CallbackError, match="got a call in on_checkpoint"):
        train(tmp_path / "late", (), callbacks=[callback], checkpoints=SAVES, **iterations(2))
    with pytest.raises(CallbackError, match="needs log_interval"):
        train(tmp_path / "clock", (), callbacks=[Raise()], log_interval=None, **iterations(2))
