"""fetch_ett: from a folder, over HTTP, and everything that can go wrong on the way."""

import hashlib
import http.server
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from skcurse.datasets import _ett, fetch_ett

CONTENT = b"""date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT
2016-07-01 00:00:00,5.8,2.0,1.5,0.4,4.2,1.3,30.5
2016-07-01 01:00:00,5.6,2.1,1.4,0.5,4.1,1.4,27.75
"""
ETT_DIR = os.environ.get("SKCURSE_ETT_DIR")


@pytest.fixture(autouse=True)
def small_file(monkeypatch):
    """Expect CONTENT instead of the real file, and no way to the real address."""
    monkeypatch.setitem(_ett._SHA256, "ETTh1", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(_ett, "_URL", "http://127.0.0.1:9/")  # the discard port: refused


@pytest.fixture
def server(monkeypatch):
    """Serve `body` under a local address and count the requests."""

    class Handler(http.server.BaseHTTPRequestHandler):
        body, status, length, requests = CONTENT, 200, None, []

        def do_GET(self):
            self.requests.append(self.path)
            self.send_response(self.status)
            self.send_header("Content-Length", str(self.length or len(self.body)))
            self.end_headers()
            self.wfile.write(self.body)

        def log_message(self, *args):
            pass

    Handler.requests = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        monkeypatch.setattr(_ett, "_URL", f"http://127.0.0.1:{httpd.server_port}/")
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield Handler
        httpd.shutdown()
        thread.join()


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file())


def test_download_lands_in_the_sub_folder_and_is_used_again(server, tmp_path):
    bunch = fetch_ett("ETTh1", data_home=tmp_path)
    assert server.requests == ["/ETTh1.csv"]
    assert files_in(tmp_path) == ["ett/ETTh1.csv"]
    assert (tmp_path / "ett" / "ETTh1.csv").read_bytes() == CONTENT
    again = fetch_ett("ETTh1", data_home=str(tmp_path), download_if_missing=False)
    assert len(server.requests) == 1
    np.testing.assert_array_equal(again.target, bunch.target)
    assert bunch.filename == str(tmp_path / "ett" / "ETTh1.csv")


@pytest.mark.parametrize("place", ["ETTh1.csv", "ett/ETTh1.csv"])
def test_a_file_in_the_folder_needs_no_network(place, tmp_path):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(CONTENT)
    bunch = fetch_ett("ETTh1", data_home=tmp_path)
    assert bunch.filename == str(path)
    assert bunch.feature_names == ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL"]
    assert bunch.target_names == ["OT"]
    np.testing.assert_array_equal(bunch.target, [30.5, 27.75])
    np.testing.assert_array_equal(bunch.data[1], [5.6, 2.1, 1.4, 0.5, 4.1, 1.4])
    assert str(bunch.index[1]) == "2016-07-01T01:00:00"
    assert "CC BY-ND 4.0" in bunch.DESCR
    assert files_in(tmp_path) == [place]


def test_default_folder_is_that_of_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    (tmp_path / "ETTh1.csv").write_bytes(CONTENT)
    assert fetch_ett().filename == str(tmp_path / "ETTh1.csv")


def test_frame_has_the_loads_and_the_target(tmp_path):
    (tmp_path / "ETTh1.csv").write_bytes(CONTENT)
    bunch = fetch_ett(data_home=tmp_path, as_frame=True)
    assert [*bunch.frame.columns] == ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    assert bunch.frame.index[1] == pd.Timestamp("2016-07-01 01:00")
    X, y = fetch_ett(data_home=tmp_path, as_frame=True, return_X_y=True)
    assert X.shape == (2, 6)
    assert y.name == "OT"


@pytest.mark.parametrize("body", [CONTENT[:-20], CONTENT.replace(b"30.5", b"30.6"), b"", b"<html>"])
def test_truncated_or_changed_download_is_refused_and_removed(server, tmp_path, body):
    server.body = body
    with pytest.raises(OSError, match=r"Could not fetch .*ETTh1\.csv.*truncated or changed"):
        fetch_ett("ETTh1", data_home=tmp_path)
    assert files_in(tmp_path) == []


def test_connection_that_breaks_off_leaves_nothing(server, tmp_path):
    server.body, server.length = CONTENT[:50], len(CONTENT)
    with pytest.raises(OSError, match="Could not fetch"):
        fetch_ett("ETTh1", data_home=tmp_path)
    assert files_in(tmp_path) == []


def test_missing_page_is_an_error(server, tmp_path):
    server.status = 404
    with pytest.raises(OSError, match=r"Could not fetch .*404"):
        fetch_ett("ETTh1", data_home=tmp_path)
    assert files_in(tmp_path) == []


def test_no_network_says_where_to_put_the_file(tmp_path):
    with pytest.raises(OSError, match=r"Could not fetch .*without the network") as error:
        fetch_ett("ETTh1", data_home=tmp_path)
    assert str(tmp_path / "ett") in str(error.value)
    assert list(tmp_path.iterdir()) == []  # nor an empty folder


def test_failure_in_the_middle_of_writing_leaves_nothing(server, tmp_path, monkeypatch):
    def disk_full(source, target):
        target.write(source.read(30))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_ett.shutil, "copyfileobj", disk_full)
    with pytest.raises(OSError, match=r"Could not fetch .*No space left"):
        fetch_ett("ETTh1", data_home=tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("place", ["ETTh1.csv", "ett/ETTh1.csv"])
def test_bad_file_in_the_folder_is_named_and_not_touched(server, tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(OSError, match="truncated or changed") as error:
        fetch_ett("ETTh1", data_home=tmp_path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == CONTENT[:-1]
    assert server.requests == []


def test_download_only_if_allowed(server, tmp_path):
    with pytest.raises(OSError, match="download_if_missing is False"):
        fetch_ett("ETTh1", data_home=tmp_path, download_if_missing=False)
    assert server.requests == []


def test_folder_that_cannot_be_made_is_one_clear_error(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="The data folder cannot be used"):
        fetch_ett("ETTh1", data_home=tmp_path / "file" / "data")
    (tmp_path / "ett").write_text("in the way")
    with pytest.raises(OSError, match="Could not fetch"):
        fetch_ett("ETTh1", data_home=tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder_is_one_clear_error(server, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match=r"Could not fetch .*Permission denied"):
        fetch_ett("ETTh1", data_home=tmp_path)
    tmp_path.chmod(0o700)


def test_concurrent_fetches_agree(server, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        bunches = [*pool.map(lambda _: fetch_ett("ETTh1", data_home=tmp_path), range(16))]
    assert all(bunch.target.tolist() == [30.5, 27.75] for bunch in bunches)
    assert files_in(tmp_path) == ["ett/ETTh1.csv"]


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"\['ETTh1', 'ETTh2'\]"):
        fetch_ett("ETTm1")


@pytest.mark.skipif(not ETT_DIR, reason="SKCURSE_ETT_DIR names no folder with the real files")
@pytest.mark.parametrize("name", ["ETTh1", "ETTh2"])
def test_the_real_files(name, monkeypatch):
    monkeypatch.undo()  # the real checksum
    bunch = fetch_ett(name, data_home=ETT_DIR, download_if_missing=False)
    assert bunch.data.shape == (17420, 6)
    assert np.isfinite(bunch.data).all()
    assert np.isfinite(bunch.target).all()
    assert np.all(np.diff(bunch.index) == np.timedelta64(1, "h"))
    assert [str(bunch.index[i]) for i in (0, -1)] == ["2016-07-01T00:00:00", "2018-06-26T19:00:00"]
