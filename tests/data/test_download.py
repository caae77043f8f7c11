import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from feature_alignment.data import download
from feature_alignment.data.download import fetch, has_checksum
from feature_alignment.errors import UserError

CONTENT = bytes(range(256)) * 4000  # 1 MB
CHECKSUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server:
    """A file server on this machine whose faults a test sets.

    `cut` answers end in the middle before whole ones are given; `status` and `content` of the
    others; `asked` counts requests.
    """

    def __init__(self):
        self.cut, self.status, self.content, self.asked = 0, 200, CONTENT, 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.content)))
                self.end_headers()
                whole = outer.asked > outer.cut
                self.wfile.write(outer.content if whole else outer.content[: len(CONTENT) // 2])

            def log_message(self, *arguments):
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/file.bin"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server(quick_downloads):
    server = Server()
    yield server
    server.close()


def test_file_is_fetched_once(server, tmp_path):
    path = tmp_path / "new" / "file.bin"
    fetch(server.url, CHECKSUM, path, print)
    fetch(server.url, CHECKSUM, path, print)
    assert path.read_bytes() == CONTENT
    assert server.asked == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("cut", range(1, download.TRIES))
def test_connections_cut_in_the_middle_are_tried_again(server, tmp_path, cut):
    server.cut = cut
    fetch(server.url, CHECKSUM, tmp_path / "file.bin", print)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == cut + 1


def test_connection_always_cut(server, tmp_path):
    server.cut = 99
    with pytest.raises(UserError, match=rf"{server.url} \(.*; tried {download.TRIES} times\)") as e:
        fetch(server.url, CHECKSUM, tmp_path / "file.bin", print)
    message = str(e.value)
    assert message.startswith(f"{tmp_path / 'file.bin'}: is missing, wanted {CHECKSUM}")
    assert message.endswith("place the file there by hand or use source 'npz'.")
    assert "\n" not in message
    assert server.asked == download.TRIES
    assert list(tmp_path.iterdir()) == []


def test_wrong_content_is_refused_and_not_kept(server, tmp_path):
    server.content = b"<html>log in first</html>"
    with pytest.raises(UserError, match="the content there does not have checksum sha256:"):
        fetch(server.url, CHECKSUM, tmp_path / "file.bin", print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("status", "message", "asked"),
    [
        (404, r"\(HTTP status 404 Not Found\)", 1),
        (403, "HTTP status 403", 1),
        (503, "HTTP status 503", download.TRIES),
    ],
)
def test_errors_of_the_server_are_tried_again_but_no_missing_file(
    server, tmp_path, status, message, asked
):
    server.status, server.content = status, b""
    with pytest.raises(UserError, match=message) as caught:
        fetch(server.url, CHECKSUM, tmp_path / "file.bin", print, alternative="use source 'file'")
    assert str(caught.value).endswith("or use source 'file'.")
    assert server.asked == asked
    assert list(tmp_path.iterdir()) == []


def test_a_download_without_end_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr("feature_alignment.data.archives.LIMIT", 1000)
    with pytest.raises(UserError, match="more than"):
        fetch(server.url, CHECKSUM, tmp_path / "file.bin", print)
    assert list(tmp_path.iterdir()) == []


def test_mirror_is_asked_when_the_first_address_fails(server, tmp_path):
    nowhere = "http://127.0.0.1:9/file.bin"
    with pytest.raises(UserError, match=r"(?i)refused"):
        fetch(nowhere, CHECKSUM, tmp_path / "file.bin", print)
    fetch(nowhere, CHECKSUM, tmp_path / "file.bin", print, mirrors=[server.url])
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_file_with_other_content_is_replaced_only_by_the_right_one(server, tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"half a download")
    server.status = 404
    with pytest.raises(UserError, match="is there with other content"):
        fetch(server.url, CHECKSUM, path, print)
    assert path.read_bytes() == b"half a download"
    server.status = 200
    fetch(server.url, CHECKSUM, path, print)
    assert path.read_bytes() == CONTENT


def test_md5_checksums(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert has_checksum(tmp_path / "a", "md5:900150983cd24fb0d6963f7d28e17f72")
    assert not has_checksum(tmp_path / "a", "md5:00")
    assert not has_checksum(tmp_path / "b", "md5:900150983cd24fb0d6963f7d28e17f72")


def test_progress_is_told(server, tmp_path):
    lines: list[str] = []
    server.cut = 1
    fetch(server.url, CHECKSUM, tmp_path / "file.bin", lines.append)
    assert lines[0] == f"file.bin: fetching from {server.url}"
    assert any("try 2 of" in line for line in lines)
    assert lines[-1] == "file.bin: fetched"
