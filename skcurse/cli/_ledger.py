"""The ``skcurse ledger`` command."""

import argparse
import json
from typing import Any

from skcurse.ledger import Checked, as_records, as_text, check_rows, choose, read_ledger


def add_ledger(commands: Any) -> None:
    """Add the command to the sub-commands of the parser."""
    ledger = commands.add_parser(
        "ledger",
        help="list every numbered statement of the papers and its verdict",
        description="List every numbered statement of the two papers: what it says, what computes "
        "it, which test verifies it and what was found; --check recomputes the verdicts.",
    )
    ledger.add_argument(
        "rows", nargs="*", metavar="ROW", help="'Curse', 'ICL', 'Lemma K.3', 'K.3' (default: all)"
    )
    ledger.add_argument(
        "--check",
        nargs="*",
        metavar="ROW",
        help="recompute the verdicts of these rows, or of all; exit code 1 if one differs",
    )
    ledger.add_argument("--n-jobs", type=int, metavar="N", help="workers of --check (default: 1)")
    ledger.add_argument("--json", action="store_true", help="as JSON")
    ledger.set_defaults(run=_ledger)


def _ledger(args: argparse.Namespace) -> int:
    """Run ``skcurse ledger``."""
    rows = choose(read_ledger(), [*args.rows, *(args.check or [])])
    if args.check is None:
        print(json.dumps(as_records(rows), indent=2) if args.json else as_text(rows))
        return 0
    checked = check_rows(rows, n_jobs=args.n_jobs)
    if args.json:
        print(json.dumps([_record(result) for result in checked], indent=2))
    else:
        for result in checked:
            print(_line(result))
    disagreeing = sum(not result.agrees for result in checked)
    if not args.json:
        print(f"{len(checked)} verdicts recomputed, {disagreeing} not as stored")
    return int(disagreeing > 0)


def _line(result: Checked) -> str:
    """Recomputed verdict and evidence, and the stored verdict where it differs."""
    row, finding, agrees = result
    stored = "" if agrees else f" (stored: {row.verdict or 'none'})"
    return f"{row.name}: {finding.verdict}{stored}\n    {finding.evidence()}"


def _record(result: Checked) -> dict[str, Any]:
    """One recomputed verdict for JSON."""
    row, finding, agrees = result
    return {
        "name": row.name,
        "stored": row.verdict,
        "agrees": agrees,
        "verdict": finding.verdict,
        "tried": finding.tried,
        "measured": dict(finding.measured),
    }
