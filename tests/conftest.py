"""Workers of the tests, and budgets of property tests: few, repeatable examples, or many.

HYPOTHESIS_PROFILE=long asks for many. Before NumPy and SciPy are imported, here and in every
process that a test starts, one thread is set for linear algebra, as every core has a worker, and
SCIPY_ARRAY_API, without which scikit-learn's check of array API input skips.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
from hypothesis import settings

settings.register_profile("short", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Start no workers for a few files by name: most of them are sooner done."""
    return 0 if 0 < len(config.args) < 4 and all(".py" in name for name in config.args) else None
