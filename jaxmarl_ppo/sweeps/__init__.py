"""Many runs: several at once, and searches over their configurations."""
