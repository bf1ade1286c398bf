"""
============================
Our estimators in skforecast
============================

skforecast puts the newest lag into the first column, windows have it in the last. So a residual
model takes ``last_step=0``, and attention, whose query is the last column, gets its columns turned
round. ``transformer_y`` scales the series before the lags are cut, which is the right way round.
"""

import numpy as np
from skforecast.direct import ForecasterDirect
from skforecast.recursive import ForecasterRecursive
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skcurse import AttentionNTKRegressor, ResidualLinearRegressor, load_sunspots

series = load_sunspots(as_frame=True).target.asfreq("YS")
train, test = series[:-8], series[-8:]

attention = AttentionNTKRegressor(256, regime="lazy", alpha=1.0, random_state=0)
models = {
    "residual linear": ResidualLinearRegressor(alpha=1.0, last_step=0),
    "attention": make_pipeline(FunctionTransformer(np.fliplr), attention),
}
for name, model in models.items():
    forecasters = {
        "recursive": ForecasterRecursive(estimator=model, lags=24, transformer_y=StandardScaler()),
        "direct": ForecasterDirect(
            estimator=model, steps=len(test), lags=24, transformer_y=StandardScaler()
        ),
    }
    for strategy, forecaster in forecasters.items():
        forecaster.fit(train)
        error = np.abs(forecaster.predict(steps=len(test)) - test).mean()
        print(f"{name}, {strategy}: mean absolute error {error:.1f}")
