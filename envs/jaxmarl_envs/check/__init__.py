"""Does an environment keep the contract? Every rule, in one sentence what is broken."""
