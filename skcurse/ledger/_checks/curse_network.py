"""[Curse], Section 4.2, Appendices D and E: the network, its training and its gradient."""

import numpy as np
from scipy.special import ndtr

from skcurse.ledger._checks._draws import Array, moments, network, output, windows
from skcurse.ledger._finding import UNDER, Finding, identity, judged, largest, smallest, within
from skcurse.theory import attention_network, attention_ntk, ntk, tilted_moments

_STEP = 1e-30  # of the complex step, which costs no digits


def signs() -> Finding:
    """Definition D.1: signs are +1 and -1, equally often."""
    paired, free = (network(100_000, paired=paired)[1] for paired in (True, False))
    values = largest(np.abs(np.abs(a) - 1).max() for a in (paired, free))
    measured = {"mean sign, paired": abs(paired.mean()), "independent": abs(free.mean())}
    holds = values == 0 and paired.mean() == 0 and abs(free.mean()) < 0.01
    return judged(holds, "100,000 neurons", measured, yes=within(0.01))


def initial_weights() -> Finding:
    """Definition D.2: weights at initialisation are standard normal."""
    gap = 0.0
    for paired in (True, False):
        w = np.sort(network(100_000, paired=paired)[0])
        gap = largest(gap, np.abs(ndtr(w) - (np.arange(len(w)) + 0.5) / len(w)).max())
    return judged(
        gap < 0.01, "100,000 neurons", {"largest gap of the distribution": gap}, yes=within(0.01)
    )


def model() -> Finding:
    """Definition D.3: the output against the formula written out."""
    error = 0.0
    for d in (2, 5, 16):
        X, _ = windows(20, d=d)
        for paired in (True, False):
            w, a = network(64, paired=paired)
            F = output(X, w + 0.1 * a, a)
            error = largest(error, np.abs(attention_network.forward(X, w + 0.1 * a, a) - F).max())
    return identity(error, "20 windows of 2, 5 and 16 steps, 64 neurons")


def _case() -> tuple[Array, Array, Array, Array]:
    X, y = windows(12)
    w, a = network(32, paired=False)
    return X, y, w, a


def _written_loss(X: Array, y: Array, w: Array, a: Array) -> float:
    return float(0.5 * np.sum((output(X, w, a) - y) ** 2))


def loss() -> Finding:
    """Definition D.4: half the sum of squared residuals."""
    X, y, w, a = _case()
    expected = _written_loss(X, y, w, a)
    error = abs(attention_network.loss_gradient(X, y, w, a).loss / expected - 1)
    return identity(error, "12 windows, 32 neurons")


def descent() -> Finding:
    """Definition D.5: three steps of the library against steps by central differences."""
    X, y, w, a = _case()
    by_hand, h, eta = w.copy(), 1e-5, 0.2
    for _ in range(3):
        moved = by_hand + h * np.vstack([np.eye(len(w)), -np.eye(len(w))])
        up, down = np.split(np.array([_written_loss(X, y, v, a) for v in moved]), 2)
        by_hand = by_hand - eta * (up - down) / (2 * h)
    run = attention_ntk.gradient_descent(X, y, w, a, learning_rate=eta, max_iter=3, tol=0.0)
    tried = "3 steps of 0.2 from finite differences, 12 windows, 32 neurons"
    error = np.abs(run.weights - by_hand).max()
    return judged(error < 1e-8, tried, {"largest error": error}, yes=within(1e-8))


def zero_start() -> Finding:
    """Assumption D.7: outputs at initialisation."""
    X, _ = windows(50)
    paired, free = 0.0, np.inf
    for m in (2, 64, 4096):
        for seed in range(3):
            w, a = network(m, seed=seed)
            paired = largest(paired, np.abs(attention_network.forward(X, w, a)).max())
        w, a = network(m, paired=False)
        free = smallest(free, np.abs(attention_network.forward(X, w, a)).max())
    return judged(
        paired < 1e-13 < free,
        "50 windows, m 2 to 4096: holds for paired neurons, not for independent ones",
        {"largest output, paired": paired, "smallest maximum, independent": free},
        yes=UNDER,
    )


def exponentials() -> Finding:
    """Definitions E.1 to E.3: last-step attention against u_d / alpha."""
    X, _ = windows(20)
    w = np.linspace(-3, 3, 25)
    u = np.exp((X[:, -1:] * w)[:, :, None] * X[:, None, :])
    expected = u[:, :, -1] / u.sum(axis=2)
    error = np.abs(tilted_moments.last_step_attention(X, w) / expected - 1).max()
    return identity(error, "20 windows, 25 weights in [-3, 3]")


