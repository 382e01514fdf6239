"""(m, n, k) games: three in a row and larger boards."""
