"""How often the counts of a prompt lie in the high-probability events of the analysis."""

from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft

from skcurse.theory.icl_moments import Array, check_population

Generator = np.random.Generator | np.random.RandomState

# Ends of an event that miss an integer, or a count, by less (relatively) meant to be on it.
_TIE = 1e-13


class CountEvent(NamedTuple):
    """An event on the counts and its probability; see `count_event`."""

    lower: Array
    upper: Array
    probability: float
    bound: float


class TailShare(NamedTuple):
    """A share of sampled prompts; see `l1_tail`."""

    share: float
    standard_error: float
    bound: float


def _poisson(mean: float) -> tuple[int, Array]:
    """First count and weights of a Poisson law, cut where its tails are below 1e-30."""
    if mean == 0:
        return 0, np.ones(1)
    spread = 12 * np.sqrt(mean) + 40
    counts = np.arange(max(0, int(mean - spread)), int(mean + spread) + 1)
    # Ratios of neighbours, not gammaln: the weights keep all digits when the mean is large.
    log_weights = np.append(0.0, np.cumsum(np.log(mean / counts[1:])))
    weights = np.exp(log_weights - log_weights.max())
    return int(counts[0]), weights / weights.sum()


def box_probability(p: ArrayLike, n_context: int, lower: ArrayLike, upper: ArrayLike) -> float:
    """Exact probability that multinomial counts lie in a box.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.
    lower, upper : array-like of shape (K,) or scalar
        The box ``lower[k] <= count of k <= upper[k]``, ends included.

    Returns
    -------
    float
        The probability, with an absolute error below 1e-11 up to N = 10^6.

    Raises
    ------
    ValueError
        If `p` or `n_context` is invalid, or a bound is not a number or fits no vector of K.

    Notes
    -----
    Derived. Multinomial counts are independent Poisson(N p_k) counts given their sum N; the
    probability that the truncated Poisson counts sum to N is one Fourier coefficient of the product
    of their characteristic functions. The cost is O(sqrt(N K) log(N K)) for each distinct feature.

    Examples
    --------
    >>> from skcurse.theory.icl_concentration import box_probability
    >>> round(box_probability([0.5, 0.5], 4, 1, 3), 12)
    0.875
    """
    p = check_population(p, n_context)
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if not {lower.shape, upper.shape} <= {(), (1,), p.shape}:
        raise ValueError(
            f"lower and upper must be numbers or have the shape of p, {p.shape}, got shapes "
            f"{lower.shape} and {upper.shape}."
        )
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("lower and upper must not contain NaN.")
    lower, upper = np.broadcast_to(lower, p.shape), np.broadcast_to(upper, p.shape)
    rows, repeats = np.unique(np.stack([p, lower, upper], axis=1), axis=0, return_counts=True)
    laws = []
    target, length = n_context, 1
    for (p_k, low, high), repeat in zip(rows, repeats, strict=True):
        start, weights = _poisson(n_context * p_k)
        counts = start + np.arange(weights.size)
        laws.append((np.where((low <= counts) & (counts <= high), weights, 0.0), repeat))
        target -= repeat * start
        length += repeat * (weights.size - 1)
    if not 0 <= target < length:
        return 0.0
    size = next_fast_len(int(length), real=True)
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    for weights, repeat in laws:
        transform *= rfft(weights, size) ** repeat
    start, weights = _poisson(float(n_context))
    inside = irfft(transform, size)[target] / weights[n_context - start]
    return float(np.clip(inside, 0.0, 1.0))


