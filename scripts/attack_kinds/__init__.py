"""Kinds of attacks on runs, each a function that makes its attempts one after the other."""
