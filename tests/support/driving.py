"""Studies that tests open, and processes that share them."""

import multiprocessing
import time

from optuna.trial import TrialState

from jaxmarl_ppo.config.search import Choices, Range, SearchConfig
from jaxmarl_ppo.sweeps.storage import database_url, open_locks, open_storage
from jaxmarl_ppo.sweeps.study import Study

SPACE = {"x": Range(-1.0, 1.0), "n": Range(1, 8), "kind": Choices(["a", [1, 2]])}
SPAWNED = multiprocessing.get_context("spawn")
IDENTITY = {"config": {"num_envs": 4}}


def open_study(
    folder, space=None, identity=IDENTITY, goal="minimise", rungs=(10, 160), kept=None, **search
):
    """A study in a folder, or in a storage that is faster."""
    search = SearchConfig(**{"num_trials": 6, "sampler": "random", **search})
    space = SPACE if space is None else space
    url = database_url(search.storage, folder)
    name = search.study or "search"
    locks = open_locks(url, folder, name)
    storage = open_storage(url, locks) if kept is None else kept
    return Study(storage, name, locks, space, search, goal, rungs, identity)


def drive(folder, out, search):
    """Run trials until there is none, and tell their numbers."""
    study = open_study(folder, **search)
    with study.driving():
        while (trial := study.ask()) is not None:
            study.complete(trial, trial.params["x"] ** 2)
            out.put(trial.number)
    out.put(None)


def hang(folder, out, search):
    """Take two trials, tell their numbers, and never end."""
    study = open_study(folder, **search)
    with study.driving():
        out.put([study.ask().number for _ in range(2)])
        while True:
            pass


def check_that_several_share(folder, many, search):
    out = SPAWNED.Queue()
    drivers = [many(target=drive, args=(folder, out, search)) for _ in range(2)]
    for driver in drivers:
        driver.start()
    told = [out.get(timeout=120) for _ in range(search["num_trials"] + 2)]
    for driver in drivers:
        driver.join()
    assert sorted(n for n in told if n is not None) == list(range(search["num_trials"]))
    study = open_study(folder, **search)
    assert {t.state for t in study.trials()} == {TrialState.COMPLETE}
    assert [t.number for t in study.trials()] == list(range(search["num_trials"]))


def check_that_the_killed_are_followed(folder, search):
    out = SPAWNED.Queue()
    hanging = SPAWNED.Process(target=hang, args=(folder, out, search))
    hanging.start()
    assert out.get(timeout=120) == [0, 1]
    study = open_study(folder, **search)
    with study.driving():
        assert study.ask().number == 2
        hanging.kill()
        hanging.join()
        deadline = time.monotonic() + 60
        while (trial := study.ask()).number == 3 and time.monotonic() < deadline:
            study.release(trial)
        assert [trial.number, study.ask().number] == [0, 1]
