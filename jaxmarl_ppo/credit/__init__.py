"""Which decision earned what."""
