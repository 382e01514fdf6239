"""Covert communication with an eavesdropper, `crypto`, and its picture."""

from jaxmarl_envs.crypto.env import ALICE, BOB, EVE, NUM_SYMBOLS, Crypto, CryptoParams, CryptoState

__all__ = ["ALICE", "BOB", "EVE", "NUM_SYMBOLS", "Crypto", "CryptoParams", "CryptoState"]
