"""The space of what stands for numbers in the mask of a tuple."""

from typing import Any

from jaxmarl_envs.adapters import import_extra

gymnasium = import_extra("gymnasium", "gymnasium")


class NoMask(gymnasium.Space):
    """None alone, which is all that `Box.sample` takes for a mask."""

    def __init__(self) -> None:
        super().__init__()

    @property
    def is_np_flattenable(self) -> bool:
        """Return that there is nothing to flatten."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> None:
        """Draw None."""

    def contains(self, x: Any) -> bool:
        """Return whether `x` is None."""
        return x is None

    def __repr__(self) -> str:
        """Write the space as code."""
        return "NoMask()"

    def __eq__(self, other: object) -> bool:
        """Return whether the other space is of the same kind."""
        return isinstance(other, NoMask)

    __hash__ = None  # pyright: ignore[reportAssignmentType]
