"""Every verdict of the ledger recomputed, the slow ones included: about 40 s on one core.

Run with ``python -m pytest tests/benchmarks/ledger_all.py``.
"""

import pytest

from skcurse.ledger import check_rows, read_ledger

CHECKED = {row.check: row for row in read_ledger() if row.check}


@pytest.fixture(scope="module")
def results():
    return {result.row.check: result for result in check_rows(list(CHECKED.values()))}


@pytest.mark.parametrize("check", CHECKED)
def test_recomputed_verdict_is_the_stored_one(check, results):
    finding = results[check].finding
    assert finding.verdict == CHECKED[check].verdict, finding.evidence()
