"""One column of a CSV file becomes a series, or one line says which cell is in the way."""

import numpy as np
import pytest

from skcurse.datasets._csv import read_csv_series


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "series.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


PLAIN = "date,load\n2024-01-01,1.5\n2024-01-02,2\n2024-01-03,-2.5e0\n"


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r\n").rstrip(),
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace("date,load", '"date","load"'),
        PLAIN.replace("load\n", " load \n\n"),
        PLAIN.replace("2024-01-02", "2024-01-02 12:00:00"),
        "load\n1.5\n2\n-2.5\n",
        "\ufeffload\n1.5\n2\n-2.5\n",
        "who,load\nann,1.5\nbob,2\neve,-2.5\n",
    ],
)
def test_spellings_of_one_table(write, content):
    series = read_csv_series(write(content))
    assert series.column == "load"
    assert series.values.tolist() == [1.5, 2.0, -2.5]
    assert series.notes == []
    assert (series.dates is None) is ("2024" not in content)


def test_a_number_is_no_date_and_a_date_no_series(write):
    assert read_csv_series(write("day,x\n20240101,1\n20240102,3\n"), "day").dates is None
    with pytest.raises(ValueError, match="'2024-01-01' is not a finite number"):
        read_csv_series(write(PLAIN), "date")


GAPS = "date,load\n2024-01-01,1\n2024-01-02,{0}\n2024-01-03,nan\n2024-01-04,4\n"


@pytest.mark.parametrize("missing", ["", " ", "NA", "n/a", "NaN", "null", "None"])
def test_missing_cells(write, missing):
    path = write(GAPS.format(missing))
    with pytest.raises(ValueError, match=r"line 3 \(2024-01-02\), column 'load'.*--fill linear"):
        read_csv_series(path)
    linear = read_csv_series(path, fill="linear")
    np.testing.assert_allclose(linear.values, [1, 2, 3, 4])
    assert "2 missing cells" in linear.notes[0]
    assert read_csv_series(path, fill="previous").values.tolist() == [1, 1, 1, 4]


@pytest.mark.parametrize(
    ("cells", "fill", "line"),
    [
        (",1,2", "linear", 2),
        (",1,2", "previous", 2),
        ("1,2,", "linear", 4),
        ("1,2,", "previous", 0),
    ],
)
def test_gaps_at_the_ends(write, cells, fill, line):
    rows = [f"{i},{cell}" for i, cell in enumerate(cells.split(","))]
    path = write("\n".join(["i,x", *rows]))
    if line:
        with pytest.raises(ValueError, match=rf"line {line}, .*no neighbour"):
            read_csv_series(path, "x", fill=fill)
    else:
        assert read_csv_series(path, "x", fill=fill).values.tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ("", None, "no rows"),
        ("a,b\n", None, "no rows"),
        ("1,2\n3,4\n", None, "no header"),
        ("a,a\n1,2\n", "a", "more than one column called 'a'"),
        ("a,b\n1,2\n3\n", "a", "line 3: 1 cells, but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "a", "line 3: 3 cells"),
        ("a,b\n1,2\n3,4\n", None, "--column; numeric ones: 'a', 'b'"),
        ("a,b\nx,y\nz,w\n", None, "numeric ones: none"),
        ("a,b\n1,2\n3,4\n", "c", "no column 'c'; it has 'a', 'b'"),
        ("a\n1\nabc\n2\n", "a", "line 3, column 'a': 'abc' is not a finite number"),
        ("a\n1\ninf\n2\n", "a", "line 3, column 'a': 'inf' is not a finite number"),
        ('a\n1\n"1,234"\n', "a", "'1,234' is not a finite number"),
        ("a\n3\n3\n3\n", "a", "column 'a' is constant"),
        ("a\nNA\nNA\n", "a", "whole column is missing|is missing"),
        ("date,a\n2024-01-02,1\n2024-01-01,2\n", "a", "line 3: the date 2024-01-01 is before"),
        ("date,a\n2024-01-01,1\n2024-01-02T00:00+01:00,2\n", "a", "time zone"),
        (b"a\n1\n\xff\xfe\n", "a", "not text in UTF-8"),
        (b"a\n1\n\x00\n", "a", "is not a finite number|no CSV file"),
        ('a\n"1\n2\n', "a", "no CSV file"),
    ],
)
def test_what_is_wrong_is_named(write, content, column, message):
    with pytest.raises(ValueError, match=message):
        read_csv_series(write(content), column)


def test_repeated_dates_are_noted(write):
    content = "date,x\n2024-01-01,1\n2024-01-01,2\n2024-01-01,3\n2024-01-02,4\n"
    series = read_csv_series(write(content))
    assert len(series.values) == 4
    assert "2 dates are repeated (first at line 3: 2024-01-01)" in series.notes[0]


def test_files_and_fills_that_are_not_there(write, tmp_path):
    with pytest.raises(FileNotFoundError):
        read_csv_series(tmp_path / "nowhere.csv")
    with pytest.raises(OSError, match="directory"):
        read_csv_series(tmp_path)
    with pytest.raises(ValueError, match="fill must be one of linear, previous"):
        read_csv_series(write(PLAIN), fill="mean")
    with pytest.raises(ValueError, match="whole column is missing"):
        read_csv_series(write("a\nNA\nNA\n"), "a", fill="linear")
