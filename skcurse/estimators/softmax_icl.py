"""A softmax attention layer that learns in context, as a scikit-learn regressor."""

import warnings
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import sklearn
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state, check_scalar, murmurhash3_32
from sklearn.utils.validation import check_is_fitted, validate_data

from skcurse.theory.softmax_icl import (
    LossGradient,
    attention,
    count_tokens,
    gradient_descent,
    loss_gradient,
    predict,
    unpack_prompts,
)

Array = NDArray[np.float64]


class _Examples(NamedTuple):
    """Contexts, queries and targets of one loss, as the theory functions take them."""

    context: dict[str, Any]
    query: Array
    target: Array
    weight: Array

    def loss_gradient(self, query_key: Array, alpha: float) -> LossGradient:
        return loss_gradient(
            query=self.query,
            target=self.target,
            query_key=query_key,
            sample_weight=self.weight,
            alpha=alpha,
            block_bytes=_block_bytes(),
            **self.context,
        )


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
        Step size. ``"auto"`` is one step size found by doubling and halving on the loss after the
        first step; it is halved, and kept halved, whenever a step would raise the loss.
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
        Training loss at the start and after each step.
    validation_loss_curve_ : list of float
        The same on the held-out rows; only with `early_stopping`.
    n_iter_ : int
        Number of steps.
    learning_rate_ : float
        The last step size.
    loo_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Leave-one-out predictions for the training rows; only with ``n_context=None``.
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
    >>> model = SoftmaxICLRegressor(n_context=20).fit(X, y)
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
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "SoftmaxICLRegressor":
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
        # Learn on a copy: an interrupted or failed fit leaves the estimator as it was.
        learner = clone(self)
        data, target = validate_data(
            learner, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True
        )
        weight = _checked_weight(sample_weight, len(data))
        _check_magnitude(X=data, y=target)
        task = {"estimator": self, "X": X, "y": y}
        if sample_weight is not None:
            task["metadata"] = {"sample_weight": sample_weight}
        root = self._init_callback_context(max_subtasks=self.max_iter)
        root.call_on_fit_task_begin(**task)

        learner.output_shape_ = target.shape[1:]
        if self.n_context is None:
            learner.X_fit_, learner.y_fit_, learner.sample_weight_fit_ = data, target, weight
        training, held_out = self._examples(
            data.astype(np.float64), target.astype(np.float64), weight
        )
        learner.query_key_ = self._start(training.query.shape[1])
        _descend(learner, training, held_out, root, task)
        if self.n_context is None:
            learner.loo_prediction_ = learner._predict(data, leave_one_out=True)
        for name in _learned(self):
            delattr(self, name)
        vars(self).update(_learned(learner))
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
            Predictions.

        Raises
        ------
        ValueError
            If attention scores overflow.
        """
        check_is_fitted(self)
        return self._predict(
            validate_data(self, X, reset=False, dtype=[np.float64, np.float32]), False
        )

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
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        context, query = self._context(X)
        del context["labels"]
        return attention(query=query, query_key=self.query_key_, **context).astype(X.dtype)

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
        """
        check_is_fitted(self)
        features = check_array(features, dtype=np.float64, input_name="features")
        if features.shape[1] != len(self.query_key_):
            raise ValueError(
                f"features must have {len(self.query_key_)} columns like the tokens the estimator "
                f"was fitted to, got {features.shape[1]}."
            )
        weights = features @ self.query_key_.T @ features.T
        return np.diag(weights).copy(), np.where(np.eye(len(weights), dtype=bool), np.nan, weights)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "query_key_")

    def _check_parameters(self) -> None:
        """Raise for a parameter that is out of range."""
        if self.n_context is not None:
            check_scalar(self.n_context, "n_context", Integral, min_val=1)
        if not (isinstance(self.learning_rate, str) and self.learning_rate == "auto"):
            if isinstance(self.learning_rate, str):
                raise ValueError(
                    f"learning_rate must be 'auto' or a positive number, got "
                    f"{self.learning_rate!r}."
                )
            check_scalar(
                self.learning_rate, "learning_rate", Real, min_val=0, include_boundaries="neither"
            )
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        check_scalar(self.tol, "tol", Real, min_val=0)
        check_scalar(self.n_iter_no_change, "n_iter_no_change", Integral, min_val=1)
        check_scalar(self.alpha, "alpha", Real, min_val=0)
        check_scalar(
            self.validation_fraction,
            "validation_fraction",
            Real,
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
                f"warm_start=True continues from a query_key_ for {len(self.query_key_)} features, "
                f"but X has tokens of {n_features}."
            )
        return self.query_key_.astype(np.float64)

    def _examples(self, X: Array, y: Array, weight: Array) -> tuple[_Examples, _Examples | None]:
        """Training examples, and the held-out ones if there are to be any."""
        n = len(X)
        held = np.zeros(n, dtype=bool)
        if self.early_stopping:
            seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
            held = _held_out(X, weight, self.validation_fraction, seed)
        train = ~held
        if self.n_context is not None:
            training = _prompt_examples(X[train], y[train], weight[train], self.n_context)
            if not self.early_stopping:
                return training, None
            return training, _prompt_examples(X[held], y[held], weight[held], self.n_context)
        _check_leave_one_out(weight[train])
        y = y - np.average(y[train], axis=0, weights=weight[train])
        context = _row_context(X[train], y[train], weight[train])
        training = _Examples({**context, "leave_one_out": True}, X[train], y[train], weight[train])
        return training, (
            _Examples(context, X[held], y[held], weight[held]) if self.early_stopping else None
        )

    def _context(self, X: NDArray[np.floating]) -> tuple[dict[str, Any], Array]:
        """Contexts and queries of new rows."""
        X = X.astype(np.float64)
        if self.n_context is None:
            return _row_context(self.X_fit_, self.y_fit_, self.sample_weight_fit_), X
        tokens, labels, query = _unpack(X, self.n_context, self.output_shape_)
        return {"tokens": tokens, "labels": labels}, query

    def _predict(self, X: NDArray[np.floating], leave_one_out: bool) -> NDArray[np.floating]:
        """Predictions for validated rows, in their precision."""
        context, query = self._context(X)
        offset = 0.0
        if self.n_context is None:
            offset = np.average(self.y_fit_, axis=0, weights=self.sample_weight_fit_)
            context["labels"] = context["labels"] - offset
        prediction = predict(
            query=query,
            query_key=self.query_key_,
            leave_one_out=leave_one_out,
            block_bytes=_block_bytes(),
            **context,
        )
        return (prediction + offset).astype(X.dtype)


