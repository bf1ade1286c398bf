import numpy as np
import pytest
import skcurse_template
from skcurse_template import mean_error
from sklearn.dummy import DummyRegressor

import skcurse
from skcurse.testing import check_plugin


def test_contract():
    check_plugin(skcurse_template)


def test_installed():
    assert skcurse.get_diagnostics("mean_error")["mean_error"].function is mean_error


def test_value():  # of a case where you know it
    X, y = np.zeros((4, 1)), np.array([0.0, 1.0, 2.0, 5.0])
    median = DummyRegressor(strategy="median").fit(X, y)
    assert mean_error(median, X, y) == pytest.approx(1.5 - 2.0)
