"""Fetch one published file: verified, with retries, all or nothing."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import requests

from feature_alignment.data.archives import refuse_size
from feature_alignment.errors import UserError
from feature_alignment.files import whole_file

Report = Callable[[str], None]
"""Receives progress messages, one line at a time."""

TIMEOUT_SECONDS = 30
TRIES = 4
FIRST_WAIT_SECONDS = 1.0


def has_checksum(path: Path, checksum: str) -> bool:
    """Whether a file exists and has a checksum, "md5:…" or "sha256:…", hexadecimal."""
    algorithm, _, digest = checksum.partition(":")
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest() == digest


def fetch(
    url: str,
    checksum: str,
    path: Path,
    report: Report,
    *,
    mirrors: Sequence[str] = (),
    alternative: str = "use source 'npz'",
) -> None:
    """Download a file, unless it exists with the right checksum.

    The address, then each of the mirrors, is tried `TRIES` times, with growing waits, always from
    the start of the file; one that answers "no such file" is not tried again. Only a download with
    the checksum, see `has_checksum`, is written to `path`. The error names the `alternative`.

    Raises:
        UserError: if the file cannot be fetched from any address.
    """
    if has_checksum(path, checksum):
        return
    reasons = []
    for address in (url, *mirrors):
        reason = _fetch_from(address, checksum, path, report)
        if reason is None:
            return
        reasons.append(f"{address} ({reason})")
    state = "is there with other content" if path.exists() else "is missing"
    raise UserError(
        f"{path}: {state}, wanted {checksum}, and could not be fetched from "
        f"{' nor from '.join(reasons)}; place the file there by hand or {alternative}."
    )


def _fetch_from(url: str, checksum: str, path: Path, report: Report) -> str | None:
    """Try one address; return the reason if it finally fails, else None."""
    reason = again = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
            again = f", try {attempt + 1} of {TRIES} after: {reason}"
        report(f"{path.name}: fetching from {url}{again}")
        try:
            _download(url, checksum, path, report)
            return None
        except FileNotFoundError as error:
            return str(error)
        except (requests.RequestException, ValueError) as error:
            reason = _innermost(error)
    return f"{reason}; tried {TRIES} times"


def _download(url: str, checksum: str, path: Path, report: Report) -> None:
    with (
        whole_file(path) as partial,
        requests.get(url, stream=True, timeout=TIMEOUT_SECONDS) as answer,
    ):
        if answer.status_code != 200:
            kind = FileNotFoundError if answer.status_code in (401, 403, 404, 410) else ValueError
            raise kind(f"HTTP status {answer.status_code} {answer.reason}")
        total, told = int(answer.headers.get("Content-Length", 0)), 0
        with partial.open("wb") as file:
            for chunk in answer.iter_content(2**20):
                file.write(chunk)
                refuse_size(file.tell())
                tenths = 10 * file.tell() // total if total else 0
                if told < tenths < 10:
                    told = tenths
                    report(f"{path.name}: {10 * tenths} % of {total / 1e6:.1f} MB")
        if not has_checksum(partial, checksum):
            raise ValueError(f"the content there does not have checksum {checksum}")
    report(f"{path.name}: fetched")


def _innermost(error: Exception) -> str:
    """The innermost cause: requests wraps the readable message several times."""
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    return str(reason or error).strip() or type(error).__name__
