"""One column of a CSV file as a series, or one clear reason why not."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable
from io import StringIO
from math import isfinite, nan
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcurse.datasets._csv_dates import check_order, looks_like_time, readings

__all__ = ["CSVSeries", "read_csv_series"]

FILLS = ("linear", "previous")
_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_PACKED = {".gz", ".bz2", ".xz", ".zip", ".zst"}


class CSVSeries(NamedTuple):
    """A series and where it came from.

    Attributes
    ----------
    values : ndarray of shape (n_rows,)
        Finite values in the order of the file.
    column : str
        Name of the column.
    dates : list of str or None
        Cells of the column of dates or years, if there is one that is understood.
    notes : list of str
        What was noticed or done on the way: filled cells, dates repeated or not understood.
    """

    values: NDArray[np.float64]
    column: str
    dates: list[str] | None
    notes: list[str]


def read_csv_series(
    path: str | PathLike[str], column: str | None = None, *, fill: str | None = None
) -> CSVSeries:
    r"""Read one column of a CSV file.

    Parameters
    ----------
    path : path-like
        A text file in UTF-8 with a header line and cells separated by commas, semicolons or tabs.
    column : str, default=None
        Name of the column. None takes the only numeric one.
    fill : {"linear", "previous"}, default=None
        What to put in the place of missing cells: the straight line between the neighbours, or the
        value before. None makes them an error.

    Returns
    -------
    CSVSeries
        Values, column, dates and notes.

    Raises
    ------
    ValueError
        If the file is no such table, the column is not there or ambiguous, or a cell is missing,
        infinite or no number: the message names line and column. If dates run backwards, where
        days and months could be exchanged in both readings.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from skcurse.datasets._csv import read_csv_series
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "series.csv")
    ...     _ = path.write_text("date,load\n2024-01-01,1.5\n2024-01-02,\n2024-01-03,2.5\n")
    ...     read_csv_series(path, fill="linear").values
    array([1.5, 2. , 2.5])
    """
    if fill is not None and fill not in FILLS:
        raise ValueError(f"fill must be one of {', '.join(FILLS)}, got {fill!r}.")
    name = Path(path).name
    header, lines, cells = _read_table(path)
    columns = dict(zip(header, zip(*cells, strict=True), strict=True))
    times = {h: read for h in header if (read := readings(h, columns[h]))}
    if first := next((h for h in times if readings("", [h])), None):
        raise ValueError(f"{name} has no header line: the first one holds the date {first!r}.")
    # Dates go before numbers, such as those of a column of years.
    date_name = min(times, key=lambda h: isinstance(times[h][0][0], float), default=None)
    dates = None if date_name is None else [c.strip() for c in columns[date_name]]
    column = _choose(columns, column, times, lines, name)

    def place(row: int) -> str:
        when = "" if dates is None or column == date_name else f" ({dates[row]})"
        return f"{name}, line {lines[row]}{when}, column {column!r}"

    values = np.array([_number(c, row, place) for row, c in enumerate(columns[column])])
    notes = []
    if date_name is not None and dates is not None:
        notes = check_order(dates, times[date_name], lines, name)
    elif other := next((h for h in header if h != column and looks_like_time(h, columns[h])), None):
        notes = [f"dates in column {other!r} are not understood, their order is not checked"]
    if (missing := np.flatnonzero(np.isnan(values))).size:
        if fill is None:
            raise ValueError(
                f"{place(missing[0])}: the cell is missing ({missing.size} of {values.size} are). "
                f"Fill the gaps with --fill {' or --fill '.join(FILLS)}."
            )
        values = _filled(values, fill, place)
        notes.append(f"{missing.size} missing cells of {column!r} filled ({fill})")
    if np.ptp(values) == 0:
        raise ValueError(f"{name}: column {column!r} is constant, there is nothing to forecast.")
    return CSVSeries(values, column, dates, notes)


def _read_table(path: str | PathLike[str]) -> tuple[list[str], list[int], list[list[str]]]:
    """Return the header, and for each row its line in the file and its cells."""
    name = Path(path).name
    if Path(path).suffix.lower() in _PACKED:
        raise ValueError(f"{name} is compressed: unpack it first.")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = StringIO(file.read(), newline="")  # a pipe can be read only once
        delimiter = max(",;\t", key=text.readline().count)
        text.seek(0)
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        rows = [(reader.line_num, row) for row in reader if row]
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8 (byte {error.start}).") from error
    except csv.Error as error:
        raise ValueError(f"{name} is no CSV file: {error}.") from error
    if len(rows) < 2:
        raise ValueError(f"{name} has no rows below a header line.")
    header = [cell.strip() for cell in rows[0][1]]
    repeated = [h for h, count in Counter(header).items() if count > 1]
    if repeated:
        raise ValueError(f"{name} has more than one column called {repeated[0]!r}.")
    if all(_is_number(cell) for cell in header):
        raise ValueError(f"{name} has no header line: the first one holds only numbers.")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise ValueError(
                f"{name}, line {line}: {len(row)} cells, but the header has {len(header)}."
            )
    return header, [line for line, _ in rows[1:]], [row for _, row in rows[1:]]


def _choose(
    columns: dict[str, tuple[str, ...]],
    column: str | None,
    times: Iterable[str],
    lines: list[int],
    file: str,
) -> str:
    """Return the column that was asked for, or the only one that could be meant."""
    partly = {
        name: cells
        for name, cells in columns.items()
        if name not in times and any(map(_is_number, cells))
    }
    numeric = [name for name, cells in partly.items() if all(map(_may_be_number, cells))]
    if column is not None:
        if column not in columns:
            raise ValueError(
                f"{file} has no column {column!r}; it has {', '.join(map(repr, columns))}."
            )
        return column
    if len(numeric) != 1:
        found = ", ".join(map(repr, numeric)) or "none"
        for name, cells in [] if numeric else partly.items():
            row = next(row for row, cell in enumerate(cells) if not _may_be_number(cell))
            found += f"; {name!r} is none, since line {lines[row]} holds {cells[row]!r}"
        raise ValueError(f"Choose a column of {file} with --column; numeric ones: {found}.")
    return numeric[0]


def _is_number(cell: str) -> bool:
    try:
        return isfinite(float(cell))
    except ValueError:
        return False


def _may_be_number(cell: str) -> bool:
    return cell.strip().lower() in _MISSING or _is_number(cell)


def _number(cell: str, row: int, place: Callable[[int], str]) -> float:
    """Return the value of a cell, nan if it is missing."""
    if cell.strip().lower() in _MISSING:
        return nan
    if not _is_number(cell):
        raise ValueError(f"{place(row)}: {cell!r} is not a finite number.")
    return float(cell)


def _filled(
    values: NDArray[np.float64], fill: str, place: Callable[[int], str]
) -> NDArray[np.float64]:
    """Return the values with no gap left."""
    known = np.flatnonzero(~np.isnan(values))
    if known.size == 0:
        raise ValueError(f"{place(0)}: the whole column is missing.")
    rows = np.arange(len(values))
    outside = rows[(rows < known[0]) | ((rows > known[-1]) & (fill == "linear"))]
    if outside.size:
        raise ValueError(
            f"{place(outside[0])}: the cell is missing and has no neighbour to fill it from "
            f"(fill={fill!r}). Cut such rows off."
        )
    if fill == "linear":
        return np.interp(rows, known, values[known])
    return values[known[np.searchsorted(known, rows, side="right") - 1]]
