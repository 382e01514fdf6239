"""Episodes as animations and pictures, for slides and other pages."""

import io
from pathlib import Path

from jaxmarl_envs.drawing.svg import fixed_colours
from jaxmarl_ppo.evaluation.replay import Replay
from jaxmarl_ppo.machine.extras import how_to_install
from jaxmarl_ppo.machine.files import write_atomically

WIDTH = 480  # of an animation, in pixels
STEPS_PER_SECOND = 3


def write_svgs(folder: str | Path, replay: Replay) -> None:
    """Write every picture of an episode as a separate SVG file into a new folder.

    Raises:
        ValueError: If there is such a folder.
    """
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"{str(folder)!r} exists; choose a new folder for the pictures")
    folder.mkdir(parents=True)
    for step, drawing in enumerate(replay.drawings):
        write_atomically(folder / f"{step:04d}.svg", fixed_colours(drawing).encode())


def check_can_animate() -> None:
    """Check that the packages for animations are installed.

    Raises:
        ValueError: If they are.
    """
    try:
        import PIL  # noqa: F401
        import resvg_py  # noqa: F401
    except ImportError as error:
        raise ValueError(f"an animation needs {error.name}: {how_to_install('gif')}") from None


def write_gif(path: str | Path, replay: Replay) -> None:
    """Write an episode as an animation that holds its last picture for a while.

    Raises:
        ValueError: If a package is missing.
    """
    check_can_animate()
    import resvg_py
    from PIL import Image

    frames = []
    for drawing in replay.drawings:
        png = resvg_py.svg_to_bytes(
            fixed_colours(drawing), width=WIDTH, background="#ffffff", font_family="DejaVu Sans"
        )
        frames.append(Image.open(io.BytesIO(bytes(png))).convert("RGB"))
    pause = 1000 // STEPS_PER_SECOND
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        "GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[pause] * (len(frames) - 1) + [5 * pause],
        loop=0,
    )
    write_atomically(Path(path), buffer.getvalue())
