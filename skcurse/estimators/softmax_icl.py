"""A softmax attention layer that learns in context, as a scikit-learn regressor."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from skcurse.estimators._icl_examples import (
    Batch,
    Examples,
    check_magnitude,
    held_out_rows,
    leave_one_out_examples,
    prompt_context,
    prompt_examples,
    row_context,
)
from skcurse.estimators._icl_training import descend
from skcurse.estimators._resources import (
    block_bytes,
    check_number,
    checked_sample_weight,
    checked_target,
)
from skcurse.estimators._step_tasks import learned
from skcurse.theory.softmax_icl import attention, predict

Array = NDArray[np.float64]
_FLOATS = [np.float64, np.float32]


class SoftmaxICLRegressor(CallbackSupportMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""In-context regression by one softmax attention layer with a trained query-key matrix.

    The prediction for a query x is the attention-weighted mean of the labels in its context,
    :math:`\hat y = \sum_i \mathrm{softmax}_i(x_i^\top Q x)\, y_i`. `fit` minimises half the mean
    squared error over Q by full-batch gradient descent from Q = 0.

    Parameters
    ----------
    n_context : int, default=None
        An integer N: each row of X is a flattened prompt with a context of its own: N tokens in
        order, each its features x then its label y, then the features of the query (as
        `skcurse.datasets.pack_prompts` lays them out). ``None``: rows are ordinary samples, and
        the context of each is the training set: without the row itself while fitting.
    learning_rate : float or "auto", default="auto"
        Step size. ``"auto"`` is one step size, halved until the first step gains half of what its
        slope promises, and halved again, for good, whenever a step would raise the loss.
    max_iter : int, default=100
        Largest number of steps.
    tol : float, default=1e-4
        Stop when the relative decrease of the loss over `n_iter_no_change` steps is at most this.
    n_iter_no_change : int, default=10
        See `tol`.
    alpha : float, default=0.0
        Adds :math:`\frac{\alpha}{2} \|Q\|_F^2` to the loss.
    early_stopping : bool, default=False
        Watch the loss on held-out rows in place of the training loss and keep the best Q.
    validation_fraction : float, default=0.1
        Share of distinct rows held out. Equal rows are always on the same side.
    warm_start : bool, default=False
        Start from the `query_key_` of the previous fit.
    random_state : int, RandomState instance or None, default=None
        Chooses the held-out rows.
    verbose : int, default=0
        Print the loss after every step.

    Attributes
    ----------
    query_key_ : ndarray of shape (d, d)
        The matrix Q; d is the number of features of a token.
    loss_curve_ : list of float
        Training loss at the start and after each step: half the mean of the squared errors, summed
        over the columns of a two-dimensional y, plus the ridge term.
    validation_loss_curve_ : list of float
        The same on the held-out rows; only with `early_stopping`.
    n_iter_ : int
        Number of steps.
    learning_rate_ : float
        The last step size.
    loo_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Leave-one-out predictions for the training rows; only with ``n_context=None``.
    X_fit_, y_fit_, sample_weight_fit_ : ndarray
        The training set, which `predict` attends to; only with ``n_context=None``.
    output_shape_ : tuple
        ``()`` for 1-D y, else ``(n_outputs,)``.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names, where X has them.

    Notes
    -----
    With ``n_context=None``, `sample_weight` holds multiplicities: weight 2 is a row twice and
    weight 0 a row that is absent. The mass of row j in the context of row i is
    :math:`w_j - 1\{i = j\}`, at least 0, and the loss is weighted by w. So a row sees an exact
    duplicate of itself, label included. `predict` attends to all training rows: asked for a
    training row it sees that row's own label, and `loo_prediction_` is the honest one.

    Tokens that repeat are replaced by counts, so that the cost of a step depends on the number of
    distinct tokens and not on `n_context`. Computation is in double precision; results for float32
    input are returned as float32.

    References
    ----------
    Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249. The reading
    on ordinary rows is derived.

    Examples
    --------
    >>> from skcurse.datasets import make_icl_prompts
    >>> from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
    >>> X, y = make_icl_prompts(500, n_context=20, vocabulary_size=4, random_state=0)
    >>> model = SoftmaxICLRegressor(n_context=20, tol=0.05).fit(X, y)
    >>> X_new, y_new = make_icl_prompts(500, n_context=20, vocabulary_size=4, random_state=1)
    >>> model.score(X_new, y_new) > 0.9
    True
    """

    def __init__(
        self,
        n_context: int | None = None,
        *,
        learning_rate: float | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        alpha: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_context = n_context
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.alpha = alpha
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    @with_callbacks
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the query-key matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Flattened prompts, or ordinary rows (see `n_context`).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels of the queries.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplicities of the rows.

        Returns
        -------
        SoftmaxICLRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If the columns do not fit `n_context`, a row has no context, values are too large to
            be scored, or a fixed step size diverges.
        """
        self._check_parameters()
        # Learn on a copy: a fit that fails or is interrupted leaves the estimator as it was.
        learner = clone(self)
        rows, target = validate_data(
            learner, X, y, dtype=_FLOATS, order="C", multi_output=True, y_numeric=True
        )
        target = checked_target(target)
        weight = checked_sample_weight(sample_weight, len(rows))
        check_magnitude(X=rows, y=target)
        task: dict[str, Any] = {"estimator": self, "X": X, "y": y}
        if weight is not None:
            task["metadata"] = {"sample_weight": sample_weight}
        root = self._init_callback_context(max_subtasks=self.max_iter)
        root.call_on_fit_task_begin(**task)

        learner.output_shape_ = target.shape[1:]
        weight = np.ones(len(rows)) if weight is None else weight
        if self.n_context is None:
            learner.X_fit_, learner.y_fit_ = rows.copy(), target.copy()
            learner.sample_weight_fit_ = weight.copy()
        training, held_out = self._examples(
            rows.astype(np.float64, copy=False), target.astype(np.float64, copy=False), weight
        )
        learner.query_key_ = self._start(training.tokens.shape[-1])
        descend(learner, training, held_out, root, task)
        learner.query_key_ = _in_precision_of(rows, learner.query_key_, "The query-key matrix")
        if self.n_context is None:
            learner.loo_prediction_ = learner._predict(rows, leave_one_out=True)
        for name in learned(self):
            delattr(self, name)
        self.__dict__.update(learned(learner))
        root.call_on_fit_task_end(**task, reconstruction_attributes={})
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.floating]:
        """Attention-weighted mean of the labels in context.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Flattened prompts, or ordinary rows, which attend to all training rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in single precision if X is.

        Raises
        ------
        ValueError
            If attention scores overflow.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=_FLOATS, order="C")
        return self._predict(rows, leave_one_out=False)

    def attention(self, X: ArrayLike) -> NDArray[np.floating]:
        """Attention of each row to the tokens of its context.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Flattened prompts, or ordinary rows.

        Returns
        -------
        ndarray of shape (n_samples, n_context) or (n_samples, n_training_samples)
            Non-negative, each row adds up to 1.

        Raises
        ------
        ValueError
            If attention scores overflow.

        Examples
        --------
        >>> from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
        >>> X, y = [[-1.0], [0.0], [1.0], [2.0]], [-1.0, 0.0, 1.0, 2.0]
        >>> model = SoftmaxICLRegressor(tol=0.1).fit(X, y)
        >>> model.attention([[2.0]]).round(2)
        array([[0.  , 0.  , 0.04, 0.95]])
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=_FLOATS, order="C")
        context, query = self._context(rows)
        del context["labels"]
        return attention(query=query, query_key=self.query_key_, **context).astype(rows.dtype)

    def bilinear_weights(self, features: ArrayLike) -> tuple[Array, Array]:
        r"""Query-key matrix in the coordinates of given features.

        Parameters
        ----------
        features : array-like of shape (K, d)
            Features :math:`v_k` as rows.

        Returns
        -------
        A : ndarray of shape (K,)
            :math:`A_k = v_k^\top Q v_k`.
        B : ndarray of shape (K, K)
            :math:`B_{k,n} = v_n^\top Q v_k` at ``B[k, n]``; nan on the diagonal.

        Raises
        ------
        ValueError
            If the features do not have as many columns as `query_key_`.

        References
        ----------
        Huang, Cheng, Liang, *In-Context Convergence of Transformers*, arXiv:2310.05249,
        Definition 4.1.

        Examples
        --------
        >>> from skcurse.datasets import ICLPrompts
        >>> from skcurse.estimators.softmax_icl import SoftmaxICLRegressor
        >>> model = ICLPrompts(n_context=20, vocabulary_size=3)
        >>> X, y = model.sample(500, random_state=0)
        >>> estimator = SoftmaxICLRegressor(20, max_iter=1000, tol=0.05).fit(X, y)
        >>> A, B = estimator.bilinear_weights(model.features())
        >>> bool((A > 0).all())
        True
        """
        check_is_fitted(self)
        V = check_array(features, dtype=np.float64, input_name="features")
        if V.shape[1] != len(self.query_key_):
            raise ValueError(
                f"features must have {len(self.query_key_)} columns like the tokens the estimator "
                f"was fitted to, got {V.shape[1]}."
            )
        B = V @ self.query_key_.T @ V.T
        A = np.diag(B).copy()
        np.fill_diagonal(B, np.nan)
        return A, B

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "query_key_")

    def _check_parameters(self) -> None:
        """Raise for a parameter that is out of range."""
        if isinstance(self.learning_rate, str) and self.learning_rate != "auto":
            raise ValueError(
                f"learning_rate must be 'auto' or a positive number, got {self.learning_rate!r}."
            )
        if not isinstance(self.learning_rate, str):
            check_number(
                self.learning_rate, "learning_rate", min_val=0, include_boundaries="neither"
            )
        if self.n_context is not None:
            check_scalar(self.n_context, "n_context", Integral, min_val=1)
        for name in ("max_iter", "n_iter_no_change"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        for name in ("tol", "alpha"):
            check_number(getattr(self, name), name, min_val=0)
        fraction = self.validation_fraction
        check_number(
            fraction,
            "validation_fraction",
            min_val=0,
            max_val=1,
            include_boundaries="neither",
        )

    def _start(self, n_features: int) -> Array:
        """Return the matrix that descent starts from."""
        if not (self.warm_start and hasattr(self, "query_key_")):
            return np.zeros((n_features, n_features))
        if len(self.query_key_) != n_features:
            raise ValueError(
                f"warm_start=True goes on from a query_key_ for tokens of {len(self.query_key_)} "
                f"features, but X has tokens of {n_features}."
            )
        return self.query_key_.astype(np.float64)

    def _examples(self, X: Array, y: Array, weight: Array) -> tuple[Batch, Batch | None]:
        """Training examples, and the held-out ones if there are to be any."""
        held = np.zeros(len(X), dtype=bool)
        if self.early_stopping:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            held = held_out_rows(X, weight, self.validation_fraction, seed)
        # A mask copies: without held-out rows there is nothing to take away.
        train = ~held if self.early_stopping else slice(None)
        if self.n_context is not None:
            n = self.n_context
            training = prompt_examples(X[train], y[train], weight[train], n)
            if not self.early_stopping:
                return training, None
            return training, prompt_examples(X[held], y[held], weight[held], n)
        training = leave_one_out_examples(X[train], y[train], weight[train])
        if not self.early_stopping:
            return training, None
        context = row_context(X[train], y[train], weight[train])
        return training, Examples(context, X[held], y[held], weight[held])

    def _context(self, X: NDArray[Any]) -> tuple[dict[str, Any], Array]:
        """Contexts and queries of new rows."""
        query = X.astype(np.float64, copy=False)
        if self.n_context is not None:
            return prompt_context(query, self.n_context, self.output_shape_)
        y = self.y_fit_.astype(np.float64, copy=False)
        return row_context(self.X_fit_, y, self.sample_weight_fit_), query

    def _predict(self, X: NDArray[Any], leave_one_out: bool) -> NDArray[Any]:
        """Predictions for validated rows, in their precision."""
        context, query = self._context(X)
        prediction = predict(
            query=query,
            query_key=self.query_key_,
            leave_one_out=leave_one_out,
            block_bytes=block_bytes(),
            **context,
        )
        return _in_precision_of(X, prediction, "Predictions")


def _in_precision_of(X: NDArray[Any], values: Array, what: str) -> NDArray[Any]:
    """Values in the precision of X, unless they overflow it."""
    with np.errstate(over="ignore"):
        cast = values.astype(X.dtype)
    if not np.isfinite(cast).all():
        raise ValueError(f"{what} overflow {X.dtype}: rescale X and y, or pass X as float64.")
    return cast
