"""Every control of the page of replays, in a browser."""

import re

import jax
import pytest

pytest.importorskip("selenium")
from browser import (
    complaints,
    expect_readable,
    keep_picture,
    requests,
    set_scheme,
    set_width,
    try_again,
    visit,
)
from hybrid_env_deploy import Hybrid
from probe_envs import tiny_learner
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
from jaxmarl_ppo.pages.page import Page
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
            learner, population, 4, jax.random.key(0), num_candidates=12, max_steps=20
        )
        found[name] = folder / f"{name}.html"
        title = EVIL if name == "tic_tac_toe" else name
        replay_page(replays, env, title, [("run", EVIL)], {EVIL: 1.0}).save(found[name])
    return found


@pytest.fixture
def page(driver, pages):
    return show(driver, pages["tic_tac_toe"])


def show(driver, path):
    return visit(driver, path.as_uri(), "#picture svg")


def test_every_choice_and_every_number_has_its_bars(driver, tmp_path):
    learner = tiny_learner(Hybrid(), None)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    replays = replay_episodes(learner, population, 1, jax.random.key(0))
    path = replay_page(replays, learner.env, "hybrid").save(tmp_path / "hybrid.html")
    show(driver, path)
    for slot, (titles, bars) in enumerate(
        ((["choice 1"], 3), ([], 2), (["choice 1"], 2 + 2), (["choice 1", "choice 2"], 2 + 2))
    ):
        card = driver.find_elements(By.CSS_SELECTOR, "#agents .card")[slot]
        found = [title.text for title in card.find_elements(By.CSS_SELECTOR, ".factor .who")]
        assert found == titles
        assert len(card.find_elements(By.CSS_SELECTOR, ".factor .bar")) == bars
        taken = [name.text for name in card.find_elements(By.CSS_SELECTOR, ".factor .taken")]
        choices = [str(own) for own in replays[0].action.choices[0, slot][: len(titles)]]
        numbers = ["number 1", "number 2"] if slot in (1, 2) else []
        assert taken == choices + numbers
    number = driver.find_elements(By.CSS_SELECTOR, "#agents .card")[1].find_elements(
        By.CSS_SELECTOR, ".factor .bar + span"
    )[0]
    value = float(replays[0].action.numbers[0, 1, 0])
    assert number.text.replace("\u2212", "-").endswith("(-1 to 2)")
    width = driver.execute_script(
        "return document.querySelectorAll('#agents .card')[1].querySelector('.bar i').style.width"
    )
    assert width == f"{round(100 * (value + 1) / 3)}%"
    assert complaints(driver) == []
    keep_picture(driver, "hybrid")


def step(driver):
    return driver.find_element(By.ID, "step").text


def click(driver, name):
    driver.find_element(By.ID, name).click()


def press(driver, *keys):
    ActionChains(driver).send_keys(*keys).perform()


def places(driver, kind):
    return driver.find_elements(By.CSS_SELECTOR, f"#picture .{kind}")


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
    last = int(step(page).split()[-1])
    assert step(page) == f"step 0 of {last}"
    assert picture(page).startswith("Board after 0 moves")
    for forward, back in (("forward", "back"), (Keys.ARROW_RIGHT, Keys.ARROW_LEFT)):
        move = click if forward == "forward" else press
        move(page, forward)
        move(page, forward)
        assert step(page) == f"step 2 of {last}"
        assert picture(page).startswith("Board after 2 moves")
        move(page, back)
        assert step(page) == f"step 1 of {last}"
        move(page, back)
    for end, begin, move in (("last", "first", click), (Keys.END, Keys.HOME, press)):
        move(page, end)
        assert step(page) == f"step {last} of {last}"
        assert not page.find_element(By.ID, "forward").is_enabled()
        move(page, begin)
        assert step(page) == f"step 0 of {last}"
        assert not page.find_element(By.ID, "back").is_enabled()
    script = (
        "const s=document.getElementById('slider');s.value=3;s.dispatchEvent(new Event('input'))"
    )
    page.execute_script(script)
    assert step(page) == f"step 3 of {last}"


def test_it_plays_to_the_end_and_pauses(page):
    last = step(page).split()[-1]
    Select(page.find_element(By.ID, "speed")).select_by_value("32")
    click(page, "play")
    assert page.find_element(By.ID, "play").text == "Pause"
    WebDriverWait(page, 10).until(lambda d: step(d) == f"step {last} of {last}")
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
    made, best = re.match(r"Mistake: (\w\d), where best is (.*)", cards[0].text).groups()
    names = page.execute_script("return view.data.actions")

    def marked(kind):
        return {names[int(place.get_attribute("data-action"))] for place in places(page, kind)}

    assert marked("chosen.wrong") == {made}
    assert marked("best") == set(best.split(", "))
    assert "a mistake" in page.find_element(By.ID, "picture-key").text
    first = step(page)
    press(page, "m")
    press(page, Keys.SHIFT + "m")
    press(page, Keys.NULL)
    assert page.find_elements(By.CSS_SELECTOR, ".agent .bad")
    assert len(page.find_elements(By.CSS_SELECTOR, "#marks .mistake")) >= 1
    assert first != step(page) or len(page.find_elements(By.CSS_SELECTOR, "#marks .mistake")) < 3


