"""Games by clicks and keys, alone and in two browsers."""

import jax
import pytest

pytest.importorskip("selenium")
from browser import (
    complaints,
    expect_readable,
    keep_picture,
    open_browser,
    requests,
    set_scheme,
    try_again,
    violations,
    visit,
)
from hybrid_env_deploy import Hybrid
from playing import served, tables_of
from probe_envs import tiny_learner
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from jaxmarl_ppo.pages.game_table import Table

EVIL = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def minimax():
    with served(tables_of("tic_tac_toe", "minimax"), EVIL) as address:
        yield address


@pytest.fixture(scope="module")
def uniform():
    with served(tables_of("tic_tac_toe", "random")) as address:
        yield address


@pytest.fixture(scope="module")
def drivers():
    browsers = [open_browser(), open_browser()]
    yield browsers
    for browser in browsers:
        browser.quit()


@pytest.fixture
def page(drivers, minimax):
    return show(drivers[0], minimax)


def show(driver, address):
    driver.get("about:blank")
    return visit(driver, address, "#picture svg")


def status(driver):
    return driver.find_element(By.ID, "status").text


def waits(driver, words):
    WebDriverWait(driver, 20).until(
        lambda d: words in status(d), f"{words!r} in {status(driver)!r}"
    )


def choose(driver, *sides):
    value = ",".join(map(str, sides))
    driver.find_element(By.CSS_SELECTOR, f'#sides input[value="{value}"]').click()
    driver.find_element(By.ID, "begin").click()


def cells(driver, kind="legal"):
    return driver.find_elements(By.CSS_SELECTOR, f"#picture .{kind}")


def play_cell(driver, find):
    """Click the cell that a function finds, and wait for what comes of it."""
    before = driver.execute_script(TITLE)
    try_again(lambda: find().click())
    WebDriverWait(driver, 20).until(lambda d: d.execute_script(TITLE) != before)


def click_place(driver, action):
    place = f'#picture [data-action="{action}"]'
    try_again(lambda: driver.find_element(By.CSS_SELECTOR, place).click())


TITLE = "return document.querySelector('#picture title').textContent"


def play_out(driver, best):
    """Play to the end by clicks alone: best moves as the hints show them, or others."""
    while "Your move" in status(driver):
        WebDriverWait(driver, 20).until(lambda d: cells(d, "best"))
        others = "#picture .legal:not(.best)"
        wanted = others
        if best or not driver.find_elements(By.CSS_SELECTOR, others):
            wanted = "#picture .best"
        play_cell(driver, lambda wanted=wanted: driver.find_element(By.CSS_SELECTOR, wanted))
    return status(driver)


def test_games_are_won_drawn_and_lost_by_clicks(drivers, minimax, uniform):
    page = show(drivers[0], minimax)
    page.find_element(By.ID, "hint").click()
    for side in (0, 1):
        choose(page, side)
        waits(page, "Your move")
        assert play_out(page, best=True) == "A draw."
        choose(page, side)
        waits(page, "Your move")
        assert play_out(page, best=False) == "You have lost."
    assert complaints(page) == []
    page = show(drivers[0], uniform)
    page.find_element(By.ID, "hint").click()
    for _ in range(10):
        choose(page, 0)
        waits(page, "Your move")
        if play_out(page, best=True) == "You have won.":
            break
    assert status(page) == "You have won."
    assert "x has won" in page.execute_script(TITLE)
    keep_picture(page, "play-won")


def test_a_game_by_keys_alone(page):
    choose(page, 0)
    waits(page, "Your move")
    while "Your move" in status(page):
        before = page.execute_script(TITLE)

        def press():
            cell = cells(page)[0]
            page.execute_script("arguments[0].focus()", cell)
            assert cell.get_attribute("role") == "button"
            assert cell.get_attribute("aria-label").startswith("play ")
            cell.send_keys(Keys.ENTER)

        try_again(press)
        WebDriverWait(page, 20).until(lambda d, b=before: d.execute_script(TITLE) != b)
    assert status(page) in ("You have lost.", "A draw.")


def test_undo_takes_back_and_hints_are_said(page):
    choose(page, 0)
    waits(page, "Your move")
    assert len(cells(page)) == 9
    play_cell(page, lambda: cells(page)[4])
    assert len(cells(page)) == 7
    page.find_element(By.ID, "undo").click()
    WebDriverWait(page, 20).until(lambda d: len(cells(d)) == 9)
    page.find_element(By.ID, "undo").click()
    WebDriverWait(page, 20).until(
        lambda d: "nothing to undo" in d.find_element(By.ID, "error").text
    )
    assert not cells(page, "best")
    page.find_element(By.ID, "hint").click()
    WebDriverWait(page, 20).until(lambda d: len(cells(d, "best")) == 9)
    assert "best: a1, b1" in page.find_element(By.ID, "agents").text
    page.find_element(By.ID, "hint").click()
    WebDriverWait(page, 20).until(lambda d: not cells(d, "best"))


