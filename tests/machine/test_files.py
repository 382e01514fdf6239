"""Files are written complete or not at all, and never through a link."""

import errno
import os
import stat
from pathlib import Path

import pytest

from jaxmarl_ppo.machine import files
from jaxmarl_ppo.machine.files import (
    names_in,
    open_atomically,
    open_to_append,
    path_part,
    reject_link,
    remove_left_behind,
    write_atomically,
)
from jaxmarl_ppo.runs.checkpoints import checkpoints_of


@pytest.fixture(name="outside")
def make_outside(tmp_path):
    path = tmp_path / "outside"
    path.write_bytes(b"the user's\n")
    return path


@pytest.fixture(name="run_dir")
def make_run_dir(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_file_takes_the_place_of_a_link(run_dir, outside, link):
    path = run_dir / "config.json"
    link(outside, path)
    write_atomically(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert not path.is_symlink()
    assert outside.read_bytes() == b"the user's\n"
    assert os.listdir(run_dir) == ["config.json"]


def test_a_temporary_file_is_new_and_its_name_cannot_be_foreseen(run_dir, outside, monkeypatch):
    """Even one that guesses the name only makes the writing fail."""
    names = []
    for _ in range(2):
        with open_atomically(run_dir / "a"):
            names += [name for name in os.listdir(run_dir) if name != "a"]
    assert len(set(names)) == 2
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 16)
    (run_dir / f".{'0' * 16}.tmp").symlink_to(outside)
    with pytest.raises(FileExistsError):
        write_atomically(run_dir / "b", b"ours")
    assert outside.read_bytes() == b"the user's\n"


def test_a_file_that_was_not_finished_leaves_nothing(run_dir):
    path = run_dir / "page.html"
    path.write_bytes(b"before")

    def write_half():
        with open_atomically(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert path.read_bytes() == b"before"
    assert os.listdir(run_dir) == ["page.html"]


def test_an_error_of_the_disk_names_the_file(run_dir, monkeypatch):
    def is_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", is_full)
    with pytest.raises(OSError, match=r"No space left on device: '.*page\.html'"):
        write_atomically(run_dir / "page.html", b"content")
    with pytest.raises(FileNotFoundError, match=r"none/page\.html'"):
        write_atomically(run_dir / "none" / "page.html", b"", make_folder=False)


def test_a_file_has_the_permissions_that_the_user_gives_new_files(run_dir):
    before = os.umask(0o027)
    try:
        write_atomically(run_dir / "a", b"")
        open_to_append(run_dir / "b", 0).close()
    finally:
        os.umask(before)
    for name in "ab":
        assert stat.S_IMODE((run_dir / name).stat().st_mode) == 0o640


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_log_that_is_a_link_is_continued_in_a_copy(run_dir, outside, link):
    path = run_dir / "metrics.jsonl"
    link(outside, path)
    with open_to_append(path, 4) as file:
        file.write(b"dog")
    assert path.read_bytes() == b"the dog"
    assert outside.read_bytes() == b"the user's\n"


def test_a_log_that_is_a_link_to_nothing_begins_empty(run_dir, tmp_path):
    path = run_dir / "metrics.jsonl"
    path.symlink_to(tmp_path / "absent")
    with open_to_append(path, 0) as file:
        file.write(b"ours")
    assert path.read_bytes() == b"ours"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("through_link", [False, True])
def test_a_log_is_no_pipe(run_dir, through_link):
    pipe = run_dir / "pipe"
    os.mkfifo(pipe)
    path = run_dir / "metrics.jsonl" if through_link else pipe
    if through_link:
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        open_to_append(path, 10)


def test_any_name_is_one_part_of_a_path(tmp_path):
    names = ["", ".", "..", "...", "a/b", "../a", "/", "a\nb", "car[0]", "x" * 300, "x" * 301]
    names += ["%2E", "\x1b[2J", "\N{SNOWMAN}" * 100, "Past", "a b", "\ud800"]
    for name in names:
        path = tmp_path / path_part(name)
        path.mkdir()
        assert path.resolve().parent == tmp_path.resolve()
    assert len(os.listdir(tmp_path)) == len(names)
    assert path_part("past-2_b.c") == "past-2_b.c"


def test_a_link_is_refused_by_name(run_dir, outside, tmp_path):
    reject_link(run_dir)
    reject_link(run_dir / "absent")
    reject_link(outside)
    (run_dir / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"run/checkpoints is a link to '.*' *; nothing"):
        reject_link(run_dir / "checkpoints")
    (run_dir / ".lock").hardlink_to(outside)
    with pytest.raises(ValueError, match=r"run/\.lock is a file with another name"):
        reject_link(run_dir / ".lock")


def test_what_a_dead_process_left_is_removed_once_it_is_old(run_dir, outside):
    old, new, other = (run_dir / f".{digit * 16}.tmp" for digit in "012")
    below = run_dir / "params" / old.name
    below.parent.mkdir()
    for path in (old, new, below, run_dir / ".mine.tmp"):
        path.write_bytes(b"")
    other.symlink_to(outside)
    for path in (old, below, run_dir / ".mine.tmp"):
        os.utime(path, (0, 0))
    os.utime(other, (0, 0), follow_symlinks=False)
    remove_left_behind(run_dir)
    assert sorted(os.listdir(run_dir)) == sorted([new.name, ".mine.tmp", "params"])
    assert not below.exists()
    assert outside.exists()


def test_a_folder_removed_while_it_is_read_has_nothing_in_it(tmp_path, monkeypatch):
    # As for a process that looks at a run at the very moment at which its folder is removed.
    monkeypatch.setattr(Path, "is_dir", lambda self: True)
    assert names_in(tmp_path / "gone") == []
    assert checkpoints_of(tmp_path / "gone") == []
    (tmp_path / "file").touch()
    assert names_in(tmp_path / "file") == []
    (tmp_path / "folder" / "within").mkdir(parents=True)
    assert names_in(tmp_path / "folder") == ["within"]
