"""Two distributions of one repository: the environments, and the trainer that depends on them."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import jaxmarl_envs
import jaxmarl_ppo

ROOT = Path(__file__).resolve().parents[2]
TRAINER, ENVS = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for folder in (".", "envs")
)
EXTRAS = {
    place: project["optional-dependencies"].keys()
    for place, project in {".": TRAINER, "./envs": ENVS}.items()
}


def requirements(project):
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(text) for each in lists for text in each]


def test_the_environments_need_jax_flax_and_numpy_alone():
    assert {Requirement(text).name for text in ENVS["dependencies"]} == {"jax", "flax", "numpy"}


def test_both_have_one_version_and_the_trainer_asks_for_it():
    assert jaxmarl_ppo.__version__ == jaxmarl_envs.__version__
    (needed,) = [r for r in map(Requirement, TRAINER["dependencies"]) if r.name == "jaxmarl-envs"]
    assert str(needed.specifier) == f"=={jaxmarl_envs.__version__}"


def test_the_trainer_keeps_gymnax_and_distrax():
    needed = {Requirement(text).name for text in TRAINER["dependencies"]}
    assert {"gymnax", "distrax"} <= needed


def test_a_bound_is_said_once():
    bounded = {requirement.name for requirement in requirements(ENVS) if requirement.specifier}
    again = {r.name for r in requirements(TRAINER) if r.specifier and r.name in bounded}
    assert not again


def test_what_the_environments_can_use_is_an_extra_of_the_trainer_by_the_same_name():
    extras = TRAINER["optional-dependencies"]
    comes_anyway = {"gymnax", "gymnasium"}  # gymnax needs gymnasium
    for name in ENVS["optional-dependencies"].keys() - comes_anyway:
        assert f"jaxmarl-envs[{name}]" in extras[name]


def test_no_requirement_is_a_place():
    assert not [str(r) for each in (TRAINER, ENVS) for r in requirements(each) if r.url]


def read_all(*endings):
    """Read the files of the repository with these endings, but no tests, by name."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no clone")
    names = [name for name in listed.stdout.splitlines() if name.endswith(endings)]
    there = [name for name in names if not name.startswith("tests/") and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text() for name in there}


def test_every_command_that_installs_ours_does_so_from_the_clone():
    seen = set()
    for name, text in read_all(".md", ".py", ".sh", ".ipynb", "Makefile", "run").items():
        for line in re.findall(r"pip install ([^\n`]*)", text.replace("\\\n", " ")):
            assert not re.search(r"jaxmarl-(ppo|envs)", line), (name, line)
            places = re.findall(r"(?<![^\s'])(\./envs|\.)(?:\[([\w,-]+)\])?(?![^\s',`])", line)
            for place, extras in places:
                unknown = set(filter(None, extras.split(","))) - EXTRAS[place]
                assert not unknown, (name, line)
                # What the trainer needs of the environments is in the clone, too.
                assert place == "./envs" or "./envs" in line, (name, line)
                seen.add(place)
    assert seen == EXTRAS.keys()


@pytest.mark.parametrize(
    ("place", "folder", "call"),
    [
        ("./envs", "envs/", r'import_extra\(\s*"[\w.]+", "([\w-]+)"\)'),
        (".", "jaxmarl_ppo/", r"how_to_install\(['\"]([\w-]+)['\"]"),
    ],
    ids=["environments", "trainer"],
)
def test_errors_name_extras_that_there_are(place, folder, call):
    files = [text for name, text in read_all(".py").items() if name.startswith(folder)]
    named = {extra for text in files for extra in re.findall(call, text)}
    assert len(named) > 2
    assert named <= EXTRAS[place]
