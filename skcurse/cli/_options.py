"""Options of ``skcurse compare``, as arguments of ``add_argument``."""

from typing import Any

from skcurse.cli._estimators import ESTIMATORS
from skcurse.cli._experiment import WINDOW_DIAGNOSTICS
from skcurse.datasets._csv import FILLS

COMPARE: dict[str, dict[str, Any]] = {
    "--data": {
        "metavar": "NAME|FILE.csv",
        "default": "residual_ssm",
        "help": "a data model, a bundled series or a CSV file (default: residual_ssm)",
    },
    "--column": {"metavar": "NAME", "help": "column of the CSV file"},
    "--fill": {"choices": FILLS, "help": "how to fill missing cells of the CSV file"},
    "--n-steps": {
        "metavar": "D",
        "type": int,
        "help": "past values in a window (default: the data model's; for a series 96, or a tenth "
        "of its training rows if that is less)",
    },
    "--horizon": {
        "metavar": "H",
        "type": int,
        "default": 1,
        "help": "values of a series to forecast at once (default: 1)",
    },
    "--rows": {
        "metavar": "N|all",
        "default": "14400",
        "help": "use the first N rows of a series (default: 14400, as in the ETT benchmark)",
    },
    "--train-rows": {
        "metavar": "N|SHARE",
        "default": "0.6",
        "help": "first rows of a series, for training (default: 0.6)",
    },
    "--test-rows": {
        "metavar": "N|SHARE",
        "default": "0.2",
        "help": "last rows of a series, for the test (default: 0.2); rows between are not used",
    },
    "--set": {
        "metavar": "data.P=V[,V...]|ESTIMATOR.P=V",
        "action": "append",
        "default": [],
        "help": "a parameter of the data model, several values make a grid, or of an estimator",
    },
    "--estimator": {
        "metavar": "NAME",
        "nargs": "+",
        "action": "extend",
        "help": "compare these: registered names, scikit-learn's regressors, or any of "
        f"{', '.join(ESTIMATORS)}",
    },
    "--diagnostic": {
        "metavar": "NAME",
        "nargs": "+",
        "action": "extend",
        "help": f"evaluate these (default: {', '.join(WINDOW_DIAGNOSTICS)})",
    },
    "--folds": {
        "metavar": "K",
        "type": int,
        "default": 5,
        "help": "replicates of a data model (default: 5); a series has one split in time",
    },
    "--n-samples": {
        "metavar": "N",
        "type": int,
        "default": 1000,
        "help": "training rows drawn from a data model (default: 1000)",
    },
    "--n-jobs": {"metavar": "N", "type": int, "help": "parallel tasks, -1 for all CPUs"},
    "--seed": {
        "metavar": "S",
        "type": int,
        "default": 0,
        "help": "seed of everything random (default: 0)",
    },
    "--out": {
        "metavar": "DIR",
        "default": "skcurse-compare",
        "help": "where table.csv and the figures go (default: skcurse-compare)",
    },
}
