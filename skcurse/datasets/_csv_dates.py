"""Whether a column of a CSV file holds times, and whether they run forwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import pairwise, product
from typing import Any

__all__ = ["check_order", "looks_like_time", "readings"]

# Plain numbers are times in columns of these names only.
_DATE_NAMES = {"date", "datetime", "ds"}
_COUNT_NAMES = {"year", "timestamp"}
_TIME_NAMES = _DATE_NAMES | _COUNT_NAMES | {"time", "period", "quarter", "month", "week", "day"}
_DAYS = (
    *("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%b %d %Y", "%b %d, %Y", "%B %d %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%d-%b-%y", "%b %Y", "%B %Y", "%b-%Y", "%Y-%m", "%m/%Y"),
)
_HOURS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")


def readings(name: str, cells: Sequence[str]) -> list[list[Any]]:
    """Read all cells of a column as times, in every way that understands each of them.

    Two ways where days and months could be exchanged; none where the column holds no times.
    """
    stripped = [cell.strip() for cell in cells]
    name = name.lower()
    numbers = None
    with suppress(ValueError):
        numbers = [float(cell) for cell in stripped]
    if numbers is not None:
        years = name in _DATE_NAMES and all(len(cell) == 4 for cell in stripped)
        if name in _COUNT_NAMES or years:
            return [numbers]
        if name not in _DATE_NAMES:  # 20240101 is a number first
            return []
    with suppress(ValueError):
        return [[datetime.fromisoformat(cell) for cell in stripped]]
    found = []
    for day, hour in product(_DAYS, _HOURS):
        with suppress(ValueError):
            found.append([datetime.strptime(cell, day + hour) for cell in stripped])
    return found


def looks_like_time(name: str, cells: Sequence[str]) -> bool:
    """Whether a column's name, or text with a digit in every cell, suggests times."""
    if name.lower() in _TIME_NAMES:
        return True
    with suppress(ValueError):
        float(cells[0])
        return False
    return all(any(map(str.isdigit, cell)) for cell in cells)


def check_order(dates: list[str], read: list[list[Any]], lines: list[int], file: str) -> list[str]:
    """Refuse times that run backwards in every reading; note repeated dates."""
    if len({getattr(time, "tzinfo", None) is None for time in read[0]}) > 1:
        raise ValueError(f"{file}: some dates have a time zone and some have none.")
    backwards = [
        next((row for row, (a, b) in enumerate(pairwise(times), start=1) if b < a), len(times))
        for times in read
    ]
    row = max(backwards)
    if row < len(dates):
        raise ValueError(
            f"{file}, line {lines[row]}: the date {dates[row]} is before the one above it. "
            "Sort the file by time."
        )
    times = read[backwards.index(row)]
    repeated = [row for row, (a, b) in enumerate(pairwise(times), start=1) if a == b]
    if not repeated or isinstance(times[0], float):  # a year may have many rows
        return []
    where = f"first at line {lines[repeated[0]]}: {dates[repeated[0]]}"
    return [f"{len(repeated)} dates are repeated ({where}); every row is kept"]