def count_event(p: ArrayLike, n_context: int, width: float) -> CountEvent:
    """Give the event that every count is within ``width N / K`` of its mean, with its probability.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features, balanced or with a dominant one.
    n_context : int
        Number of context tokens N.
    width : float
        The constant c of the event.

    Returns
    -------
    lower, upper : ndarray of shape (K,)
        Ends of the interval for each count, both included; where they miss an integer by
        rounding alone they are that integer.
    probability : float
        Exact share of prompts whose counts lie in the event.
    bound : float
        The lower bound on it, ``1 - 3 exp(-c² N / (25 K²))``. It holds when
        ``c >= sqrt(20 K³ / N)`` (and ``c <= K``), and is nan where that fails.

    Raises
    ------
    ValueError
        If `p` or `n_context` is invalid or `width` is not positive and finite.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Lemmas A.4
    and A.5.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.icl_concentration import count_event
    >>> event = count_event(np.full(5, 0.2), 10_000, width=0.5)
    >>> event.probability > event.bound
    True
    """
    p = check_population(p, n_context)
    if not (np.isfinite(width) and width > 0):
        raise ValueError(f"width must be positive and finite, got {width!r}.")
    k = p.size
    lower, upper = n_context * (p - width / k), n_context * (p + width / k)
    lower, upper = (_whole(ends, _TIE * upper) for ends in (lower, upper))
    probability = box_probability(p, n_context, lower, upper)
    return CountEvent(lower, upper, probability, 1 - _multinomial_tail(k, n_context, width / k))


def _whole(ends: Array, slack: Array) -> Array:
    """Integers in place of the ends that are within `slack` of one."""
    nearest = np.round(ends)
    return np.where(np.abs(ends - nearest) <= slack, nearest, ends)


def _multinomial_tail(n_features: int, n_context: int, delta: float) -> float:
    """Bound 3 exp(-N δ²/25) on the L1 tail where its premises K/N <= δ²/20, δ <= 1 hold."""
    if n_features / n_context > delta**2 / 20 or delta > 1:
        return float("nan")
    return float(3 * np.exp(-n_context * delta**2 / 25))


def l1_tail(
    p: ArrayLike, n_context: int, delta: float, *, rng: Generator, n_draws: int = 10_000
) -> TailShare:
    """Share of prompts whose counts are further than ``N delta`` from their means in L1.

    Counts at that very distance are no part of it, whatever rounding makes of them.

    Parameters
    ----------
    p : array-like of shape (K,)
        Probabilities of the features.
    n_context : int
        Number of context tokens N.
    delta : float
        The distance, as a fraction of N.
    rng : Generator or RandomState
        Source of the sampled counts.
    n_draws : int, default=10_000
        Number of sampled prompts.

    Returns
    -------
    share : float
        Share of sampled prompts in the tail.
    standard_error : float
        Of `share`: the larger of the binomial one and ``1 / n_draws``.
    bound : float
        The bound ``3 exp(-N delta² / 25)``, nan unless ``K / N <= delta² / 20`` and delta <= 1.

    Raises
    ------
    ValueError
        If `p` or `n_context` is invalid, `delta` is not positive, `n_draws` is not an integer of
        at least 1 or `rng` is not a source of random numbers.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249, Lemma A.3.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.theory.icl_concentration import l1_tail
    >>> tail = l1_tail(np.full(4, 0.25), 1000, 0.3, rng=np.random.default_rng(0))
    >>> tail.share <= tail.bound
    True
    """
    p = check_population(p, n_context)
    if not delta > 0:
        raise ValueError(f"delta must be positive, got {delta!r}.")
    if not isinstance(n_draws, Integral) or isinstance(n_draws, bool) or n_draws < 1:
        raise ValueError(f"n_draws must be an integer of at least 1, got {n_draws!r}.")
    if not isinstance(rng, Generator):
        raise ValueError(f"rng must be a numpy Generator or RandomState, got {rng!r}.")
    counts: NDArray[np.int64] = rng.multinomial(n_context, p, size=n_draws)
    distances = np.abs(counts - n_context * p).sum(axis=1)
    share = float(np.mean(distances > n_context * (delta + _TIE)))
    error = max(np.sqrt(share * (1 - share) / n_draws), 1 / n_draws)
    return TailShare(share, float(error), _multinomial_tail(p.size, n_context, delta))
