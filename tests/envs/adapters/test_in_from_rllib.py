"""Environments of RLlib's kind come in as they stand; none of this needs Ray."""

import copy
import random
import warnings

import jax
import numpy as np
import pytest
import rllib_envs
from gymnasium import spaces
from probe_envs import quick_jit, tiny_learner
from rllib_envs import Breaking, Duel, Former, Gamblers, Restless, Shuttles, Spawning, flat

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.user_code import HostEnvironmentError, UserCodeError
from jaxmarl_ppo import TrainConfig, Trainer
from jaxmarl_ppo.policies.population_file import POLICIES_FILE

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)


def here(make_fn, **options):
    return from_rllib_env(make_fn, num_workers=0, **options)


class Walk:
    """One game, step by step."""

    def __init__(self, env, seed=0):
        self.game = env.pool.make_game()
        self.frame = copy.deepcopy(self.game.reset(seed))

    def step(self, action):
        self.final, self.outcome, self.frame = copy.deepcopy(self.game.step(np.asarray(action)))
        return self.outcome


def who(mask):
    return np.flatnonzero(mask).tolist()


# ---- Who lives, acts and is paid -----------------------------------------------------------------


def test_only_those_observed_act_and_all_who_live_are_paid():
    env = here(Shuttles)
    assert env.agents == tuple("012345")
    walk = Walk(env)
    action = [0, 1, 2, 0, 1, 2]
    actors, paid = [], []
    for _ in range(6):
        actors.append(who(walk.frame.agent_mask))
        assert walk.frame.alive.all()
        paid.append(walk.step(action).reward.tolist())
    assert actors == [[*range(6)], [0, 3], [0, 1, 3, 4], [0, 2, 3, 5], [0, 1, 3, 4], [0, 3]]
    assert paid == [[t] * 6 for t in range(1, 7)]


def test_a_step_on_which_nobody_is_observed_passes():
    walk = Walk(here(Shuttles))
    walk.step([2] * 6)
    assert who(walk.frame.agent_mask) == []
    walk.step([0] * 6)
    walk.step([0] * 6)
    assert who(walk.frame.agent_mask) == [0, 1, 2, 3, 4, 5]
    assert walk.frame.features[3, 0] == np.float32(3.3)


def test_players_in_turn_are_paid_without_being_observed():
    env = here(Duel, max_actors=1)
    assert env.agents == ("0", "1")
    assert env.observation_space("0", ()).shape == (4,)
    walk = Walk(env)
    for move in range(4):
        assert who(walk.frame.agent_mask) == [move % 2]
        assert walk.frame.alive.all()
        assert who(walk.frame.action_mask[move % 2]) == [move % 3]
        outcome = walk.step([move % 3, move % 3])
        assert outcome.reward.tolist() == ([0, 0] if move < 3 else [-1, 1])
        assert outcome.terminated.tolist() == [move == 3] * 2
    assert not walk.frame.alive.any()


def test_agents_whose_ids_go_on_for_ever_take_slots():
    env = here(Spawning, max_agents={"car": 1, "bike": 2})
    assert env.agents == ("car", "bike_0", "bike_1")
    walk = Walk(env)
    cars, ends = [], []
    for _ in range(7):
        cars.append(walk.frame.features[0].tolist())
        assert walk.frame.alive.tolist() == [True, True, False]
        outcome = walk.step([0, 0, 0])
        ends.append(who(outcome.terminated))
    assert cars == [[0, 0], [0, 1], [0, 2], [3, 0], [3, 1], [3, 2], [6, 0]]
    assert ends == [[], [], [0], [], [], [0], [0, 1]]


def test_a_slot_that_is_taken_at_once_keeps_the_last_row_of_who_left():
    walk = Walk(here(Spawning, max_agents={"car": 1, "bike": 1}))
    for _ in range(3):
        outcome = walk.step([0, 0])
    assert outcome.terminated.tolist() == [True, False]
    assert outcome.reward[0] == 3
    assert walk.final.features[0].tolist() == [0, 3]
    assert walk.frame.features[0].tolist() == [3, 0]
    assert walk.final.alive.all()


def test_a_free_slot_is_taken_rather_than_one_that_became_free_now():
    walk = Walk(here(Spawning, max_agents={"car": 2, "bike": 1}))
    for _ in range(3):
        walk.step([0, 0, 0])
    assert walk.frame.alive.tolist() == [False, True, True]
    assert walk.frame.features[:2].tolist() == [[0, 3], [3, 0]]


