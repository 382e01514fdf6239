"""Policies as tables: a row of probabilities for each decision that a game can reach.

Letters: `D` decisions, `N` actions.
"""

import numpy as np

_TOLERANCE = 1e-4  # of a row's sum; float32 softmaxes stay far within it


def checked_policy(policy: np.ndarray, action_mask: np.ndarray, actions: str) -> np.ndarray:
    """Check a table of probabilities, and make its rows sum to 1 exactly.

    Args:
        policy: `[D, N]`.
        action_mask: `[D, N]` bool, what is legal.
        actions: what errors call actions, such as moves.

    Raises:
        ValueError: For another shape, negative numbers, illegal actions with a probability, or rows
            that do not sum to 1.
    """
    policy = np.asarray(policy, np.float64)
    if policy.shape != action_mask.shape:
        raise ValueError(
            f"policy of shape {policy.shape}: must be {action_mask.shape}, a row of probabilities "
            "for each decision"
        )
    if not (policy >= 0).all():  # False for NaN too
        raise ValueError(f"policy has the entry {policy.min()}: probabilities must be >= 0")
    illegal = np.where(action_mask, 0.0, policy).sum(1)
    if illegal.max() > _TOLERANCE:
        raise ValueError(
            f"policy gives illegal {actions} the probability {illegal.max():.6g} at decision "
            f"{illegal.argmax()}: only those of action_mask may have any"
        )
    error = np.abs(policy.sum(1) - 1)
    if not error.max() <= _TOLERANCE:
        raise ValueError(
            f"policy sums to {policy[error.argmax()].sum():.6g} at decision "
            f"{error.argmax()}: every row must sum to 1"
        )
    policy = np.where(action_mask, policy, 0.0)
    return policy / policy.sum(1, keepdims=True)


def uniform_over(chosen: np.ndarray) -> np.ndarray:
    """Spread probability evenly over the True entries of each row of `chosen [D, N]`."""
    return chosen / chosen.sum(1, keepdims=True)


def most_probable(policy: np.ndarray) -> np.ndarray:
    """Make the policy that always takes the first of the most probable actions, `[D, N]`."""
    return np.eye(policy.shape[1])[policy.argmax(1)]
