"""
========================
Our estimators in sktime
========================

sktime's reduction cuts windows with the newest value last, as ours are: estimators fit as they are.
The scaler goes around the forecaster, so that it acts on the series before the windows are cut.
"""

import numpy as np
from sklearn.preprocessing import StandardScaler
from sktime.forecasting.compose import TransformedTargetForecaster, make_reduction
from sktime.transformations.series.adapt import TabularToSeriesAdaptor

from skcurse import AttentionNTKRegressor, ResidualLinearRegressor, load_sunspots

series = load_sunspots(as_frame=True).target.asfreq("YS")
train, test = series[:-8], series[-8:]

models = {
    "residual linear": ResidualLinearRegressor(alpha=1.0),
    "attention": AttentionNTKRegressor(256, regime="lazy", alpha=1.0, random_state=0),
}
for name, model in models.items():
    for strategy in ("recursive", "direct", "multioutput"):
        forecaster = TransformedTargetForecaster(
            [
                ("scale", TabularToSeriesAdaptor(StandardScaler())),
                ("forecast", make_reduction(model, strategy=strategy, window_length=24)),
            ]
        )
        forecast = forecaster.fit(train, fh=range(1, len(test) + 1)).predict()
        print(f"{name}, {strategy}: mean absolute error {np.abs(forecast - test).mean():.1f}")
