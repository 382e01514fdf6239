"""The picture of a run's returns."""

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
