"""Windows of several kinds, for tests of the features they contribute."""

import numpy as np


def draw(kind, n_samples, seed=0):
    """Windows of a kind, n_samples of them."""
    rng = np.random.default_rng(seed)
    X = {
        "normal": lambda: rng.standard_normal((n_samples, 12)),
        "heavy tails": lambda: rng.standard_t(3, (n_samples, 12)),
        "far from zero": lambda: 300.0 + rng.standard_normal((n_samples, 12)),
        "trend": lambda: rng.standard_normal((n_samples, 1)) * np.linspace(0, 1, 12),
        "two values": lambda: rng.choice([-1.0, 1.0], (n_samples, 12)),
    }[kind]()
    X[0] = X[1]  # duplicates
    X[2] = 3.0  # no range
    X[3, -1] = 0.0  # no query
    return X


def width(X):
    """What the distance of the poles from the real axis is inversely proportional to."""
    return np.abs(X[:, -1]) * np.ptp(X, axis=1)


KINDS = ["normal", "heavy tails", "far from zero", "trend", "two values"]
