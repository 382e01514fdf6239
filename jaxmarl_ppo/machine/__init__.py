"""The computer: its cores, its signals and its files."""
