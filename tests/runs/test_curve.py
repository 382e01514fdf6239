"""The picture of a run's returns."""

import re
from pathlib import Path

import pytest

from jaxmarl_ppo.runs import curve


def entry(steps, **returns):
    agents = {name: {} if mean is None else {"return_mean": mean} for name, mean in returns.items()}
    return {"env_steps": steps, "agents": agents}


HISTORY = [
    entry(10, a=1.0, b=None, c=None, d=None),
    entry(20, a=2.0, b=0.5, c=0.5, d=None),
    entry(30, a=None, b=None, c=None, d=None),
    entry(40, a=4.0, b=None, c=None, d=None),
]


def test_lines_have_gaps_where_no_life_ended():
    found = curve._curves(HISTORY, "abcd")
    assert list(found) == ["a", "b, c"]
    assert found["a"] == ((10, 1.0), (20, 2.0), (30, None), (40, 4.0))


def test_points_without_neighbours_are_drawn():
    assert curve._alone([1.0, 2.0, None, 4.0]) == [3]
    assert curve._alone([None, 0.5, None, None]) == [1]
    assert curve._alone([1.0]) == [0]
    assert curve._alone([1.0, 2.0]) == []


def test_the_picture_is_one(tmp_path):
    for name, history in (("some", HISTORY), ("none", HISTORY[2:3])):
        curve.plot_curve(history, "abcd", name, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def seeds_entry(steps, mean):
    agents = {"agents": {"a": {"return_mean": mean}}}
    tables = dict.fromkeys(("iqm", "ci95_low", "ci95_high"), agents)
    return {"env_steps": steps, **agents, **tables}


def test_the_legend_says_what_lines_and_bands_of_seeds_are(tmp_path):
    words = ("mean over seeds", "interquartile mean (IQM)", "95 % interval of the IQM")
    history = [seeds_entry(10, 1.0), seeds_entry(20, 2.0)]
    curve.plot_curve(history, "a", "seeds", tmp_path / "seeds.svg")
    curve.plot_curve(HISTORY, "abcd", "one", tmp_path / "one.svg")
    # Words of a picture stand in it as comments beside their shapes.
    drawn, alone = (
        re.findall(r"<!-- (.*) -->", (tmp_path / f"{name}.svg").read_text())
        for name in ("seeds", "one")
    )
    assert all(text in drawn for text in ("a", *words))
    assert not any(text in alone for text in words)


def test_a_picture_is_what_its_name_says(tmp_path):
    curve.plot_curve(HISTORY, "abcd", "some", tmp_path / "some.PDF")
    pdf = (tmp_path / "some.PDF").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/Type3" not in pdf  # fonts that publishers reject
    with pytest.raises(
        ValueError, match=r"'a\.jpg' is not the name .* valid endings: \.png, \.pdf"
    ):
        curve.check_picture(Path("a.jpg"))
