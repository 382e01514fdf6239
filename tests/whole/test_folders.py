"""Tests lie in folders that are named after folders of the packages."""

from pathlib import Path

import pytest

import jaxmarl_envs
import jaxmarl_ppo

TESTS = Path(__file__).resolve().parents[1]
# Of the environments, of what belongs to no single folder, and what tests share.
BESIDE = {"envs", "whole", "support"}
MIRRORED = {".": jaxmarl_ppo, "envs": jaxmarl_envs}


def folders(path):
    return {file.parent.relative_to(path) for file in path.rglob("*.py")} - {Path()}


@pytest.mark.parametrize("place", MIRRORED)
def test_folders_of_tests_are_those_of_the_package(place):
    tests = {folder for folder in folders(TESTS / place) if folder.parts[0] not in BESIDE}
    assert tests
    assert tests <= folders(Path(MIRRORED[place].__path__[0]))


def test_every_test_lies_in_a_folder_for_tests():
    assert not list(TESTS.glob("test_*.py"))
    assert not list((TESTS / "support").rglob("test_*.py"))