def test_former_interfaces_come_in():
    walk = Walk(here(Former, flatten=True))
    for time_step in range(4):
        outcome = walk.step([0, 1])
        assert outcome.reward.tolist() == [1, 0]
        assert (who(outcome.terminated), who(outcome.truncated)) == (
            ([1], [0]) if time_step == 3 else ([], [])
        )
    assert walk.frame.features.argmax(-1).tolist() == [4, 4]


@pytest.mark.parametrize(
    ("make_fn", "options"),
    [
        (Shuttles, {"horizon": 12}),
        (Duel, {"max_actors": 1}),
        (Spawning, {"max_agents": 3}),
        (Spawning, {"max_agents": {"car": 1, "bike": 1}, "horizon": 5}),
        (Former, {}),
    ],
)
def test_the_contract_is_kept(make_fn, options):
    report = check_env(here(make_fn, **options), num_steps=14, num_envs=2)
    assert report.num_episodes >= 2


# ---- Chance --------------------------------------------------------------------------------------


def draws(env, num_steps=4):
    key = jax.random.split(jax.random.key(3), 5)
    obs, state = quick_jit(jax.vmap(env.reset_env, (0, None)))(key, ())
    step = quick_jit(env.step_batch)
    found = [obs.features]
    for _ in range(num_steps):
        obs, state, reward, *_ = step(key, state, np.zeros((5, 2), np.int32), ())
        found += [obs.features, reward]
    return jax.device_get(found)


def test_global_generators_belong_to_every_game_alone():
    here_draws, there = draws(here(Gamblers)), from_rllib_env(Gamblers, num_workers=2)
    jax.tree.map(np.testing.assert_array_equal, here_draws, draws(there))
    there.close()
    assert len(np.unique(here_draws[0])) == 20  # no two games, agents or numbers are alike


def test_the_program_around_keeps_its_own_generators():
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    expected = random.random(), np.random.rand()  # noqa: NPY002
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    draws(here(Gamblers))
    assert (random.random(), np.random.rand()) == expected  # noqa: NPY002


def test_what_cannot_be_repeated_is_told():
    with pytest.warns(UnrepeatableEnvironmentWarning, match="'Restless' does not do the same"):
        here(Restless)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnrepeatableEnvironmentWarning)
        here(Gamblers)


# ---- By name, and training -----------------------------------------------------------------------


def test_a_class_is_named_as_environments_are():
    options = {"env_config": {"length": 4}, "num_workers": 0, "horizon": 4}
    place = f"{rllib_envs.__file__}:Shuttles"
    env, _ = make("rllib", env_id=place, **options)
    assert env.name == "Shuttles"
    assert env.made_as == ("rllib", {"env_id": place, **options})
    again, _ = make(place, **options)
    assert again.agents == env.agents
    assert again.made_as == (place, options)


def test_six_shuttles_train_an_lstm_and_no_reward_is_lost():
    env = here(Shuttles, horizon=12)
    learner = tiny_learner(env, (), num_envs=2, num_steps=5, mapping="shared", memory=True)
    state = quick_jit(learner.init)(jax.random.key(0))
    step = quick_jit(learner.train_step)
    counted, waiting = 0.0, 0.0
    for _ in range(5):
        state, metrics = step(state)
        counted += float(np.sum(metrics.sums.reward))
        waiting -= float(np.sum(metrics.sums.reward_trained + metrics.sums.reward_uncredited))
    pending = float(np.sum(state.per_env.policy_groups[0].pending.reward_sum))
    # Two episodes and a step, in each of two environments, for six shuttles.
    assert counted == 2 * 6 * (2 * sum(range(1, 13)) + 1)
    assert counted + waiting == pytest.approx(pending)


# ---- What goes wrong -----------------------------------------------------------------------------


def train(how, num_workers, run_dir):
    env = from_rllib_env(lambda: Breaking({"how": how}), num_workers=num_workers, horizon=5)
    config = TrainConfig(total_env_steps=2 * 8 * 40, num_envs=2, num_steps=8, log_interval=1)
    try:
        Trainer(env, (), config, run_dir, progress=False).train()
    finally:
        env.close()


