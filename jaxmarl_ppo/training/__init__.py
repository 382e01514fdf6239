"""The host's side of training: compile, call, log, save."""
