import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def to_file(text, form="toml"):
        path = tmp_path / f"run.{form}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file
