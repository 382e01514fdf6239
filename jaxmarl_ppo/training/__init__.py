"""The host side of training: call compiled programs, log, save."""
