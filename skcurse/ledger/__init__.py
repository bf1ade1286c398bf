"""The ledger: every numbered statement of the two papers, what computes it, and what was found.

A verdict is what a check measured: "holds exactly" (an identity to rounding, or an inequality in
every case tried), "holds within ERROR", "holds under preconditions" (the numbers show which) or
"does not hold as stated" (they are the counter-example). For a definition it says that the code is
what is defined; for a bound of some order, that constants named beside it serve. Bounds on the way
to a statement are listed with the statements that use them.
"""

from skcurse.ledger._check import Checked, check_rows
from skcurse.ledger._finding import Finding
from skcurse.ledger._table import Row, as_records, as_text, choose, read_ledger

__all__ = [
    "Checked",
    "Finding",
    "Row",
    "as_records",
    "as_text",
    "check_rows",
    "choose",
    "read_ledger",
]
