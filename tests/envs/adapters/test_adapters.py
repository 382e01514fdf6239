import sys

import pytest

from jaxmarl_envs.adapters import import_extra


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "pettingzoo.utils", raising=False)  # of an earlier test
    with pytest.raises(ImportError, match=r"pip install '\./envs\[pettingzoo\]'"):
        import_extra("pettingzoo.utils", "pettingzoo")


def test_an_extra_that_is_there_is_imported():
    assert import_extra("json.decoder", "none").JSONDecoder


def test_what_an_extra_itself_misses_keeps_its_own_message(tmp_path, monkeypatch):
    (tmp_path / "an_extra.py").write_text("import something_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_there"):
        import_extra("an_extra", "an-extra")
