"""What a file says of a search, and how it is refused."""

import pytest

from jaxmarl_ppo.config.paths import split_path
from jaxmarl_ppo.config.schema import check_space
from jaxmarl_ppo.config.search import Choices, Range, SearchConfig
from jaxmarl_ppo.config.search_file import read_search, read_search_file, read_space


def test_ranges_and_choices_are_read_from_tables_and_from_paths():
    nested = {"default_ppo": {"gamma": {"low": 0.9, "high": 1.0}}, "mapping": {"choices": ["a", 1]}}
    dotted = {"default_ppo.gamma": {"low": 0.9, "high": 1.0}, "mapping": {"choices": ["a", 1]}}
    expected = {"default_ppo.gamma": Range(0.9, 1.0), "mapping": Choices(["a", 1])}
    assert read_space(nested) == read_space(dotted) == expected


def test_a_part_of_a_path_may_hold_dots():
    path = 'policies."a.b".ppo.gamma'
    assert split_path(path) == ("policies", "a.b", "ppo", "gamma")
    assert list(read_space({path: {"low": 0, "high": 1}})) == [path]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "space is empty"),
        ({"num_envs": 3}, "space.num_envs: it must be a table, got 3"),
        ({"num_envs": {"low": 1}}, "space.num_envs: it lacks high"),
        ({"num_envs": {"lo": 1, "high": 2}}, "it has no 'lo'; did you mean 'low'?"),
        ({"num_envs": {"low": 2, "high": 2}}, "low=2 of a range must be below high=2"),
        ({"num_envs": {"low": 0, "high": 2, "log": True}}, "must be positive"),
        ({"num_envs": {"low": 1, "high": 2, "log": "yes"}}, "log of a range must be True or False"),
        ({"num_envs": {"low": 1, "high": 2, "log": True, "step": 1}}, "step=1 has no effect with"),
        ({"num_envs": {"choices": [1]}}, "at least two values"),
        ({"num_envs": {"choices": [1, 1]}}, "names '1' twice"),
        ({"num_envs": {"choices": [1, 2], "low": 1}}, "it has no 'low'; .*valid: choices"),
        ({"seed": {"low": 1, "high": 2}}, "seed cannot be searched: search.num_seeds says"),
        ({"evaluation": {"episodes": {"low": 1, "high": 2}}}, "evaluation.episodes cannot be"),
        ({"a..b": {"low": 1, "high": 2}}, "'a..b' is no path"),
    ],
)
def test_a_bad_space_is_refused(space, message):
    with pytest.raises(ValueError, match=message):
        read_space(space)


def test_values_within_others_are_refused():
    kind, sizes = Choices(["mlp", "lstm"]), Choices([[1], [2]])
    space = {"default_policy.network": kind, "default_policy.network.hidden_sizes": sizes}
    with pytest.raises(ValueError, match=r"and, within it, default_policy.network.hidden_sizes"):
        check_space(space)
    with pytest.raises(ValueError, match="must be a Range or Choices, got 3"):
        check_space({"num_envs": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"sampler": "tpa"}, "unknown search.sampler 'tpa'; valid: tpe, cmaes, random, grid"),
        ({"trials": 3}, "search has no 'trials'; did you mean 'num_trials'?"),
        ({"objective": {}}, r"search has no 'objective': it is a table of the run, \[objective\]"),
        ({"reduction_factor": 3}, "has no effect with pruner='none'"),
        ({"num_members": 5, "num_seeds": 2}, "must be a multiple of num_seeds=2"),
        ({"study": "a"}, "has no effect without storage"),
        ({"num_trials": 1.5}, "search.num_trials must be a whole number"),
    ],
)
def test_a_bad_search_is_refused(search, message):
    with pytest.raises(ValueError, match=message):
        read_search(search)


def test_numbers_of_a_search_are_read_as_those_of_a_run():
    assert read_search({"num_trials": 1e2, "max_minutes": "none"}) == SearchConfig(num_trials=100)


def test_the_grid_of_a_range_ends_at_its_end():
    assert Range(0.1, 0.7, step=0.2).grid() == pytest.approx([0.1, 0.3, 0.5, 0.7])
    assert Range(1, 6, step=2).grid() == [1, 3, 5]
    assert Range(2, 4).grid() == [2, 3, 4]
    with pytest.raises(ValueError, match="a grid needs a step"):
        Range(0.1, 0.7).grid()


def test_a_file_without_a_space_is_no_search(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('env = "crypto"\n')
    with pytest.raises(ValueError, match="has no table `space`"):
        read_search_file(path)


@pytest.mark.parametrize("ending", ["toml", "json", "yaml"])
def test_the_rest_of_the_file_is_a_run(tmp_path, ending):
    path = tmp_path / f"space.{ending}"
    path.write_text(
        {
            "toml": 'env = "crypto"\nnum_envs = 8\n[space]\nnum_steps = {choices = [2, 4]}\n',
            "json": '{"env": "crypto", "num_envs": 8, "space": {"num_steps": {"choices": [2, 4]}}}',
            "yaml": "env: crypto\nnum_envs: 8\nspace:\n  num_steps:\n    choices: [2, 4]\n",
        }[ending]
    )
    file = read_search_file(path)
    assert (file.settings.env, file.settings.config.num_envs) == ("crypto", 8)
    assert file.space == {"num_steps": Choices([2, 4])}
    assert file.search == SearchConfig()
    path.write_text('{"num_envz": 8, "space": {"num_steps": {"choices": [2, 4]}}}')
    if ending == "json":
        with pytest.raises(ValueError, match=r"has no 'num_envz'; did you mean 'num_envs'\?"):
            read_search_file(path)