def tilted_means() -> Finding:
    """Definition E.4: outputs along a run against softmax and inner product."""
    X, y = windows(12)
    w, a = network(64)
    run = attention_ntk.gradient_descent(X, y, w, a, max_iter=20, tol=0.0)
    error = np.abs(attention_network.forward(X, run.weights, a) - output(X, run.weights, a)).max()
    return identity(error, "12 windows, 64 neurons after 20 steps")


def _complex_step() -> dict[str, tuple[Array, Array]]:
    """Derive u, alpha, 1/alpha, S and F in w, by a complex step and by the lemma."""
    X, _, w, a = _case()
    query, z = X[:, -1:], w + 1j * _STEP
    u = np.exp((query * z)[:, :, None] * X[:, None, :])
    alpha = u.sum(axis=2)
    S = u / alpha[:, :, None]
    G = np.sum(S * X[:, None, :], axis=2) * a / np.sqrt(len(a))
    mean = np.sum(S.real * X[:, None, :], axis=2)
    second = np.sum(S.real * X[:, None, :] ** 2, axis=2)
    xd, x, real = query[:, :, None], X[:, None, :], u.real
    by_lemma = {
        "u": xd * x * real,
        "alpha": query * np.sum(real * x, axis=2),
        "1/alpha": -query * mean / alpha.real,
        "S": xd * S.real * (x - mean[:, :, None]),
        "F": a / np.sqrt(len(a)) * query * (second - mean**2),
    }
    by_step = {"u": u, "alpha": alpha, "1/alpha": 1 / alpha, "S": S, "F": G}
    return {name: (by_step[name].imag / _STEP, by_lemma[name]) for name in by_lemma}


def _derivative(name: str) -> Finding:
    numeric, lemma = _complex_step()[name]
    error = np.abs(numeric - lemma).max() / np.abs(lemma).max()
    return identity(error, "12 windows, 32 neurons, by a complex step")


def derivative_of_u() -> Finding:
    """Lemma E.5, part 1."""
    return _derivative("u")


def derivative_of_alpha() -> Finding:
    """Lemma E.5, part 2."""
    return _derivative("alpha")


def derivative_of_inverse_alpha() -> Finding:
    """Lemma E.5, part 3."""
    return _derivative("1/alpha")


def derivative_of_softmax() -> Finding:
    """Lemma E.5, part 4."""
    return _derivative("S")


def derivative_of_output() -> Finding:
    """Lemma E.5, part 5: also against the library's features."""
    X, _, w, a = _case()
    numeric, _ = _complex_step()["F"]
    features = ntk.kernel_features(X, w) * a / np.sqrt(len(a))
    error = np.abs(features - numeric).max() / np.abs(numeric).max()
    return identity(error, "12 windows, 32 neurons, by a complex step, against the features")


def derivative_of_loss() -> Finding:
    """Lemma E.5, part 6: the library's gradient."""
    X, y, w, a = _case()
    numeric = (output(X, w, a) - y) @ _complex_step()["F"][0]
    gradient = attention_network.loss_gradient(X, y, w, a).gradient
    error = np.abs(gradient - numeric).max() / np.abs(numeric).max()
    return identity(error, "12 windows, 32 neurons, by a complex step")


def kernel() -> Finding:
    """Definition F.1: the kernel against the inner products of the outputs' derivatives."""
    X, _, w, _ = _case()
    J = _complex_step()["F"][0]
    H = ntk.neural_tangent_kernel(X, None, w)
    features = X[:, -1:] * moments(X, w)[1]
    error = largest(np.abs(H - J @ J.T).max(), np.abs(H - features @ features.T / len(w)).max())
    return identity(error / np.abs(H).max(), "12 windows, 32 neurons")


def initial_kernel() -> Finding:
    """Definition F.2: the spectrum of H(0), from singular values and from the matrix."""
    X, _, w, _ = _case()
    values = ntk.ntk_singular_values(X, w) ** 2
    matrix = np.linalg.eigvalsh(ntk.neural_tangent_kernel(X, None, w))[::-1]
    return identity(np.abs(values - matrix).max() / values[0], "12 windows, 32 neurons")