def _descend(
    learner: SoftmaxICLRegressor,
    training: _Examples,
    held_out: _Examples | None,
    root: CallbackContext,
    task: dict[str, Any],
) -> None:
    """Run gradient descent from `query_key_` and leave the result on `learner`."""
    descent = gradient_descent(
        lambda query_key: training.loss_gradient(query_key, learner.alpha),
        learner.query_key_,
        learning_rate=learner.learning_rate,
    )
    step = next(descent)
    learner.loss_curve_ = [step.loss]
    watched = learner.loss_curve_
    if held_out is not None:
        watched = learner.validation_loss_curve_ = [
            held_out.loss_gradient(step.query_key, 0.0).loss
        ]
    stopped = False
    for n_iter in range(1, learner.max_iter + 1):
        iteration = root.subcontext(task_name="step").call_on_fit_task_begin(
            **task, reconstruction_attributes=lambda: _learned(learner)
        )
        step = next(descent)
        learner.loss_curve_.append(step.loss)
        learner.n_iter_, learner.learning_rate_ = n_iter, step.learning_rate
        if held_out is not None:
            watched.append(held_out.loss_gradient(step.query_key, 0.0).loss)
        if held_out is None or watched[-1] <= min(watched):
            learner.query_key_ = step.query_key
        if learner.verbose:
            print(f"Step {n_iter}, loss {step.loss:.6g}, rate {step.learning_rate:.3g}")
        stopped = iteration.call_on_fit_task_end(
            **task, reconstruction_attributes=lambda: _learned(learner)
        ) or _stalled(watched, learner.tol, learner.n_iter_no_change)
        if stopped:
            return
    warnings.warn(
        f"{type(learner).__name__} reached max_iter={learner.max_iter} before the loss settled to "
        f"tol={learner.tol:g}. Raise max_iter or tol, or set early_stopping=True.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _learned(estimator: BaseEstimator) -> dict[str, Any]:
    """Attributes that fit has set."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def _stalled(losses: list[float], tol: float, n_iter_no_change: int) -> bool:
    """Whether the best loss has not gone down by the factor 1 - tol in the last steps."""
    if len(losses) <= n_iter_no_change:
        return False
    return min(losses[-n_iter_no_change:]) >= (1 - tol) * min(losses[:-n_iter_no_change])


def _block_bytes() -> int:
    return int(sklearn.get_config()["working_memory"] * 2**20)


def _checked_weight(sample_weight: ArrayLike | None, n: int) -> Array:
    """Multiplicities as an array."""
    if sample_weight is None:
        return np.ones(n)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (n,) or (weight < 0).any() or not weight.any():
        raise ValueError(
            f"sample_weight must hold {n} non-negative numbers that are not all zero, one for each "
            f"row; its shape is {weight.shape}."
        )
    return weight


def _check_magnitude(**arrays: NDArray[np.floating]) -> None:
    """Keep the gradient, made of products of features and labels, representable."""
    for name, array in arrays.items():
        largest = max(abs(float(array.max())), abs(float(array.min())))
        if largest > 1e45 or 0 < largest < 1e-45:
            raise ValueError(
                f"The largest magnitude in {name} is {largest:g}: outside 1e-45 to 1e45 the "
                "gradient overflows or vanishes. Rescale, for example with StandardScaler."
            )


def _check_leave_one_out(weight: Array) -> None:
    present = np.count_nonzero(weight)
    if present < 2 and weight.max() <= 1:
        raise ValueError(
            f"Leave-one-out needs at least two training rows, got n_samples={present} of positive "
            "weight."
        )


def _held_out(X: Array, weight: Array, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Choose distinct rows at random, so that copies of a row are on the same side."""
    mark = np.array([murmurhash3_32(row.tobytes(), seed=seed, positive=True) for row in X + 0.0])
    order = np.unique(mark[weight > 0])
    n_held = int(np.ceil(fraction * len(order)))
    if n_held >= len(order):
        raise ValueError(
            f"validation_fraction={fraction} leaves no training row: {len(order)} distinct rows, "
            f"n_samples={len(X)}."
        )
    return mark <= order[n_held - 1]


def _unpack(X: Array, n_context: int, output_shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Tokens, labels of the rank of y, and queries."""
    tokens, labels, query = unpack_prompts(X, n_context, int(np.prod(output_shape, dtype=int)))
    return tokens, labels.reshape(*labels.shape[:2], *output_shape), query


def _prompt_examples(X: Array, y: Array, weight: Array, n_context: int) -> _Examples:
    tokens, labels, query = _unpack(X, n_context, y.shape[1:])
    counted = count_tokens(tokens, labels)
    context: dict[str, Any] = {"tokens": tokens, "labels": labels}
    if counted is not None:
        context = dict(zip(("tokens", "labels", "log_mass"), counted, strict=True))
    return _Examples(context, query, y, weight)


def _row_context(X: Array, y: Array, weight: Array) -> dict[str, Any]:
    with np.errstate(divide="ignore"):
        return {"tokens": X[None], "labels": y[None], "log_mass": np.log(weight)[None]}