def test_what_the_policy_thinks_is_shown(drivers):
    with served(tables_of("tic_tac_toe")) as address:
        page = show(drivers[0], address)
        choose(page, 1)
        waits(page, "Your move, as o")
        page.find_element(By.ID, "hint").click()
        WebDriverWait(page, 20).until(
            lambda d: "its policy expects" in d.find_element(By.ID, "agents").text
        )
        assert try_again(
            lambda: all("%" in cell.get_attribute("aria-label") for cell in cells(page))
        )
        shares = [words.text for words in page.find_elements(By.CSS_SELECTOR, "#picture .share")]
        assert len(shares) == 8
        assert sum(int(share.split()[0]) for share in shares) == pytest.approx(100, abs=4)
        # Each at the foot of its own cell.
        for words in page.find_elements(By.CSS_SELECTOR, "#picture .share"):
            cell = page.execute_script("return arguments[0].previousElementSibling", words).rect
            inside = words.rect
            assert cell["x"] < inside["x"] < cell["x"] + cell["width"]
            assert cell["y"] + 0.6 * cell["height"] < inside["y"]
        assert "trained policy" in page.find_element(By.ID, "agents").text
        keep_picture(page, "play-hints")


def test_clicks_before_the_answer_are_not_sent(page):
    """Whoever clicks twice while the other one thinks has played one move, and is told of none."""
    choose(page, 0)
    waits(page, "Your move")
    before = page.execute_script(TITLE)
    page.execute_script(
        "const cells = document.querySelectorAll('#picture .legal');"
        "for (const cell of [cells[0], cells[0], cells[1]])"
        " cell.dispatchEvent(new MouseEvent('click', {bubbles: true}));"
    )
    WebDriverWait(page, 20).until(lambda d: d.execute_script(TITLE) != before)
    waits(page, "Your move")
    assert page.execute_script(TITLE).startswith("Board after 2 moves")
    assert page.find_element(By.ID, "error").text == ""


def test_one_side_is_chosen_or_both(page):
    boxes = page.find_elements(By.CSS_SELECTOR, "#sides input")
    assert {box.get_attribute("type") for box in boxes} == {"radio"}
    assert [box.get_attribute("value") for box in boxes] == ["0", "1", "0,1"]
    choose(page, 1)
    assert [box.is_selected() for box in boxes] == [False, True, False]
    choose(page, 0, 1)
    waits(page, "Your move, as x")
    play_cell(page, lambda: cells(page)[0])
    waits(page, "Your move, as o")


def test_a_pressed_button_looks_pressed(page):
    button = page.find_element(By.ID, "hint")
    begin = page.find_element(By.ID, "begin").value_of_css_property("background-color")
    assert button.value_of_css_property("background-color") != begin
    button.click()
    assert button.value_of_css_property("background-color") == begin
    button.click()


def test_two_browsers_play_each_other(drivers, minimax):
    one = show(drivers[0], minimax)
    address = one.find_element(By.ID, "address").get_attribute("value")
    assert address.startswith(f"{minimax}#table=")
    two = show(drivers[1], address)
    choose(one, 0)
    waits(one, "Your move, as x")
    choose(two, 0)
    WebDriverWait(two, 20).until(lambda d: "somebody else" in d.find_element(By.ID, "error").text)
    choose(two, 1)
    waits(one, "Your move, as x")
    for page, other, cell in ((one, two, 0), (two, one, 3), (one, two, 1), (two, one, 4)):
        waits(page, "Your move")
        assert not cells(other)
        click_place(page, cell)
    waits(one, "Your move")
    click_place(one, 2)
    waits(one, "You have won.")
    waits(two, "You have lost.")
    assert "somebody" in two.find_element(By.ID, "agents").text
    for page in (one, two):
        assert complaints(page) == []


def test_stones_fall_into_the_column_that_is_clicked(drivers):
    with served(tables_of("pgx", "random", env_id="connect_four")) as address:
        page = show(drivers[0], address)
        choose(page, 0)
        waits(page, "Your move")
        before = page.find_element(By.ID, "picture").get_attribute("innerHTML")
        click_place(page, 3)
        WebDriverWait(page, 20).until(
            lambda d: d.find_element(By.ID, "picture").get_attribute("innerHTML") != before
        )
        keep_picture(page, "play-connect-four")
        assert not page.find_elements(By.CSS_SELECTOR, "#actions button")
        assert violations(page) == []
        assert complaints(page) == []


