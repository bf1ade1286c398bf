"""Recompute verdicts, and compare them with the stored ones."""

import json
from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from joblib import Parallel, delayed

from skcurse.ledger._finding import Finding
from skcurse.ledger._table import Row, read_ledger


class Checked(NamedTuple):
    """A row and its recomputed finding.

    Attributes
    ----------
    row : Row
        With the stored verdict.
    finding : Finding
        The outcome now.
    agrees : bool
        Whether the two verdicts are the same.
    """

    row: Row
    finding: Finding
    agrees: bool


def check_rows(rows: Sequence[Row], *, n_jobs: int | None = None) -> list[Checked]:
    """Recompute the verdicts of rows.

    Parameters
    ----------
    rows : sequence of Row
        Those without a check are left out.
    n_jobs : int, default=None
        Workers, as in joblib.

    Returns
    -------
    checked : list of Checked
        One for each row with a check, in order. A check that raises disagrees, and its finding
        says why.

    Examples
    --------
    >>> from skcurse.ledger import check_rows, choose, read_ledger
    >>> [result] = check_rows(choose(read_ledger(), ["Fact B.6"]))
    >>> result.finding.verdict, result.agrees
    ('holds exactly', True)
    """
    wanted = sorted({row.check for row in rows if row.check})
    # One task for each module: its checks share runs.
    tasks = [list(group) for _, group in groupby(wanted, lambda name: name.partition(".")[0])]
    parts = Parallel(n_jobs=n_jobs)(delayed(_findings)(names) for names in tasks)
    findings = {name: finding for part in parts for name, finding in part.items()}
    return [
        Checked(row, findings[row.check], findings[row.check].verdict == row.verdict)
        for row in rows
        if row.check
    ]


def _findings(names: Sequence[str]) -> dict[str, Finding]:
    """Run the checks of one module."""
    return {name: _finding(name) for name in names}


def _finding(name: str) -> Finding:
    """Run a check; what it raises is its finding."""
    module, _, function = name.partition(".")
    try:
        found: Finding = getattr(import_module(f"skcurse.ledger._checks.{module}"), function)()
    except (ArithmeticError, ValueError, LookupError, RuntimeWarning) as error:
        return Finding(f"raised {type(error).__name__}", str(error), {})
    # Integers of NumPy, say, are no numbers to JSON.
    return found._replace(measured={key: float(value) for key, value in found.measured.items()})


def record() -> Path:
    """Recompute every verdict and store what was found; return the file."""
    rows = read_ledger()
    found = {c.row.check: c.finding for c in check_rows(rows)}
    text = json.dumps(
        {
            name: {
                "verdict": f.verdict,
                "tried": f.tried,
                "measured": {k: float(f"{v:.4g}") for k, v in f.measured.items()},
            }
            for name, f in sorted(found.items())
        },
        indent=1,
    )
    path = Path(__file__).with_name("verdicts.json")
    path.write_text(text + "\n", encoding="utf-8")
    return path
