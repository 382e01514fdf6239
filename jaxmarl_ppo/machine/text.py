"""Text from elsewhere, shown as text: what would steer a terminal is escaped."""

from collections.abc import Iterable

LINES = "\n\t"  # what texts of several lines are laid out by


def printable(text: str, keep: str = "") -> str:
    r"""Write characters that are not printable, such as `\x1b`, as their escapes.

    Args:
        text: any text.
        keep: characters that stay all the same, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def in_picture(text: str) -> str:
    """Write text as matplotlib shows it, which would take what is between two `$` for formulas."""
    return printable(text).replace("$", r"\$")


def listed(names: Iterable[str]) -> str:
    """List names in one printable line."""
    return printable(", ".join(names))
