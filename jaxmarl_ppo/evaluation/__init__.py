"""How good trained policies are."""
