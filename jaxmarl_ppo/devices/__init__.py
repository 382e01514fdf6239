"""One program on many chips."""
