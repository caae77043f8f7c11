"""Fetch one published file: checked, retried, all or nothing."""

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from feature_alignment.errors import UserError

Report = Callable[[str], None]

TIMEOUT_SECONDS = 30
TRIES = 4
FIRST_WAIT_SECONDS = 1.0


class _Percentages:
    """What pooch calls on a progress bar, told as a message for every tenth of the file."""

    def __init__(self, report: Report, name: str) -> None:
        self.total = 0
        self._report = report
        self._name = name
        self._done = 0
        self._told = 0

    def update(self, amount: int) -> None:
        self._done += amount
        tenths = 10 * self._done // self.total if self.total else 0
        if self._told < tenths < 10:
            self._told = tenths
            self._report(f"{self._name}: {10 * tenths} % of {self.total / 1e6:.1f} MB")

    def reset(self) -> None:
        self._done = self._told = 0

    def close(self) -> None:
        self._report(f"{self._name}: fetched")


def file_digest(path: Path, algorithm: str) -> str:
    """Hexadecimal digest, "md5" or "sha256", of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def has_checksum(path: Path, checksum: str) -> bool:
    """Whether a file is there and has a checksum, "md5:…" or "sha256:…", hexadecimal."""
    algorithm, _, digest = checksum.partition(":")
    return path.is_file() and file_digest(path, algorithm) == digest


def fetch(
    url: str,
    checksum: str,
    path: Path,
    *,
    mirrors: Sequence[str] = (),
    alternative: str = "use source 'npz'",
    report: Report | None = None,
) -> None:
    """Download a file, unless it is there with the right checksum.

    Each address is tried `TRIES` times, with growing waits, from the start of the file; one that
    answers "no such file" is not tried again. Nothing is left at `path` that lacks the checksum.

    Args:
        url: the address.
        checksum: "md5:…" or "sha256:…", hexadecimal.
        path: where the file goes.
        mirrors: other addresses of the same file, tried in turn.
        alternative: what the user can do without the file, for the message.
        report: told the progress, one line at a time.

    Raises:
        UserError: if no address gives the file.
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


def _fetch_from(url: str, checksum: str, path: Path, report: Report | None) -> str | None:
    """Try one address; the reason if it fails for good."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        if report:
            again = f", try {attempt + 1} of {TRIES} after: {reason}" if attempt else ""
            report(f"{path.name}: fetching from {url}{again}")
        downloader = pooch.HTTPDownloader(
            # pooch takes any object with tqdm's methods, but declares a bool.
            progressbar=_Percentages(report, path.name) if report else False,  # pyright: ignore[reportArgumentType]
            chunk_size=2**20,
            timeout=TIMEOUT_SECONDS,
        )
        try:
            # pooch's own downloader does not have the type that pooch declares.
            pooch.retrieve(url, checksum, path.name, path.parent, downloader=downloader)  # pyright: ignore[reportArgumentType]
            return None
        except requests.HTTPError as error:
            status = getattr(error.response, "status_code", None)
            reason = f"HTTP status {status} {getattr(error.response, 'reason', '')}"
            if status in (401, 403, 404, 410):
                return reason
        except requests.RequestException as error:
            reason = _connection_reason(error)
        except ValueError:  # pooch's answer to a wrong checksum
            reason = f"the content there does not have checksum {checksum}"
    return f"{reason}; tried {TRIES} times"


def _connection_reason(error: Exception) -> str:
    """The innermost cause: requests wraps the readable sentence several times."""
    while error.args and isinstance(error.args[0], Exception):
        error = error.args[0]
    reason = getattr(error, "reason", None)
    return str(reason or error).strip() or type(error).__name__