def test_cards_say_who_acts_and_with_which_probabilities(page):
    """Who acts comes first, whoever it is; the others take a line."""
    for agent, other in (("x", "o"), ("o", "x")):
        heading = page.find_element(By.CSS_SELECTOR, "#agents h2").text
        assert heading == f"Next, at {step(page).rpartition(' of ')[0]}"
        acting, rest = page.find_elements(By.CSS_SELECTOR, "#agents .agent")
        assert acting.find_element(By.TAG_NAME, "b").text == agent
        assert rest.text.split() == ["Wait", other, "return", "0"]
        assert acting.find_elements(By.CLASS_NAME, "taken")
        # One policy holds both, so its name says nothing; and it has no memory.
        assert "shared" not in acting.text
        assert "memory" not in acting.text
        assert "new life" not in acting.text
        meanings = [
            abbr.get_attribute("title") for abbr in acting.find_elements(By.TAG_NAME, "abbr")
        ]
        assert "expects" in meanings[0]
        assert "undecided" in meanings[1]
        assert len(acting.find_elements(By.CSS_SELECTOR, ".bars .bar")) == 9 - (agent == "o")
        press(page, Keys.ARROW_RIGHT)


def test_the_next_move_is_marked_in_the_picture(page):
    page.execute_script("view.data.episodes[0].steps[0][0].action = 4; showStep()")
    (place,) = places(page, "chosen")
    assert place.get_attribute("data-action") == "4"
    # Every first move draws, so none of them is marked.
    assert not places(page, "best")
    assert "every move is a best one" in page.find_element(By.ID, "picture-key").text
    page.execute_script("view.data.episodes[0].steps[0][0].all_best = false; showStep()")
    assert len(places(page, "best")) == 9
    assert "best moves" in page.find_element(By.ID, "picture-key").text
    frames = [frame.rect for frame in places(page, "best-frame")]
    assert len(frames) == 8  # the ninth is the next move
    for k, one in enumerate(frames):
        for other in frames[:k]:
            apart = max(abs(one["x"] - other["x"]), abs(one["y"] - other["y"]))
            assert apart > 1.2 * one["width"]
    press(page, Keys.END)
    assert not places(page, "chosen")
    assert not places(page, "best")


def test_signs_are_those_of_the_game(page):
    """A cross stands for x and a ring for o, in cards, in the chart and on the time line."""
    for agent, tag, count in ((0, "path", 2), (1, "circle", 1)):
        sign = page.execute_script(f"return view.data.agents[{agent}].sign")
        assert sign.count(f"<{tag}") == count
    legend = page.find_elements(By.CSS_SELECTOR, "#legend > span")
    assert [len(one.find_elements(By.CSS_SELECTOR, "svg svg circle")) for one in legend] == [0, 1]
    assert page.find_elements(By.CSS_SELECTOR, "#chart svg svg.marker circle")


def test_marks_say_whose_mistake_and_what_was_earned(page):
    page.execute_script(
        "const steps = view.data.episodes[0].steps;"
        "steps.forEach((step) => step.forEach((now) => { now.mistake = false; now.reward = 0; }));"
        "steps[1][1].mistake = true; steps[1][0].reward = 1; steps[3][0].reward = -1;"
        "showMarks()"
    )
    (mistake,) = page.find_elements(By.CSS_SELECTOR, "#marks .mistake")
    assert mistake.find_elements(By.TAG_NAME, "circle")  # the ring's
    left = [
        page.find_element(By.CSS_SELECTOR, f"#marks .{kind}").rect["x"]
        for kind in ("mistake", "earned", "lost")
    ]
    assert abs(left[0] - left[1]) < 8  # of one step, and both are seen
    assert left[2] > left[1] + 20
    key = page.find_element(By.ID, "marks-key").text
    assert all(words in key for words in ("mistake", "somebody earns", "somebody loses"))


def test_what_is_earned_all_the_time_is_no_mark(driver, pages):
    page = show(driver, pages["tic_tac_toe"])
    page.execute_script(
        "view.data.episodes[0].steps.forEach((step) => (step[0].reward = 1)); showMarks()"
    )
    assert not page.find_elements(By.CSS_SELECTOR, "#marks .earned")
    page = show(driver, pages["shuttle_grid"])
    assert not page.find_element(By.ID, "mistake").is_displayed()
    assert not page.find_element(By.ID, "mistake-key").is_displayed()


