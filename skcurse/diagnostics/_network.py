"""Weights, attention and signs of the attention network."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skcurse.diagnostics._innermost import innermost
from skcurse.scorer import held_out


def fitted_network(
    estimator: Any, X: Any, y: Any = None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Weights (n_outputs, m), initial weights (m,) and signs (m,), if the estimator has them."""
    estimator, _ = innermost(*held_out(estimator, X, y)[:2])
    names = ("weights_", "initial_weights_", "signs_")
    if not all(hasattr(estimator, name) for name in names):
        return None
    weights, initial, signs = (np.asarray(getattr(estimator, name), float) for name in names)
    return np.atleast_2d(weights), initial, signs


def weight_sign_alignment(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Share of neurons whose weight has the sign of their output, averaged over the two signs.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        In [0, 1]; 0.5 is chance, 1 is what the theorem claims with high probability. nan if the
        estimator has no such weights or all signs are equal.

    Notes
    -----
    :math:`\tfrac12\,(\Pr[w_r > 0 \mid a_r = 1] + \Pr[w_r < 0 \mid a_r = -1])`, the statement of
    [Curse], Theorem 5.2 (I.1). Its :math:`1-\delta` needs weights that move further than
    :math:`|w_r(0)| \sim 1`, which the lazy bound :math:`R \sim m^{-1/2}` of the same theorem
    excludes: at finite width expect values near 0.5-0.6, and see `update_alignment`.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import weight_sign_alignment
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> 0.0 <= weight_sign_alignment(model, X) <= 1.0
    True
    """
    network = fitted_network(estimator, X, y)
    if network is None:
        return np.nan
    weights, _, signs = network
    up, down = weights[:, signs > 0] > 0, weights[:, signs < 0] < 0
    return float((up.mean() + down.mean()) / 2) if up.size and down.size else np.nan


def update_alignment(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Share of neurons that moved in the direction of their output's sign.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        In [0, 1]; nan if the estimator has no such weights or none moved.

    Notes
    -----
    Mean of :math:`1\{\operatorname{sign}(w_r(t) - w_r(0)) = a_r\}`, neurons that did not move
    left out: the direction form of [Curse], Theorem 5.2 and Lemma I.3. It is exactly 1 after the
    first step from zero initialisation whenever
    :math:`\sum_i y_i x_{i,d} \mathrm{var}_r(x_i) > 0` for every neuron, and may fall later.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import update_alignment
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", max_iter=1, random_state=0).fit(X, y)
    >>> update_alignment(model, X)
    1.0
    """
    network = fitted_network(estimator, X, y)
    if network is None:
        return np.nan
    weights, initial, signs = network
    update = np.sign(weights - initial)
    moved = update != 0
    return float((update == signs)[moved].mean()) if moved.any() else np.nan


def weight_movement(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Largest distance a weight has moved from its initial value.

    Parameters
    ----------
    estimator : fitted estimator
        With ``weights_``, ``initial_weights_`` and ``signs_``, or a meta-estimator around one.
    X : array-like of shape (n_samples, n_features)
        Not used but by meta-estimators on the way.
    y : ignored

    Returns
    -------
    float
        :math:`R = \max_r |w_r(t) - w_r(0)|`, nan where it does not apply.

    Notes
    -----
    The radius R of [Curse], Lemma 5.1 (F.4), on which kernel stability rests.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import weight_movement
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> weight_movement(model, X) > 0
    True
    """
    network = fitted_network(estimator, X, y)
    if network is None:
        return np.nan
    weights, initial, _ = network
    return float(np.abs(weights - initial).max())


def last_step_attention(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    r"""Attention that the negative neurons pay to the last step, relative to uniform.

    Parameters
    ----------
    estimator : fitted estimator
        With ``attention(X)`` and ``signs_``, or a meta-estimator around one. A
        ``mean_attention(X, sign=-1)``, where there is one, spares all neurons' attention.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        d times the mean of :math:`S_{r,d}(x_i)` over rows and over neurons with
        :math:`a_r = -1`: 1 is uniform attention, 0 is a lost residual feature. nan where it does
        not apply.

    Notes
    -----
    [Curse], Theorem 5.3 (I.2): the softmax weight on the last step is small for
    :math:`a_r = -1`.

    Examples
    --------
    >>> from skcurse import AttentionNTKRegressor, make_residual_ssm
    >>> from skcurse.diagnostics import last_step_attention
    >>> X, y = make_residual_ssm(50, 8, random_state=0)
    >>> model = AttentionNTKRegressor(64, regime="lazy", random_state=0).fit(X, y)
    >>> last_step_attention(model, X) > 0
    True
    """
    estimator, X = innermost(*held_out(estimator, X, y)[:2])
    if not (hasattr(estimator, "signs_") and hasattr(estimator, "attention")):
        return np.nan
    n_features = np.shape(X)[1]
    if hasattr(estimator, "mean_attention"):
        return float(estimator.mean_attention(X, sign=-1) * n_features)
    attention = np.asarray(estimator.attention(X))  # (..., n, m)
    negative = attention[..., np.asarray(estimator.signs_) < 0]
    return float(negative.mean() * n_features) if negative.size else np.nan


def sign_agreement(estimator: Any, X: ArrayLike, y: Any = None) -> float:
    """Share of predictions with the sign of the last step.

    Parameters
    ----------
    estimator : fitted estimator
        Any regressor. ``last_step``, where it or what it wraps has this parameter, names the
        column of the newest value; otherwise that is the last one.
    X : array-like of shape (n_samples, n_features)
        Windows.
    y : ignored

    Returns
    -------
    float
        In [0, 1]. On the sign-inconsistent task 1 means always wrong in sign.

    Notes
    -----
    The mechanism of [Curse], Proposition 6.3 (J.2): attention copies the sign of :math:`x_d`. It
    does so only on data with gamma > 0.

    Examples
    --------
    >>> from skcurse import make_residual_ssm, ResidualLinearRegressor
    >>> from skcurse.diagnostics import sign_agreement
    >>> X, y = make_residual_ssm(100, 8, random_state=0)
    >>> 0.5 < sign_agreement(ResidualLinearRegressor().fit(X, y), X) <= 1.0
    True
    """
    estimator, X, _ = held_out(estimator, X, y)
    column = getattr(estimator, "last_step", getattr(innermost(estimator, X)[0], "last_step", -1))
    last = np.asarray(X, float)[:, column]
    predicted = np.asarray(estimator.predict(X))
    return float(np.mean(np.sign(last) == np.sign(predicted).T))  # .T: outputs broadcast over rows
