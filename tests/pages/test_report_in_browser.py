"""The report in a browser: every control, every width, everybody."""

import copy
import io
import json

import pytest
from serving import served_by

pytest.importorskip("selenium")
from browser import (
    complaints,
    expect_readable,
    requests,
    rows,
    set_scheme,
    set_width,
    try_again,
    visit,
)
from PIL import Image
from playing import tables_of
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from jaxmarl_ppo.config.as_json import dump_json
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.seeds import summarise_seeds
from jaxmarl_ppo.pages import report_server
from jaxmarl_ppo.pages.report import describe_group, describe_runs, report_page
from jaxmarl_ppo.pages.report_server import serve_report
from jaxmarl_ppo.runs.lineage import Event
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.runs.status import Status

EVIL = "<img src=x onerror=document.title='owned'>"


def entry(k, shift=0.0):
    lives = {"return_mean": k / 10 + shift, "return_min": -1.0, "return_max": 1.0, "episodes": 5}
    players = ["main", "past@0", EVIL, "past@1"]
    taken_at = 3 if k < 6 else 30  # another snapshot takes the place
    return {
        "env_steps": 1000 * (k + 1),
        "decisions": 2000 * (k + 1),
        "iteration": k,
        "wall_s": 1.0 + k,
        "env_steps_per_s": 100.0 + k,
        "peak_memory_mb": 500.0,
        "agents": {"x": lives, EVIL: {**lives, "return_mean": -k / 10}},
        "policies": {"shared": {"entropy": 2.0 - k / 10, "return_mean": 0.5}},
        "league": {
            "players": players,
            "win_rate": [
                [None, 0.75, None, None],
                [0.25, None, 0.5, None],
                [None, 0.5, None, None],
                [None, None, None, None],
            ],
            "games": [[0, 8, 0, 0], [8, 0, 4, 0], [0, 4, 0, 0], [0, 0, 0, 0]],
            "elo": {"main": 1000.0 + k, "past@0": 1500.0 - k, EVIL: 990.0, "past@1": 1000.0},
            "pools": {"past": {"snapshots": 2, "added_at": [taken_at, 8]}},
        },
    }


def measured(k, shift):
    return {"env_steps": 1000 * (k + 1), "exploitability": {"greedy": shift + 1 / k}}


def event(env_steps, member, after, parent=None):
    scores = (None, None) if parent is None else (0.25, 0.75)
    before = {} if parent is None else {"default_ppo.gamma": 0.5}
    return Event(env_steps, 0, member, parent, *scores, before, {"default_ppo.gamma": after})


LINEAGE = [event(0, "seed-0", 0.9), event(0, "seed-1", 0.5), event(5000, "seed-1", 0.8, "seed-0")]


@pytest.fixture(scope="module")
def record():
    env = tables_of("tic_tac_toe")().env
    return run_record(env, env.default_params, TrainConfig())


