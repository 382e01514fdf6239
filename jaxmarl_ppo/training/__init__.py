"""The host's side of training: call what was compiled, log, save."""
