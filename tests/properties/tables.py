"""Hypothesis strategies for tables of numbers: from 1x1 up, in every layout, often degenerate."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

#: Moderate numbers whose powers do not underflow.
UNIT = st.floats(-4.0, 4.0).map(lambda x: x if abs(x) > 1e-3 else 0.0)
WHOLE = st.integers(-3, 3).map(float)
#: Powers of two, so that scaling by them is exact.
SCALES = st.sampled_from([2.0**k for k in (-1000, -300, -30, 0, 0, 1, 30, 300, 1000)])
SMALL_SCALES = st.sampled_from([2.0**k for k in (-40, -3, 1, 5, 40)])


LENGTHS = st.integers(1, 6)
KINDS = ["as it is"] * 4 + ["rows", "columns", "constant", "zero", "spike"]


@st.composite
def tables(draw, n=None, d=None, elements=UNIT, spike=1e6):
    """A finite matrix: random, or with constant, zero or repeated rows and columns."""
    n = draw(LENGTHS) if n is None else n
    d = draw(LENGTHS) if d is None else d
    X = draw(arrays(np.float64, (n, d), elements=elements))
    kind = draw(st.sampled_from(KINDS))
    if kind == "rows":
        X[:] = X[:1]
    elif kind == "columns":
        X[:] = X[:, :1]
    elif kind == "constant":
        X[:] = X[0, 0]
    elif kind == "zero":
        X[draw(st.integers(0, n - 1))] = 0.0
    elif kind == "spike":
        X[draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))] *= spike
    return X


@st.composite
def layouts(draw, X):
    """The same values in another memory layout, never writeable."""
    kind = draw(st.sampled_from(["C", "F", "strided", "reversed", "big endian"]))
    if kind == "F":
        Y = np.asfortranarray(X)
    elif kind == "strided":
        Y = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif kind == "reversed":
        Y = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    elif kind == "big endian":
        Y = X.astype(X.dtype.newbyteorder(">"))
    else:
        Y = X.copy()
    Y.flags.writeable = False
    return Y


def weights(m):
    return arrays(np.float64, m, elements=UNIT.map(lambda x: 0.75 * x))


def signs(m):
    return arrays(np.float64, m, elements=st.sampled_from([-1.0, 1.0]))