def test_actions_without_a_place_in_the_picture_are_buttons(drivers):
    with served(tables_of("shuttle_grid", max_steps=8)) as address:
        page = show(drivers[0], address)
        assert (
            page.find_element(By.CSS_SELECTOR, "#sides input").get_attribute("type") == "checkbox"
        )
        page.find_element(By.ID, "begin").click()
        waits(page, "Your move")

        def buttons():
            return page.find_elements(By.CSS_SELECTOR, "#actions button")

        def names():
            return [button.text for button in buttons()]

        assert set(try_again(names)) <= {"hold", "by the row", "by the column"}
        keep_picture(page, "play-shuttles")
        page.find_element(By.ID, "hint").click()
        WebDriverWait(page, 20).until(lambda _: all("%" in name for name in try_again(names)))
        while "Your move" in status(page):
            shown = page.execute_script(TITLE)
            try_again(lambda: buttons()[-1].click())
            WebDriverWait(page, 20).until(lambda d, s=shown: d.execute_script(TITLE) != s)
        assert violations(page) == []
        assert complaints(page) == []


def test_only_the_page_itself_is_asked_and_no_name_runs(page, minimax):
    assert page.find_element(By.TAG_NAME, "h1").text == f"tic_tac_toe: {EVIL}"
    assert page.title == f"tic_tac_toe: {EVIL}"
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert set(requests(page)) <= {"about:blank", minimax}
    assert complaints(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere_by_everybody(page, scheme):
    set_scheme(page, scheme)
    page.find_element(By.ID, "hint").click()
    choose(page, 0)
    WebDriverWait(page, 20).until(lambda d: cells(d, "best"))
    play_cell(page, lambda: cells(page)[0])
    expect_readable(page, f"play-{scheme}")


def test_the_end_of_the_server_is_said(drivers):
    with served(tables_of("tic_tac_toe")) as address:
        page = show(drivers[0], address)
    WebDriverWait(page, 20).until(lambda d: "ended" in d.find_element(By.ID, "error").text)


@pytest.fixture(scope="module")
def hybrid():
    learner = tiny_learner(Hybrid(), None)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    with served(lambda: Table(learner, population)) as address:
        yield address


def test_an_option_of_every_choice_is_played_at_once(drivers, hybrid):
    """The sides are boxes, of which `picker` is chosen at first; it has one choice."""
    driver = show(drivers[0], hybrid)
    waits(driver, "Your move, as picker.")

    def buttons(css="button"):
        words = "Array.from(document.querySelectorAll(arguments[0]), (x) => x.textContent)"
        return driver.execute_script(f"return {words}", f"#actions {css}")

    assert buttons() == ["1", "2", "3"]
    driver.find_element(By.CSS_SELECTOR, '#actions [data-option="3"]').click()
    WebDriverWait(driver, 20).until(lambda d: buttons() == ["0", "2", "3"])
    for side in (0, 3):
        driver.find_element(By.CSS_SELECTOR, f'#sides input[value="{side}"]').click()
    driver.find_element(By.ID, "begin").click()
    waits(driver, "Your move, as pair.")
    assert buttons(".choice button") == ["0", "1", "1", "2"]
    go = driver.find_element(By.ID, "go")
    assert not go.is_enabled()
    for choice, option in ((0, 1), (1, 1), (1, 2)):
        css = f'#actions [data-choice="{choice}"][data-option="{option}"]'
        driver.find_element(By.CSS_SELECTOR, css).click()
    assert buttons('button[aria-pressed="true"]') == ["1", "2"]
    driver.find_element(By.ID, "go").click()
    WebDriverWait(driver, 20).until(lambda d: buttons(".choice button") == ["0", "1", "0", "2"])
    assert "return 21" in driver.find_elements(By.CSS_SELECTOR, "#agents .card")[3].text
    driver.find_element(By.ID, "hint").click()
    WebDriverWait(driver, 20).until(
        lambda d: all("%" in words for words in buttons(".choice button"))
    )
    assert complaints(driver) == []
    assert violations(driver) == []
    keep_picture(driver, "hybrid")


def test_agents_with_numbers_are_not_offered(drivers, hybrid):
    driver = show(drivers[0], hybrid)
    sides = driver.find_elements(By.CSS_SELECTOR, "#sides label")
    assert [side.text for side in sides] == ["picker", "pair"]
