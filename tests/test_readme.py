"""The README's Python code runs as it stands."""

import re
from pathlib import Path

import jaxmarl_envs
from jaxmarl_envs import registry

README = Path(__file__).resolve().parent.parent / "README.md"


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_ENTRY_POINTS", dict(registry._ENTRY_POINTS))
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 3
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    assert (namespace["result"].run_dir / "curve.png").is_file()
    assert namespace["metrics"].sums.ticks.shape == (3,)
    assert jaxmarl_envs.make("whisper")[0].agents == ("speaker", "listener")
