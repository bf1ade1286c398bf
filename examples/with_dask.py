"""
=========================
A comparison on a cluster
=========================

Everything that runs on joblib runs on dask: `compare`, searches, cross-validation. The numbers are
the same as on one machine. A script guards its cluster by ``__main__``, as its processes import it.
"""

import joblib
import numpy as np
from distributed import Client, LocalCluster

from skcurse import AttentionNTKRegressor, ResidualLinearRegressor, ResidualSSM, compare


def compared():
    """Compare two estimators in eight tasks."""
    estimators = {
        "attention": AttentionNTKRegressor(128, regime="lazy"),
        "residual linear": ResidualLinearRegressor(),
    }
    return compare(estimators, {"residual SSM": ResidualSSM()}, cv=4, random_state=0)


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        there = compared()
    here = compared()
    print(there)
    print("same numbers:", np.allclose(there.scores(), here.scores(), rtol=1e-12))
