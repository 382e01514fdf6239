"""Every control of the page of replays, in a browser."""

import jax
import pytest

pytest.importorskip("selenium")
from browser import (
    complaints,
    keep_picture,
    open_browser,
    requests,
    set_scheme,
    set_width,
    violations,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.replay import replay_episodes
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.pages.replay_page import replay_page

EVIL = "<img src=x onerror=document.title='owned'>"
PLAYED = {
    "tic_tac_toe": {},
    "crypto": {},
    "asymmetric_play": {},
    "shuttle_grid": {"max_steps": 30},
    "flex_agents": {},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of every kind of environment, by its name."""
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, kwargs in PLAYED.items():
        env, params = jaxmarl_envs.make(name, **kwargs)
        policy = PolicySpec(network=MLP(hidden_sizes=(4,)))
        config = TrainConfig(num_envs=4, num_steps=8, mapping="shared", default_policy=policy)
        learner = make_learner(env, params, config)
        population = jax.jit(learner.init_population)(jax.random.key(1))
        replays = replay_episodes(
            learner, population, 4, jax.random.key(0), num_candidates=12, max_ticks=20
        )
        found[name] = folder / f"{name}.html"
        title = EVIL if name == "tic_tac_toe" else name
        replay_page(replays, env, title, [("run", EVIL)], {EVIL: 1.0}).save(found[name])
    return found


@pytest.fixture(scope="module")
def driver():
    browser = open_browser()
    yield browser
    browser.quit()


@pytest.fixture
def page(driver, pages):
    return show(driver, pages["tic_tac_toe"])


def show(driver, path):
    requests(driver), complaints(driver)
    set_width(driver, 1280)
    driver.get(path.as_uri())
    WebDriverWait(driver, 10).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#picture svg"))
    return driver


def tick(driver):
    return driver.find_element(By.ID, "tick").text


def click(driver, name):
    driver.find_element(By.ID, name).click()


def press(driver, *keys):
    ActionChains(driver).send_keys(*keys).perform()


def picture(driver):
    script = "return document.querySelector('#picture title').textContent"
    return driver.execute_script(script)


def test_it_asks_for_nothing_and_complains_of_nothing(driver, pages):
    for path in pages.values():
        show(driver, path)
        press(driver, Keys.END, Keys.HOME, "e")
        assert [url for url in requests(driver) if url != path.as_uri()] == []
        assert complaints(driver) == []


def test_every_button_and_key_moves_in_time(page):
    last = int(tick(page).split()[-1])
    assert tick(page) == f"tick 0 of {last}"
    assert picture(page).startswith("Board after 0 moves")
    for forward, back in (("forward", "back"), (Keys.ARROW_RIGHT, Keys.ARROW_LEFT)):
        move = click if forward == "forward" else press
        move(page, forward)
        move(page, forward)
        assert tick(page) == f"tick 2 of {last}"
        assert picture(page).startswith("Board after 2 moves")
        move(page, back)
        assert tick(page) == f"tick 1 of {last}"
        move(page, back)
    for end, begin, move in (("last", "first", click), (Keys.END, Keys.HOME, press)):
        move(page, end)
        assert tick(page) == f"tick {last} of {last}"
        assert not page.find_element(By.ID, "forward").is_enabled()
        move(page, begin)
        assert tick(page) == f"tick 0 of {last}"
        assert not page.find_element(By.ID, "back").is_enabled()
    script = (
        "const s=document.getElementById('slider');s.value=3;s.dispatchEvent(new Event('input'))"
    )
    page.execute_script(script)
    assert tick(page) == f"tick 3 of {last}"


def test_it_plays_to_the_end_and_pauses(page):
    last = tick(page).split()[-1]
    Select(page.find_element(By.ID, "speed")).select_by_value("32")
    click(page, "play")
    assert page.find_element(By.ID, "play").text == "Pause"
    WebDriverWait(page, 10).until(lambda d: tick(d) == f"tick {last} of {last}")
    WebDriverWait(page, 10).until(lambda d: d.find_element(By.ID, "play").text == "Play")
    Select(page.find_element(By.ID, "speed")).select_by_value("1")
    page.find_element(By.TAG_NAME, "h1").click()
    press(page, " ")
    assert page.find_element(By.ID, "play").text == "Pause"
    press(page, " ")
    assert page.find_element(By.ID, "play").text == "Play"


def test_mistakes_are_found_and_the_best_is_said(page):
    click(page, "mistake")
    cards = page.find_elements(By.CSS_SELECTOR, ".agent .bad")
    assert len(cards) == 1
    assert cards[0].text.startswith("Mistake: best is ")
    first = tick(page)
    press(page, "m")
    press(page, Keys.SHIFT + "m")
    press(page, Keys.NULL)
    assert page.find_elements(By.CSS_SELECTOR, ".agent .bad")
    assert len(page.find_elements(By.CSS_SELECTOR, "#marks .mistake")) >= 1
    assert first != tick(page) or len(page.find_elements(By.CSS_SELECTOR, "#marks .mistake")) < 3


def test_cards_say_who_acts_and_with_which_probabilities(page):
    cards = page.find_elements(By.CSS_SELECTOR, ".agent")
    assert [card.find_element(By.TAG_NAME, "b").text for card in cards] == ["x", "o"]
    assert [card.find_element(By.CLASS_NAME, "does").text for card in cards] == ["acts", "waits"]
    bars = cards[0].find_elements(By.CSS_SELECTOR, ".bars .bar")
    assert len(bars) == 9
    assert "empty" in cards[0].text
    assert cards[0].find_elements(By.CLASS_NAME, "taken")
    press(page, Keys.ARROW_RIGHT)
    cards = page.find_elements(By.CSS_SELECTOR, ".agent .does")
    assert [card.text for card in cards] == ["waits", "acts"]


def test_episodes_and_measures_can_be_chosen(page):
    episodes = Select(page.find_element(By.ID, "episode"))
    assert len(episodes.options) == 4
    assert "best" in episodes.options[0].text
    press(page, Keys.END)
    episodes.select_by_index(2)
    assert tick(page).startswith("tick 0 of ")
    press(page, "e")
    paths = []
    for measure in ("value", "return", "reward", "entropy"):
        Select(page.find_element(By.ID, "measure")).select_by_value(measure)
        chart = page.find_element(By.CSS_SELECTOR, "#chart svg")
        paths.append(
            "".join(p.get_attribute("d") for p in chart.find_elements(By.TAG_NAME, "path"))
        )
        assert "of every agent" in chart.get_attribute("aria-label")
    # All is earned at the end here, so what was earned so far looks like what is earned now.
    assert len(set(paths)) == 3
    assert paths[1] == paths[2]
    page.find_element(By.CSS_SELECTOR, "#chart svg").click()
    assert not tick(page).startswith("tick 0 ")


def test_no_name_runs_as_script(page):
    assert page.find_element(By.TAG_NAME, "h1").text == EVIL
    assert EVIL in page.find_element(By.ID, "facts").text
    assert page.title == EVIL
    assert page.find_elements(By.TAG_NAME, "img") == []


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere_by_everybody(driver, pages, name, scheme):
    """On a phone as on a desk, in light and dark, and by those who hear it."""
    set_scheme(driver, scheme)
    show(driver, pages[name])
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    for width in (375, 1280):
        set_width(driver, width)
        script = "return document.documentElement.scrollWidth"
        assert driver.execute_script(script) <= width
        keep_picture(driver, f"{name}-{scheme}-{width}")
    assert violations(driver) == []
    said = driver.find_element(By.ID, "spoken").get_attribute("textContent")
    assert said == picture(driver)


def test_light_or_dark_can_be_chosen(page):
    set_scheme(page, "light")
    colour = "return getComputedStyle(document.body).backgroundColor"
    ink = (
        "return getComputedStyle(document.querySelector('#picture svg')).getPropertyValue('--ink')"
    )
    before = page.execute_script(colour), page.execute_script(ink)
    click(page, "theme")
    after = page.execute_script(colour), page.execute_script(ink)
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert page.find_element(By.ID, "theme").text == "Light"
    click(page, "theme")
    assert page.execute_script(colour) == before[0]
