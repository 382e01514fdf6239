"""Commands, run in this process as the command line runs them."""

import pytest

from jaxmarl_ppo.cli import main as cli


def status_of(*words):
    """Exit status of a command; a single text is split at blanks."""
    words = words[0].split() if len(words) == 1 and isinstance(words[0], str) else words
    with pytest.raises(SystemExit) as caught:
        cli.main(list(map(str, words)))
    return caught.value.code or 0


def run(capsys, *words):
    """Exit status, standard output, standard error."""
    return status_of(*words), *capsys.readouterr()
