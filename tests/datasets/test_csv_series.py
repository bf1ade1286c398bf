"""One column of a CSV file becomes a series, or one line says which cell is in the way."""

import os
import threading

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
        ("2024-01-01,1\n2024-01-02,2\n", None, "no header line.*the date '2024-01-01'"),
        ("26/10/2020,ann,1\n27/10/2020,bob,2\n", None, "no header line"),
        ("d,a\n2024-01-01,1\n2024-01-02,n.a.\n", None, "none; 'a' is none, since line 3 .*'n.a.'"),
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


def write_dates(write, dates, name="date"):
    return write("\n".join([f"{name};x", *(f"{date};{k}" for k, date in enumerate(dates))]))


@pytest.mark.parametrize(
    ("name", "dates"),
    [
        ("date", ["26/10/2020", "27/10/2020", "01/11/2020"]),
        ("date", ["10/26/2020", "10/27/2020", "11/01/2020"]),
        ("when", ["26.10.2020 13:00", "26.10.2020 14:00", "01.11.2020 00:00"]),
        ("Date", ["Oct 26 2020", "Oct 27 2020", "Nov 01 2020"]),
        ("date", ["October 26, 2020", "October 27, 2020", "November 1, 2020"]),
        ("month", ["Nov 2020", "Dec 2020", "Jan 2021"]),
        ("date", ["12/31/20 11:00 PM", "01/01/21 01:00 AM", "01/01/21 12:00 PM"]),
        ("date", ["20201026", "20201027", "20201101"]),
        ("year", ["1999", "2000", "2001"]),
        ("Date", ["1999", "2000", "2001"]),
        ("timestamp", ["999999999", "1000000000.5", "1000000001"]),
        ("date", ["01/02/2020", "02/02/2020", "03/02/2020"]),
    ],
)
def test_dates_run_forwards_in_common_spellings(write, name, dates):
    series = read_csv_series(write_dates(write, dates, name))
    assert (series.column, series.dates, series.notes) == ("x", dates, [])
    with pytest.raises(ValueError, match=f"line 3: the date {dates[1]} is before"):
        read_csv_series(write_dates(write, dates[::-1], name))


def test_days_and_months_that_could_be_exchanged_get_the_benefit_of_the_doubt(write):
    # Forwards one way or the other; then backwards both ways.
    for dates in (["01/02/2020", "02/01/2020"], ["02/01/2020", "01/02/2020"]):
        assert read_csv_series(write_dates(write, dates)).notes == []
    with pytest.raises(ValueError, match="line 4: the date 01/01/2020"):
        read_csv_series(write_dates(write, ["01/02/2020", "02/01/2020", "01/01/2020"]))


@pytest.mark.parametrize(
    ("name", "dates"),
    [
        ("date", ["26/10/2020", "soon", "01/11/2020"]),
        ("when", ["Q4 2020", "Q3 2020", "Q2 2020"]),
        ("day", ["3", "2", "1"]),
    ],
)
def test_dates_that_are_not_understood_are_noted(write, name, dates):
    notes = read_csv_series(write_dates(write, dates, name), "x").notes
    assert notes == [f"dates in column {name!r} are not understood, their order is not checked"]


def test_a_year_of_many_rows_is_no_repetition_and_dates_go_before_years(write):
    assert read_csv_series(write_dates(write, ["2020", "2020", "2021"], "year")).notes == []
    path = write("year,date,x\n2020,2020-12-31,1\n2021,2021-01-01,2\n2021,2021-01-02,3\n")
    series = read_csv_series(path)
    assert series.column == "x"
    assert series.dates == ["2020-12-31", "2021-01-01", "2021-01-02"]


def test_packed_files_are_told(write, tmp_path):
    packed = write(PLAIN).rename(tmp_path / "series.csv.gz")
    with pytest.raises(ValueError, match="compressed: unpack it first"):
        read_csv_series(packed)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(PLAIN,))
    writer.start()
    assert read_csv_series(pipe).values.tolist() == [1.5, 2.0, -2.5]
    writer.join()
