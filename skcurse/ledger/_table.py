"""The rows of the ledger: read, chosen, printed."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from skcurse.ledger._finding import Finding

_PAPERS = {"Curse": "curse.toml", "ICL": "icl.toml"}
_RECOMPUTED = "tests/test_ledger.py::test_recomputed_verdict_is_the_stored_one"
_RECOMPUTED_SLOW = "tests/benchmarks/ledger_all.py::test_recomputed_verdict_is_the_stored_one"


class Row(NamedTuple):
    """A numbered statement, or a part of one.

    Attributes
    ----------
    paper : str
        "Curse" (arXiv:2412.06061) or "ICL" (arXiv:2310.05249).
    statement, part : str
        Kind and number as in the paper, and which part, if it is split.
    says : str
        What it says, in our own words.
    where : str
        Dotted name of the function, class or diagnostic that computes it; may be empty.
    test : str
        Path of the test that verifies it; empty for steps without a verdict.
    check : str
        What recomputes the verdict, ``module.function`` of the checks; empty where nothing does.
    used_in : str
        Which statements rest on it, for technical steps.
    note : str
        How its number was inferred, or that its formula is our reading; usually empty.
    slow : bool
        Whether recomputing it takes more than a second.
    verdict, evidence : str
        The stored outcome, and where it was tried with which numbers.
    """

    paper: str
    statement: str
    part: str
    says: str
    where: str
    test: str
    check: str
    used_in: str
    note: str
    slow: bool
    verdict: str
    evidence: str

    @property
    def name(self) -> str:
        """Paper, statement and part."""
        part = f"part {self.part}" if self.part.isdigit() else self.part
        return f"{self.paper} {self.statement}" + (f", {part}" if part else "")

    def answers_to(self, request: str) -> bool:
        """Whether `request` is its name, paper, statement or number, in any case."""
        number = self.statement.rpartition(" ")[2]
        titles = (self.paper, self.statement, number)
        names = {self.name, *titles, *(f"{self.paper} {title}" for title in titles[1:])}
        return request.strip().casefold() in {name.casefold() for name in names}


@lru_cache(maxsize=1)
def read_ledger() -> tuple[Row, ...]:
    """Read the ledger.

    Returns
    -------
    rows : tuple of Row
        Those of the first paper, then those of the second, in the papers' order.

    Examples
    --------
    >>> from skcurse.ledger import read_ledger
    >>> row = read_ledger()[0]
    >>> row.name, row.verdict
    ('Curse Definition 4.1', 'holds exactly')
    """
    folder = files("skcurse.ledger")
    stored = json.loads(folder.joinpath("verdicts.json").read_text("utf-8"))
    entries = {
        paper: tomllib.loads(folder.joinpath(file).read_text("utf-8"))["row"]
        for paper, file in _PAPERS.items()
    }
    return tuple(_row(paper, entry, stored) for paper in entries for entry in entries[paper])


def _row(paper: str, entry: dict[str, Any], stored: dict[str, Any]) -> Row:
    """Make a row of its entry, with its stored finding."""
    check, slow = entry.get("check", ""), entry.get("slow", False)
    notes = [f"number {entry['numbering']}"] if "numbering" in entry else []
    notes += ["the formula is our reading"] if entry.get("reading") else []
    finding = Finding(**stored[check]) if check in stored else None
    default = (_RECOMPUTED_SLOW if slow else _RECOMPUTED) if check else ""
    return Row(
        paper,
        entry["statement"],
        entry.get("part", ""),
        entry["says"],
        entry.get("where", ""),
        entry.get("test", default),
        check,
        entry.get("used_in", ""),
        "; ".join(notes),
        slow,
        finding.verdict if finding else "",
        finding.evidence() if finding else "",
    )


def choose(rows: Iterable[Row], requests: Sequence[str]) -> list[Row]:
    """Choose rows by name, paper, statement or number.

    Parameters
    ----------
    rows : iterable of Row
        Where to choose from.
    requests : sequence of str
        For instance ``"ICL"``, ``"Lemma K.3"`` or ``"curse lemma k.3, part 4"``; none means all.

    Returns
    -------
    chosen : list of Row
        In the order of `rows`.

    Raises
    ------
    ValueError
        If a request matches no row.

    Examples
    --------
    >>> from skcurse.ledger import choose, read_ledger
    >>> [row.name for row in choose(read_ledger(), ["lemma f.4"])]
    ['Curse Lemma F.4, part 1', 'Curse Lemma F.4, part 2']
    """
    rows = list(rows)
    for request in requests:
        if not any(row.answers_to(request) for row in rows):
            raise ValueError(
                f"The ledger has no row {request!r}. Ask for a paper ('Curse', 'ICL'), a statement "
                "('Lemma K.3'), a number ('K.3') or a full name ('Curse Lemma K.3, part 4')."
            )
    return [row for row in rows if not requests or any(map(row.answers_to, requests))]


def as_text(rows: Sequence[Row]) -> str:
    """Format rows for a terminal: a block a row, then the counts of the verdicts.

    Parameters
    ----------
    rows : sequence of Row
        What to print.

    Returns
    -------
    text : str
        Several lines.

    Examples
    --------
    >>> from skcurse.ledger import as_text, choose, read_ledger
    >>> print(as_text(choose(read_ledger(), ["Lemma B.1"])).splitlines()[0])
    Curse Lemma B.1: holds exactly
    """
    lines = []
    for row in rows:
        lines += [f"{row.name}: {row.verdict or 'no verdict'}", f"    {row.says}"]
        details = {
            "computed by": row.where,
            "tested by": row.test,
            "tried": row.evidence,
            "used in": row.used_in,
            "note": row.note,
        }
        lines += [f"    {label}: {text}" for label, text in details.items() if text]
    counts = Counter(row.verdict or "no verdict" for row in rows)
    lines.append(f"{len(rows)} rows: " + ", ".join(f"{n} {v}" for v, n in counts.most_common()))
    return "\n".join(lines)


def as_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Turn rows into dictionaries, for JSON.

    Parameters
    ----------
    rows : sequence of Row
        What to write.

    Returns
    -------
    records : list of dict
        The fields of `Row`, and its name; the verdict is None where there is none.

    Examples
    --------
    >>> from skcurse.ledger import as_records, read_ledger
    >>> as_records(read_ledger()[:1])[0]["where"]
    'skcurse.theory.residual_ssm.build_system'
    """
    return [{"name": row.name, **row._asdict(), "verdict": row.verdict or None} for row in rows]
