"""Verify that the files of a replica are there and are the right ones, before a commit names them (level 0).

Promise: when `verify` returns, every file was there with its size, and those of the sample, and those that must be
read, byte for byte. When it raises, the error names each file that is not, and the replica stays where it was.

Invariants
- A file is copied again at most once in a run; if it is wrong then, its source is, or the way to it.
- Only a destination where nothing was when the run was planned is ever overwritten (R6).
- Bytes are compared by SHA-256, of both ends as they are read now: an ETag is no checksum.
- Nothing is deleted.

Commit point: none; a verified batch is noted by whoever asked. A crash leaves files as they were, or one of them
copied again, whole; the next run looks at all files of the batch again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

from headwater.kernel.errors import UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.storage.errors import ObjectNotFoundError
from headwater.sync.copy.decide import alone
from headwater.sync.copy.protocol import CopyPorts
from headwater.sync.verify.decide import Remedy, by_content, by_size, is_read, remedy
from headwater.sync.verify.model import Finding, VerifyFailedError, VerifyItem, VerifyReport

_CHUNK_BYTES = 8 * 1024 * 1024
_AT_ONCE = 1000
_log = Log("sync.verify")


class Verifier:
    """Looks at files, `concurrency` at a time; `rate` of them are read.

    Without `needs_proof` a file whose source is out of reach everywhere is believed by its size.
    """

    def __init__(self, ports: CopyPorts, *, rate: float, concurrency: int = 32, needs_proof: bool = True) -> None:
        self._ports = ports
        self._rate = rate
        self._concurrency = concurrency
        self._needs_proof = needs_proof

    def verify(self, items: Iterable[VerifyItem]) -> VerifyReport:
        """Look at all files, and make good what can be made good. The files are taken some at a time, never all."""
        report = VerifyReport()
        wrong: list[Finding] = []
        left = iter(items)
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="verify") as pool:
            while some := list(islice(left, _AT_ONCE)):
                findings = list(pool.map(self._look, some))
                report = _counted(report, findings)
                again = [finding for finding in findings if not finding.is_right]
                mended = list(pool.map(self._mend, again))
                report = replace(report, recopied_files=report.recopied_files + sum(is_new for _, is_new in mended))
                wrong.extend(finding for finding, _ in mended if not finding.is_right)
        if wrong:
            raise VerifyFailedError(wrong)
        return report

    def _look(self, verified: VerifyItem) -> Finding:
        found = by_size(verified, self._length(verified.item.destination))
        if not found.is_right or not is_read(verified, self._rate):
            return found
        actual = self._digest(verified.item.destination)
        if actual is None:
            return by_size(verified, None)
        expected, origin = self._reference(verified)
        if expected is None and not self._needs_proof:
            return replace(found, read_bytes=verified.item.size_bytes)
        return by_content(verified, expected, actual, origin, verified.item.size_bytes)

    def _mend(self, finding: Finding) -> tuple[Finding, bool]:
        """The file after the one remedy that it gets, and whether it was copied again."""
        what = remedy(finding)
        if what not in (Remedy.COPY, Remedy.REPLACE):
            return finding, False
        item = finding.verified.item
        _log.warning("a copy is wrong and is made again", file=item.destination, verdict=str(finding.verdict))
        for origin in self._origins(finding):
            moved = self._ports.mover.move(
                alone(item, origin, self._ports.prefixes), lambda _: None, replace=what is Remedy.REPLACE
            )
            hit(Failpoint.VERIFY_AFTER_RECOPY)
            if moved.copied or moved.present:
                return self._look(replace(finding.verified, must_read=True)), True
        return finding, False

    def _origins(self, finding: Finding) -> Iterator[str]:
        """Where the bytes can be had: where they were compared with, the source, the other regions."""
        item = finding.verified.item
        known = dict.fromkeys((finding.origin, item.source, *self._ports.alternatives(item.source)))
        for uri in known:
            if uri is not None and uri != item.destination and self._length(uri) == item.size_bytes:
                yield uri

    def _reference(self, verified: VerifyItem) -> tuple[str | None, str | None]:
        """The checksum that the file must have, and the file it was read from: the source, or its copy elsewhere."""
        item = verified.item
        if item.checksum is not None:
            return item.checksum, None
        for uri in (item.source, *self._ports.alternatives(item.source)):
            # A file is never its own proof.
            if uri != item.destination and (read := self._digest_of(uri)) is not None:
                return read, uri
        return None, None

    def _digest_of(self, uri: str) -> str | None:
        """The SHA-256 of a file to compare with; where no proof is needed, one that is out of reach is passed over."""
        try:
            return self._digest(uri)
        except UnavailableError:
            if self._needs_proof:
                raise
            return None

    def _length(self, uri: str) -> int | None:
        store, path = self._ports.files.place(uri)
        try:
            return store.head(path).size_bytes
        except ObjectNotFoundError:
            return None

    def _digest(self, uri: str) -> str | None:
        """The SHA-256 of a file, read in pieces; None when it is not there."""
        store, path = self._ports.files.place(uri)
        digest = hashlib.sha256()
        try:
            size_bytes = store.head(path).size_bytes
            for start in range(0, size_bytes, _CHUNK_BYTES):
                digest.update(store.get(path, span=(start, min(start + _CHUNK_BYTES, size_bytes))).data)
        except ObjectNotFoundError:
            return None
        return digest.hexdigest()


def _counted(report: VerifyReport, findings: list[Finding]) -> VerifyReport:
    read = [finding.read_bytes for finding in findings if finding.read_bytes]
    return replace(
        report,
        checked_files=report.checked_files + len(findings),
        read_files=report.read_files + len(read),
        read_bytes=report.read_bytes + sum(read),
    )