@pytest.mark.parametrize(
    ("how", "num_workers", "message"),
    [
        ("raise", 0, r"environment 'Breaking', number \d of the batch, step 3 of the episode of "
         r"seed \d+ raises KeyError: 'no such lane' \(.*rllib_envs.py, line \d+: raise KeyError"),
        ("raise", 2, "raises KeyError: 'no such lane'"),
        ("wide", 0, "agent 'b' observes .*: an array of shape"),
        ("exit", 2, "'Breaking': worker process . ended with status 3"),
    ],
)  # fmt: skip
def test_a_failure_is_a_sentence_and_what_was_learnt_is_kept(
    how, num_workers, message, tmp_path, caplog
):
    with pytest.raises(HostEnvironmentError, match=message) as caught:
        train(how, num_workers, tmp_path / "run")
    error = caught.value
    assert "environment steps are saved in" in error.sentence
    assert (tmp_path / "run" / POLICIES_FILE).is_file()
    assert "pure_callback failed" not in caplog.text
    assert "\n" not in error.sentence
    assert "jaxmarl_envs" not in error.trace
    if how == "raise":
        assert error.trace.rstrip().endswith("KeyError: 'no such lane'")
        assert len(str(error).splitlines()) < 12


class Strange:
    """Returns what it is told to."""

    def __init__(self, reset=None, step=None, observation=None, action=None):
        self._reset, self._step = reset, step
        if observation is not None:
            self.observation_space = observation
        if action is not None:
            self.action_space = action

    def reset(self, *, seed=None, options=None):
        return self._reset

    def step(self, action_dict):
        return self._step


ONE = {"a": np.zeros(2)}


@pytest.mark.parametrize(
    ("make_fn", "options", "message"),
    [
        (lambda: 3, {}, "the methods reset and step, .* but 3 has no reset"),
        (3, {}, "make_fn=3: give a function that makes an environment"),
        (Spawning, {}, r"ids have no end \('bike_0', .*max_agents=.* here these were 3"),
        (Spawning, {"max_agents": 0}, "max_agents=0: give a whole number of at least 1"),
        (Spawning, {"max_agents": {}}, "max_agents={}: give numbers by what ids begin with"),
        (Spawning, {"max_agents": {"car": True}}, r"max_agents\['car'\]=True: give a whole"),
        (Duel, {"max_actors": 3}, "max_actors=3: there are 2 agents"),
        (Duel, {"horizon": 0}, "horizon=0: give a whole number"),
        (lambda: Strange((np.zeros(2), {})), {}, r"reset returns observations .* make\(\"gymnas"),
        (lambda: Strange((ONE, {})), {}, "agent 'a' has no observation space; set observation_sp"),
        (lambda: Strange((ONE, {}), None, flat(2)), {}, "agent 'a' has no action space"),
        (
            lambda: Strange((ONE, {}), (ONE, {}), flat(2), spaces.Discrete(2)),
            {},
            r"step returns \(.*expected \(observations, rewards, terminateds, truncateds, infos",
        ),
        (lambda: Strange((ONE, {}), None, flat(2), 5), {}, "agent 'a': 5 is no space of Gymnasium"),
    ],
)
def test_what_cannot_come_in_is_refused_in_a_sentence(make_fn, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        here(make_fn, **options)
    assert "\n" not in str(caught.value)


def test_what_a_class_raises_while_it_is_tried_out_is_told_by_its_line():
    class Raising(Duel):
        def reset(self, *, seed=None, options=None):
            return {0: 1 / 0}, {}

    with pytest.raises(UserCodeError, match=r"'Raising', tried out .* raises ZeroDivisionError.*1"):
        here(Raising)


def test_one_more_than_there_are_slots_is_told():
    walk = Walk(here(Spawning, max_agents={"car": 1, "bike": 1}))
    walk.game.env._spawn = lambda: walk.game.env.born.update(car_98=3, car_99=3)
    walk.step([0, 0])
    walk.step([0, 0])
    message = r"'car_99' is one more than the max_agents=1 of 'car' who may live at once: 'car_98'"
    with pytest.raises(ValueError, match=message):
        walk.step([0, 0])


def test_a_name_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"env_id='x': give package.module:Class or path"):
        make("rllib", env_id="x")
    with pytest.raises(ValueError, match="env_config=3: give a dictionary"):
        make("rllib", env_id=f"{rllib_envs.__file__}:Duel", env_config=3)