@pytest.fixture(scope="module")
def pages(record, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    other = copy.deepcopy(record)
    other["config"]["default_ppo"]["gamma"] = 0.5
    other["config"]["default_ppo"]["new_key"] = None
    logs = [
        ([entry(k, shift) for k in range(10)], [measured(k, shift) for k in (2, 8)])
        for shift in (0.0, 1.0)
    ]
    planned = copy.deepcopy(record)
    planned["config"] |= {"total_env_steps": 20_480, "num_envs": 32, "num_steps": 128}
    ended = "2026-01-02T03:04:05+00:00"
    stopped = Status("stopped", "SIGINT", 10_000, ended)
    one = report_page(describe_runs([EVIL], [planned], logs[:1], [stopped]))
    both = [
        Status("finished", None, 10_000, ended),
        Status("failed", "ValueError: it broke", 10_000, ended),
    ]
    two = report_page(describe_runs(["first", "second"], [record, other], logs, both))
    pairs = [[{"agents": log[0][k]["agents"]} for log in logs] for k in range(10)]
    together = [entry(k) | summarise_seeds(pair) for k, pair in enumerate(pairs)]
    group = describe_group(
        (together, []), ["seed-0", "seed-1"], [record, record], logs,
        status=Status("running", None, 10_000, ended), failed={"seed-1": "EnvironmentFault: NaN"},
    )  # fmt: skip
    data = describe_group(
        (together, []), ["seed-0", "seed-1"], [record, record], copy.deepcopy(logs), LINEAGE
    )
    saved = {"one": one, "two": two, "group": report_page(group), "pbt": report_page(data)}
    return {name: page.save(folder / f"{name}.html") for name, page in saved.items()}


def show(driver, address):
    return visit(driver, address, "#curves svg")


def paths(driver):
    return driver.find_elements(By.CSS_SELECTOR, "#curves path.line")


def test_curves_are_chosen_by_measure(driver, pages):
    page = show(driver, pages["one"].as_uri())
    curve = Select(page.find_element(By.ID, "curve"))
    assert curve.first_selected_option.text == "evaluation: exploitability: greedy"
    assert len(page.find_elements(By.CSS_SELECTOR, "#curves line.goal")) == 1
    assert "perfect play on both sides 0" in page.find_element(By.ID, "lines").text
    groups = {
        group.get_attribute("label"): [o.text for o in group.find_elements(By.TAG_NAME, "option")]
        for group in page.find_elements(By.CSS_SELECTOR, "#curve optgroup")
    }
    assert "policies: entropy" in groups["Learning, by policy"]
    assert "policies: return mean" in groups["Play, by policy"]
    assert "agents: return mean" in groups["Play, by agent"]
    assert "env steps per s" in groups["Speed and machine"]
    curve.select_by_visible_text("agents: return mean")
    assert len(paths(page)) == 2
    seen = set()
    for option in [option.text for option in curve.options]:
        curve.select_by_visible_text(option)
        chart = page.find_element(By.CSS_SELECTOR, "#curves svg")
        assert option in chart.get_attribute("aria-label")
        seen.add(tuple(path.get_attribute("d") for path in paths(page)))
    assert len(seen) >= 5
    curve.select_by_visible_text("league: elo")
    # Two policies, and three snapshots of which two took one place after the other.
    assert len(paths(page)) == 5
    assert "main 1009" in page.find_element(By.ID, "lines").text
    assert "snapshots of past 1000 to 1495" in page.find_element(By.ID, "lines").text
    assert not page.find_element(By.ID, "mean").is_displayed()


def test_leagues_and_configurations_are_tabulated(driver, pages):
    page = show(driver, pages["one"].as_uri())
    # The best first, by when they were taken; who has met nobody is left out.
    assert rows(page, "wins") == [
        ["past@it30", "1491", "12", "25 %", "50 %"],
        ["main", "1009", "8", "", ""],
        [EVIL, "990", "4", "", ""],
    ]
    heads = page.find_elements(By.CSS_SELECTOR, "#wins thead th")
    assert [head.text for head in heads][1:4] == ["Elo", "games", "against main"]
    assert page.find_elements(By.CSS_SELECTOR, "#elo path.line")
    assert not page.find_element(By.ID, "differences").is_displayed()
    page.find_element(By.TAG_NAME, "summary").click()
    assert ["config.default_ppo.gamma", "0.99"] in rows(page, "configuration")
    assert rows(page, "times")[0] == ["seconds in all", "10"]


def test_no_number_and_no_head_is_broken_on_a_phone(driver, pages):
    page = show(driver, pages["two"].as_uri())
    set_width(page, 375)
    lines_of = (
        "const range = document.createRange(); range.selectNodeContents(arguments[0]);"
        "return new Set([...range.getClientRects()].map((box) => box.top)).size"
    )
    for table in ("ends", "times", "wins"):
        cells = page.find_elements(By.CSS_SELECTOR, f"#{table} td, #{table} thead th")
        assert len(cells) > 4
        assert {page.execute_script(lines_of, cell) for cell in cells} <= {0, 1}
        for name in page.find_elements(By.CSS_SELECTOR, f"#{table} tbody th"):
            # A word that is longer than the column goes on in the next line.
            room = sum(-(-len(word) // 16) for word in name.text.split())
            assert page.execute_script(lines_of, name) <= room
    first = page.find_element(By.CSS_SELECTOR, "#wins tbody th")
    page.execute_script("arguments[0].closest('.wide').scrollLeft = 100", first)
    assert first.rect["x"] >= 0


def test_lines_of_a_chart_are_told_apart_and_named(driver, pages):
    page = show(driver, pages["one"].as_uri())
    Select(page.find_element(By.ID, "curve")).select_by_visible_text("agents: return mean")
    groups = page.find_elements(By.CSS_SELECTOR, "#curves g")
    signs = {
        mark.tag_name
        for group in groups
        for mark in group.find_elements(By.CSS_SELECTOR, ".marker")
    }
    assert signs == {"circle", "path"}
    assert len(page.find_elements(By.CSS_SELECTOR, "#lines svg.sample .marker")) == 2


def test_runs_are_laid_over_each_other(driver, pages):
    page = show(driver, pages["two"].as_uri())
    newest = {row[0]: row[1:] for row in rows(page, "ends")}
    assert [steps.split()[0] for steps in newest["environment steps"]] == ["10,000", "10,000"]
    assert newest["agents: return mean, x"] == ["0.9", "1.9"]
    assert newest["evaluation: exploitability: greedy"] == ["0.125", "1.13"]
    assert len(page.find_elements(By.CSS_SELECTOR, "#wins table")) == 2
    Select(page.find_element(By.ID, "curve")).select_by_visible_text("agents: return mean")
    assert len(paths(page)) == 4
    assert "first, x" in page.find_element(By.ID, "lines").text
    assert rows(page, "differing") == [["config.default_ppo.gamma", "0.99", "0.5"]]
    page.find_element(By.ID, "mean").click()
    assert len(paths(page)) == 2
    assert len(page.find_elements(By.CSS_SELECTOR, "#curves path.band")) == 2
    # 0.9 and 1.9 at the end.
    legend = page.find_element(By.ID, "lines").text
    assert "x, mean 1.4" in legend
    assert legend.count("from the lowest to the highest run") == 1


def test_seeds_are_shown_together_and_one_by_one(driver, pages):
    page = show(driver, pages["group"].as_uri())
    assert page.find_element(By.ID, "mean").is_selected()
    Select(page.find_element(By.ID, "curve")).select_by_visible_text("agents: return mean")
    # Of two agents a mean, which has the band, and an interquartile mean.
    assert len(paths(page)) == 4
    assert len(page.find_elements(By.CSS_SELECTOR, "#curves path.band")) == 2
    legend = page.find_element(By.ID, "lines").text
    assert "x, mean 1.4" in legend
    assert "x, interquartile mean 1.4" in legend
    assert legend.count("95 % interval of the interquartile mean") == 1
    assert page.find_elements(By.CSS_SELECTOR, "#lines svg.sample rect")
    Select(page.find_element(By.ID, "which")).select_by_visible_text("seed-1")
    assert not page.find_element(By.ID, "mean").is_selected()
    assert len(paths(page)) == 2
    assert "x 1.9" in page.find_element(By.ID, "lines").text
    Select(page.find_element(By.ID, "which")).select_by_visible_text("all runs")
    assert len(paths(page)) == 4


def test_the_head_says_how_a_run_has_ended(driver, pages):
    page = show(driver, pages["one"].as_uri())
    facts = page.find_element(By.ID, "facts")
    assert "status\nstopped by Ctrl-C (SIGINT)" in facts.text
    assert "environment steps\n10,000 of 20,480 (48 %)" in facts.text
    assert "training time\n10 s" in facts.text
    assert "ended\n2026-01-02 03:04 UTC" in facts.text
    assert [bad.text for bad in facts.find_elements(By.CLASS_NAME, "bad")] == [
        "stopped by Ctrl-C (SIGINT)"
    ]
    page = show(driver, pages["two"].as_uri())
    newest = {row[0]: row[1:] for row in rows(page, "ends")}
    assert newest["status"] == ["finished", "failed: ValueError: it broke"]
    page = show(driver, pages["group"].as_uri())
    facts = page.find_element(By.ID, "facts").text
    assert "status\nrunning" in facts
    assert "newest entry" in facts
    assert "seed-1\nfailed: EnvironmentFault" in facts


def test_times_of_a_group_are_given_once(driver, pages):
    page = show(driver, pages["group"].as_uri())
    heads = page.find_elements(By.CSS_SELECTOR, "#times thead th")
    assert [head.text for head in heads] == ["", "all seeds"]
    assert not page.find_element(By.ID, "differences").is_displayed()  # nothing does here


def test_what_is_wider_than_the_screen_shows_that_it_scrolls(driver, pages):
    """By a shadow at the edge behind which there is more."""
    set_scheme(driver, "light")
    page = show(driver, pages["two"].as_uri())
    set_width(page, 375)
    box = page.find_element(By.CSS_SELECTOR, ".wide:has(#ends)")
    page.execute_script("arguments[0].style.height = '400px'", box)  # room below the table

    def edge():
        with Image.open(io.BytesIO(box.screenshot_as_png)) as picture:
            grey = picture.convert("L")
            return [grey.getpixel((grey.width - own, grey.height - 20)) for own in (2, 60)]

    assert page.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    last, inner = edge()
    assert last < inner - 20
    page.execute_script("arguments[0].scrollLeft = 10000", box)
    last, inner = edge()
    assert abs(last - inner) <= 2


def test_who_learnt_from_whom_is_shown(driver, pages):
    page = show(driver, pages["pbt"].as_uri())
    (row,) = rows(page, "copies")
    assert row == ["5,000", "seed-1", "seed-0", "0.25", "0.75", "0.5 to 0.8"]
    Select(page.find_element(By.ID, "curve")).select_by_visible_text("numbers: default ppo.gamma")
    assert len(paths(page)) == 2
    assert "seed-1 0.8" in page.find_element(By.ID, "lines").text
    show(driver, pages["group"].as_uri())
    assert not page.find_element(By.ID, "lineage").is_displayed()


def test_no_name_runs_as_script_and_nothing_is_asked_for(driver, pages):
    page = show(driver, pages["one"].as_uri())
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert page.title == "tic_tac_toe"
    assert EVIL in page.find_element(By.ID, "facts").text
    assert [url for url in requests(page) if url != pages["one"].as_uri()] == []
    assert complaints(page) == []


@pytest.mark.parametrize("name", ["one", "two", "group", "pbt"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere_by_everybody(driver, pages, name, scheme):
    set_scheme(driver, scheme)
    page = show(driver, pages[name].as_uri())
    page.find_element(By.TAG_NAME, "summary").click()
    expect_readable(page, f"report-{name}-{scheme}", height=1400)


def test_a_page_of_a_run_that_goes_on_keeps_up(driver, record, tmp_path, monkeypatch):
    monkeypatch.setattr(report_server, "REFRESH_S", 0.5)
    (tmp_path / "config.json").write_text(dump_json(record))
    log = tmp_path / "metrics.jsonl"
    log.write_text(json.dumps(entry(0)) + "\n")
    with served_by(serve_report, [tmp_path]) as address:
        page = show(driver, address)
        try_again(
            lambda: Select(page.find_element(By.ID, "curve")).select_by_visible_text(
                "policies: entropy"
            )
        )
        assert "shared 2" in page.find_element(By.ID, "lines").text
        log.write_text("".join(json.dumps(entry(k)) + "\n" for k in range(6)))
        WebDriverWait(page, 20).until(lambda d: "shared 1.5" in d.find_element(By.ID, "lines").text)
        chosen = "return document.getElementById('curve').selectedOptions[0].text"
        assert page.execute_script(chosen) == "policies: entropy"
        assert all(url.startswith(address) for url in requests(page))
        assert complaints(page) == []
        page.get("about:blank")
