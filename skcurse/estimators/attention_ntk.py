"""The attention network of the curse-of-attention paper as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from skcurse.estimators._attention_kernels import tangent_eigenvalues, tangent_kernel
from skcurse.estimators._attention_parameters import check_parameters
from skcurse.estimators._attention_training import (
    descend_network,
    hold_data,
    initialise,
    linear_model,
    linear_networks,
    linear_table,
    linear_weights,
    network_steps,
    options,
    outputs,
    solve_linear,
    table_descent,
)
from skcurse.estimators._attention_warnings import warn_of_fit
from skcurse.estimators._resources import (
    checked_sample_weight,
    checked_target,
    parallel_map,
)
from skcurse.estimators._step_tasks import StepTasks, learned
from skcurse.theory.attention_ntk import last_step_attention
from skcurse.theory.infinite_width import gaussian_nodes, infinite_width_attention
from skcurse.theory.mean_attention import mean_last_step_attention

Array = NDArray[np.float64]


class AttentionNTKRegressor(CallbackSupportMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""One layer of softmax attention, trained by gradient descent, of finite or infinite width.

    Each row of X is a window whose last entry :math:`x_d` is the query. The output is
    :math:`f(x) = m^{-1/2} \sum_r a_r \langle \mathrm{softmax}(w_r x_d x), x \rangle` with fixed
    signs :math:`a_r` and weights :math:`w_r` that `fit` trains on
    :math:`\tfrac12 \sum_i s_i (f(x_i) - y_i)^2 + \tfrac\alpha2 \sum_r (w_r - w_r(0))^2`.

    Parameters
    ----------
    n_neurons : int, default=1024
        Width m; without effect in the infinite regime.
    regime : {"finite", "lazy", "infinite"}, default="finite"
        "finite": gradient descent on the network. "lazy": on its linearisation at initialisation,
        in closed form at step `max_iter`. "infinite": the same with the kernel of infinite width.
    solver : {"auto", "direct", "collocation"}, default="auto"
        "direct": the formula, in blocks. "collocation": a table, from which a step's cost grows
        neither with rows nor with their length nor, beyond about a thousand, with neurons; singular
        values below 1e-13 of the largest are cut. "auto": the cheaper one, but the formula where a
        closed form inverts features with a condition number above 1e6.
    learning_rate : "auto" or float, default="auto"
        Step size. "auto": one over the largest eigenvalue of the neural tangent kernel at
        initialisation plus `alpha`; 1 where the kernel is zero and nothing can move. Should a step
        of the finite regime lift the loss above its first value, "auto" halves it for good.
    max_iter : int, float or numpy.inf, default=1000
        Most steps, a whole number; infinity only in the regimes with a closed form, and there best
        with ``alpha > 0`` (see Notes).
    tol : float, default=1e-4
        The finite regime stops when the loss, summed over the columns of y, has changed by no more
        than this, relatively, over `n_iter_no_change` steps: scale columns alike.
    n_iter_no_change : int, default=10
        See `tol`.
    alpha : float, default=0.0
        Ridge towards initialisation; kernel ridge in the lazy and infinite regimes.
    init : {"antisymmetric", "iid"}, default="antisymmetric"
        "antisymmetric": two halves with the same weights and opposite signs, so that the network
        starts at zero; `n_neurons` must be even. "iid": all weights and signs independent.
    warm_start : bool, default=False
        Whether `fit` in the finite regime continues from the weights of the previous fit;
        `loss_curve_` and `n_iter_` tell of the last one. A closed form always starts at
        initialisation.
    n_jobs : int, default=None
        Workers for blocks of rows; never changes a result.
    random_state : int, RandomState instance or None, default=None
        Draws the initial weights.
    verbose : int, default=0
        Whether to print the loss at steps 1, 2, ..., 10, 20, ...

    Attributes
    ----------
    weights_ : ndarray of shape (n_neurons,) or (n_outputs, n_neurons)
        Trained weights; one network for each column of a two-dimensional y, all from the same
        start. Those of the linearised network in the lazy regime; not in the infinite one.
    initial_weights_ : ndarray of shape (n_neurons,)
        Weights at initialisation. Not in the infinite regime.
    signs_ : ndarray of shape (n_neurons,)
        Second layer. Not in the infinite regime.
    learning_rate_ : float
        The last step size.
    loss_curve_ : ndarray
        Losses, the first before any step: after each step of the finite regime, otherwise at
        `loss_steps_`.
    loss_steps_ : ndarray of shape (at most 1000,)
        Steps of the closed form that `loss_curve_` shows. Not in the finite regime.
    n_iter_ : int or float
        Steps taken.
    solver_ : {"direct", "collocation"}
        How the gradient, or the features of the closed form, were evaluated. "direct" too for a
        descent that began on a table and ended by the direct formula, as no table held its weights.
    compressed_ : CompressedNetwork or None
        The nodes that stand for the neurons in `predict`. Only with collocation; None where the
        direct formula answers, since nodes are too coarse for it or more than the neurons.
    regime_ : str
        The regime of the fit.
    node_breaks_, node_weights_ : ndarray
        Panels of the quadrature over weights, and the trained weights of its nodes. Only in the
        infinite regime.
    X_fit_, y_fit_, sample_weight_fit_, start_weights_, start_rate_, start_solver_
        What `staged_predict` replays: the rows of positive weight, and from where, with which step
        size and on which solver the descent started.
    n_features_in_ : int
        Length of the windows.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if all are strings.

    See Also
    --------
    ResidualLinearRegressor : Learns the change from the last entry by a linear map.

    Notes
    -----
    The network can only return tilted means of a window, so it cannot represent most targets; its
    training error stays far from zero on them.

    X should be centred and of unit scale, y with it: the query multiplies the scores, so on large
    values the softmax picks single entries, and the output is a tilted mean of the window, to which
    no intercept is added. Standardise a series before it is cut into windows; `fit` warns where it
    ends more than a tenth above the loss of predicting the mean of y.

    The kernel's small eigenvalues lie below what double precision resolves. Without ridge the limit
    ``max_iter=numpy.inf`` inverts them all the same, so that its predictions are made of rounding
    errors and differ between solvers; `fit` warns. ``alpha > 0`` or a finite `max_iter` helps.

    References
    ----------
    .. [1] Ke, Liang, Shi, Song, Yang, "Curse of Attention: A Kernel-Based Perspective for Why
       Transformers Fail to Generalize on Time Series Forecasting and Beyond", arXiv:2412.06061.

    Examples
    --------
    >>> import numpy as np
    >>> from skcurse.estimators.attention_ntk import AttentionNTKRegressor
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> model = AttentionNTKRegressor(n_neurons=64, regime="lazy", random_state=0).fit(X, X[:, -1])
    >>> round(model.score(X, X[:, -1]), 1)
    0.9
    """

    def __init__(
        self,
        n_neurons: int = 1024,
        *,
        regime: str = "finite",
        solver: str = "auto",
        learning_rate: float | str = "auto",
        max_iter: float = 1000,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        alpha: float = 0.0,
        init: str = "antisymmetric",
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_neurons = n_neurons
        self.regime = regime
        self.solver = solver
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.alpha = alpha
        self.init = init
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows, the newest value last.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the loss: 2 is a row twice, 0 a row left out.

        Returns
        -------
        AttentionNTKRegressor
            The fitted estimator; a fit that fails or is interrupted leaves it as it was.

        Raises
        ------
        ValueError
            If a parameter is out of range, values are too large to be represented, or the step size
            makes the descent diverge.

        Warns
        -----
        ConvergenceWarning
            If the finite regime ends at `max_iter`, or above the first loss, or where it began with
            nothing learnt; or if rounding errors dominate a closed form.
        UserWarning
            If the trained network is worse on the training rows than the mean of y.
        """
        check_parameters(self)
        learner = clone(self)
        data, target = validate_data(
            learner, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        target = checked_target(target)
        weight = checked_sample_weight(sample_weight, len(data))
        task: dict[str, Any] = {"estimator": self, "X": X, "y": y}
        if sample_weight is not None:
            task["metadata"] = {"sample_weight": sample_weight}
        n_tasks = int(self.max_iter) if self.regime == "finite" else 0
        root = self._init_callback_context(max_subtasks=n_tasks)
        root.call_on_fit_task_begin(**task)
        learner.regime_, learner.solver_ = self.regime, "direct"
        hold_data(learner, data, target, weight)
        if self.regime != "infinite":
            initialise(learner, self)
        with parallel_map(self.n_jobs) as blocks:
            if self.regime == "finite":
                with StepTasks(root, task, learner) as tasks:
                    run = descend_network(learner, tasks, blocks)
            else:
                run = None
                solve_linear(learner, blocks)
        warn_of_fit(learner, run)
        for name in learned(self):
            delattr(self, name)
        for name, value in learned(learner).items():
            setattr(self, name, value)
        root.call_on_fit_task_end(**task, reconstruction_attributes={})
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.floating]:
        """Output of the trained network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in single precision if X is.

        Raises
        ------
        ValueError
            If an output overflows.
        """
        X = self._windows(X)
        with parallel_map(self.n_jobs) as blocks:
            trained = self.node_weights_ if self.regime_ == "infinite" else self.weights_
            return outputs(self, X, trained, blocks, getattr(self, "compressed_", None))

    def staged_predict(self, X: ArrayLike) -> Iterator[NDArray[np.floating]]:
        """Replay the training and predict after each step.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Yields
        ------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions at the steps of ``loss_curve_[1:]``; the last equals `predict`.
        """
        X = self._windows(X)
        with parallel_map(self.n_jobs) as blocks:
            if self.regime_ == "finite":
                tabulated = self.start_solver_ == "collocation"
                descent = table_descent(self, blocks) if tabulated else None
                steps = network_steps(self, blocks, descent)
                for step in islice(steps, 1, self.n_iter_ + 1):
                    network = descent.network() if descent else None
                    yield outputs(self, X, step.weights, blocks, network)
            else:
                table = linear_table(self, blocks) if self.solver_ == "collocation" else None
                model = linear_model(self, blocks, table)
                networks = linear_networks(self, table, model)
                for n_steps in self.loss_steps_[1:]:
                    trained = partial(linear_weights, self, model, n_steps)
                    yield outputs(self, X, trained, blocks, networks(n_steps))

    def attention(self, X: ArrayLike) -> NDArray[np.floating]:
        """Softmax weight that each neuron puts on the last entry of each window.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.

        Returns
        -------
        ndarray of shape (n_samples, n_neurons) or (n_samples, n_outputs, n_neurons)
            Between 0 and 1. In the infinite regime one column, the average over w ~ N(0, 1).
        """
        X = self._windows(X)
        with parallel_map(self.n_jobs) as blocks:
            if self.regime_ == "infinite":
                nodes = gaussian_nodes(X)
                out = infinite_width_attention(X, nodes, **options(blocks))[:, None]
            else:
                networks = np.atleast_2d(self.weights_)
                out = np.stack(
                    [last_step_attention(X, w, **options(blocks)) for w in networks], axis=1
                )
                out = out[:, 0] if self.weights_.ndim == 1 else out
        return out.astype(X.dtype)

    def mean_attention(self, X: ArrayLike, *, sign: int = -1) -> float:
        """Mean of `attention` over rows and neurons of a sign, at a cost that is hardly theirs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.
        sign : {-1, 1}, default=-1
            The sign in `signs_`; of no effect in the infinite regime.

        Returns
        -------
        float
            Between 0 and 1; nan if no neuron has this sign.
        """
        X = self._windows(X)
        if self.regime_ == "infinite":
            return float(np.mean(self.attention(X)))
        weights = self.weights_[..., self.signs_ == sign]
        with parallel_map(self.n_jobs) as blocks:
            return mean_last_step_attention(X, weights, **options(blocks))

    def neural_tangent_kernel(
        self, X: ArrayLike, Y: ArrayLike | None = None, *, at: str = "fitted"
    ) -> Array:
        """Neural tangent kernel between windows.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Windows.
        Y : array-like of shape (n_samples_Y, n_features), default=None
            The other windows; default X.
        at : {"fitted", "initial"}, default="fitted"
            Which weights; no difference in the lazy and infinite regimes, whose kernel is constant.

        Returns
        -------
        ndarray of shape (n_samples_X, n_samples_Y) or (n_outputs, n_samples_X, n_samples_Y)
            The latter for the fitted networks of a two-dimensional y in the finite regime.

        Raises
        ------
        ValueError
            If the kernel overflows.
        """
        networks, shape = self._networks(at)
        X = self._windows(X)
        Y = None if Y is None else self._windows(Y)
        with parallel_map(self.n_jobs) as blocks:
            kernels = [
                tangent_kernel(X, Y, weights, solver=self.solver, blocks=blocks)
                for weights in networks
            ]
        return np.reshape(kernels, (*shape, *kernels[0].shape))

    def ntk_eigenvalues(self, X: ArrayLike, *, at: str = "fitted") -> Array:
        """Eigenvalues of the neural tangent kernel of windows, through singular values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Windows.
        at : {"fitted", "initial"}, default="fitted"
            Which weights; no difference in the lazy and infinite regimes, whose kernel is constant.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_outputs, n_samples)
            Descending. NaN stands for an eigenvalue that is not resolved: it is at most 1e-30 times
            the largest, or about 1e-26 where a table stands for many neurons or windows, which
            ``solver="direct"`` prevents. Those that are zero because there are fewer neurons than
            windows are 0.

        Raises
        ------
        ValueError
            If the kernel overflows.
        """
        networks, shape = self._networks(at)
        X = self._windows(X)
        with parallel_map(self.n_jobs) as blocks:
            spectra = [
                tangent_eigenvalues(X, weights, solver=self.solver, blocks=blocks)
                for weights in networks
            ]
        return np.reshape(spectra, (*shape, len(X)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Tilted means of a window cannot represent a linear map of its entries.
        tags.regressor_tags.poor_score = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "loss_curve_")

    def _windows(self, X: ArrayLike) -> NDArray[np.floating]:
        """Validate windows against the fitted ones."""
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32])

    def _networks(self, at: str) -> tuple[list[Any], tuple[int, ...]]:
        """Weights of the networks whose kernels are asked for, and the shape of their array."""
        check_is_fitted(self)
        if at not in ("fitted", "initial"):
            raise ValueError(f"at must be 'fitted' or 'initial'; got {at!r}.")
        if self.regime_ == "infinite":
            return [None], ()
        trained = self.regime_ == "finite" and at == "fitted"
        weights = self.weights_ if trained else self.initial_weights_
        return list(np.atleast_2d(weights)), weights.shape[:-1]