def test_who_comes_into_a_slot_is_another_one(driver, pages):
    """Its return begins at nothing, and no line joins it with who was there before."""
    page = show(driver, pages["flex_agents"])
    page.execute_script(
        "const one = view.data.episodes[0], now = () => ({player: 0, reward: 2, value: 1,"
        " action: 0, first: false, entropy: 1});"
        "one.steps = one.steps.slice(0, 6).map((step, t) => step.map((_, slot) =>"
        " slot ? null : now()));"
        "one.steps[1][0].end = 'terminated'; one.steps[2][0].first = true; one.steps[4][0] = null;"
        "chooseEpisode(0)"
    )
    returns = []
    for _ in range(6):
        text = page.find_element(By.ID, "agents").text
        returns.append(int(re.search(r"return (\d+)", text)[1]) if "return" in text else None)
        press(page, Keys.ARROW_RIGHT)
    assert returns == [0, 2, 0, 2, None, 0]
    assert page.find_element(By.CSS_SELECTOR, "#chart path.line").get_attribute("d").count("M") == 3
    Select(page.find_element(By.ID, "measure")).select_by_value("return")
    assert page.find_element(By.CSS_SELECTOR, "#chart path.line").get_attribute("d").count("M") == 3


def test_an_advised_action_is_marked_and_other_scripts_are_folded(driver, pages):
    page = show(driver, pages["shuttle_grid"])
    while not page.find_elements(By.CSS_SELECTOR, "#picture g.chosen"):
        press(page, Keys.ARROW_RIGHT)
    shown = page.find_element(By.CSS_SELECTOR, "#picture g.chosen")
    assert shown.value_of_css_property("visibility") == "visible"
    hidden = page.find_elements(By.CSS_SELECTOR, "#picture g[data-shows]:not(.chosen):not(.best)")
    assert all(one.value_of_css_property("visibility") == "hidden" for one in hidden)
    card = page.find_element(By.CSS_SELECTOR, "#agents .acts")
    assert "\u2713 what tuned would do" in card.text
    assert "\u2713" in card.find_element(By.CLASS_NAME, "bars").text
    fold = card.find_element(By.CSS_SELECTOR, "details.scripts")
    assert "greedy" not in card.text
    fold.find_element(By.TAG_NAME, "summary").click()
    assert "greedy: by the" in card.text
    assert "hold: hold" not in card.text  # it says so of everything
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert "greedy: by the" in page.find_element(By.CSS_SELECTOR, "#agents .acts").text


def test_picture_and_decision_stay_together_on_a_desk(driver, pages):
    page = show(driver, pages["flex_agents"])
    set_width(page, 1280, 700)
    page.execute_script("byId('agents').style.minHeight = '2000px'; window.scrollTo(0, 900)")
    top = page.find_element(By.ID, "picture").rect["y"] - page.execute_script("return scrollY")
    assert 0 <= top < 200


@pytest.mark.parametrize(
    ("name", "width"), [("tic_tac_toe", 375), ("tic_tac_toe", 1280), ("shuttle_grid", 375)]
)
def test_charts_are_drawn_at_the_size_at_which_they_stand(driver, pages, name, width):
    page = show(driver, pages[name])
    set_width(page, width)

    def chart():
        return page.find_element(By.CSS_SELECTOR, "#chart svg.chart")

    def drawn_at():
        return int(chart().get_dom_attribute("viewBox").split()[2])

    inner = page.execute_script("return document.getElementById('chart').clientWidth")
    WebDriverWait(page, 10).until(lambda _: try_again(drawn_at) == inner)
    assert chart().rect["width"] == inner
    for axis in ("x", "y"):
        names = chart().find_elements(By.CSS_SELECTOR, f"text.{axis}")
        assert len(names) >= 3
        assert len({name.text for name in names}) == len(names)
        assert names[0].value_of_css_property("font-size") == "12px"
    assert complaints(driver) == []


def test_episodes_and_measures_can_be_chosen(page):
    episodes = Select(page.find_element(By.ID, "episode"))
    assert len(episodes.options) == 4
    assert "best" in episodes.options[0].text
    press(page, Keys.END)
    episodes.select_by_index(2)
    assert step(page).startswith("step 0 of ")
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
    assert not step(page).startswith("step 0 ")


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
    expect_readable(driver, f"{name}-{scheme}")
    said = driver.find_element(By.ID, "spoken").get_attribute("textContent")
    assert said == picture(driver)


@pytest.mark.parametrize("width", [375, 620, 960, 1200])
def test_a_notebook_shows_the_controls(driver, pages, tmp_path, width):
    """A frame does not grow with its page."""
    frame = Page(pages["tic_tac_toe"].read_text())._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<body>{frame}")
    set_width(driver, width)
    driver.get((tmp_path / "notebook.html").as_uri())
    driver.switch_to.frame(0)
    try:
        WebDriverWait(driver, 10).until(lambda d: d.find_elements(By.CSS_SELECTOR, "#picture svg"))
        below = "return innerHeight - byId('controls').getBoundingClientRect().bottom"
        assert driver.execute_script(below) >= 0
        # Without that the controls cover the picture.
        picture = "return byId('picture').getBoundingClientRect().bottom"
        top = "return byId('controls').getBoundingClientRect().top"
        assert driver.execute_script(picture) < driver.execute_script(top)
    finally:
        driver.switch_to.default_content()


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
