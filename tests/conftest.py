"""Budgets of property tests: few, repeatable examples, or HYPOTHESIS_PROFILE=long.

scikit-learn's check of array API input skips unless SCIPY_ARRAY_API is set before SciPy is
imported, so it is set here.
"""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")

from hypothesis import settings

settings.register_profile("short", max_examples=25, deadline=None, derandomize=True, database=None)
settings.register_profile("long", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
