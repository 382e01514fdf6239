"""The page of a search in a browser: every picture, every width, everybody."""

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("selenium")
from browser import complaints, expect_readable, requests, rows, set_scheme, visit
from selenium.webdriver.common.by import By

from jaxmarl_ppo.config.run import ObjectiveConfig
from jaxmarl_ppo.config.search import Choices, Range
from jaxmarl_ppo.sweeps.page import sweep_page
from jaxmarl_ppo.sweeps.results import SweepResult, TrialResult

EVIL = "<img src=x onerror=document.title='owned'>"
SPACE = {
    "default_ppo.learning_rate": Range(1e-4, 1e-2, log=True),
    "mapping": Choices(["shared", EVIL]),
}
VALUES = [0.5, 0.25, 0.75, None, 0.125]
STATES = ["complete", "complete", "pruned", "failed", "complete"]


def trial(number):
    values = {
        "default_ppo.learning_rate": 10.0 ** (-4 + number / 2),
        "mapping": ["shared", EVIL][number % 2],
    }
    reason = EVIL if STATES[number] == "failed" else None
    return TrialResult(number, STATES[number], VALUES[number], values, {}, reason, 2.0, Path("x"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps")
    objective = ObjectiveConfig("evaluation/exploitability/greedy", "minimise")
    trials = [trial(number) for number in range(5)]
    result = SweepResult(Path("x"), trials, trials[4], 5, None)
    shares = {"default_ppo.learning_rate": 0.75, "mapping": 0.25}
    whole = sweep_page(EVIL, result, SPACE, objective, shares)
    sound = dataclasses.replace(result, trials=[*trials[:3], trials[4]])
    sound = sweep_page("game", sound, SPACE, objective, {})
    empty = sweep_page("game", dataclasses.replace(result, trials=[]), SPACE, objective, {})
    made = {"whole": whole, "sound": sound, "empty": empty}
    return {name: page.save(folder / f"{name}.html") for name, page in made.items()}


def show(driver, address):
    return visit(driver, address.as_uri(), "#trials thead")


def lines(driver):
    return driver.find_elements(By.CSS_SELECTOR, "#parallel path.line")


def test_every_trial_is_seen(driver, pages):
    page = show(driver, pages["whole"])
    assert [row[:3] for row in rows(page, "trials")] == [
        ["4", "complete", "0.125"],
        ["1", "complete", "0.25"],
        ["0", "complete", "0.5"],
        ["2", "pruned", "0.75"],
        ["3", "failed", ""],
    ]
    assert rows(page, "best")[:2] == [
        ["evaluation/exploitability/greedy", "0.125"],
        ["default_ppo.learning_rate", "0.01"],
    ]
    assert len(page.find_elements(By.CSS_SELECTOR, "#history circle.trial")) == 4
    assert len(lines(page)) == 3
    texts = page.find_element(By.ID, "importance").text
    assert "75 %" in texts
    assert "learning_rate" in texts


def test_reasons_have_a_column_only_where_a_trial_failed(driver, pages):
    for name, is_there in (("whole", True), ("sound", False)):
        page = show(driver, pages[name])
        heads = [head.text for head in page.find_elements(By.CSS_SELECTOR, "#trials thead th")]
        assert ("why it failed" in heads) == is_there
        cells = {len(row) for row in rows(page, "trials")}
        assert cells == {len(heads)}


def test_one_trial_is_seen_alone(driver, pages):
    page = show(driver, pages["whole"])
    button = page.find_element(By.CSS_SELECTOR, "#trials tbody button")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    (line,) = lines(page)
    assert line.find_element(By.TAG_NAME, "title").get_attribute("textContent") == "trial 4: 0.125"
    button.click()
    assert len(lines(page)) == 3


def test_no_name_runs_as_script_and_nothing_is_asked_for(driver, pages):
    page = show(driver, pages["whole"])
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert page.title == f"{EVIL}: search"
    assert EVIL in page.find_element(By.ID, "trials").text
    assert [url for url in requests(page) if url != pages["whole"].as_uri()] == []
    assert complaints(page) == []


def test_a_search_of_nothing_has_a_page(driver, pages):
    page = show(driver, pages["empty"])
    assert rows(page, "trials") == []
    assert not page.find_element(By.ID, "best-section").is_displayed()
    assert not page.find_element(By.ID, "importance-section").is_displayed()
    assert complaints(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere_by_everybody(driver, pages, scheme):
    set_scheme(driver, scheme)
    page = show(driver, pages["whole"])
    expect_readable(page, f"sweep-{scheme}", height=1400)
