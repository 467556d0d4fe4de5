"""Verifying copies: the decisions row by row, and the whole through its public face, in memory."""

from __future__ import annotations

import hashlib

import pytest

from headwater.storage.errors import TransientError
from headwater.storage.port import ObjectMeta, Overwrite
from headwater.sync.copy.model import CopyItem
from headwater.sync.verify import protocol
from headwater.sync.verify.decide import Remedy, by_content, by_size, is_read, is_sampled, remedy
from headwater.sync.verify.model import Finding, Verdict, VerifyFailedError, VerifyItem, VerifyReport
from tests.unit.copy_world import World

pytestmark = pytest.mark.proves("verified copies")
ITEM = CopyItem("s3://us/x", "s3://eu/x", 4)
LOCAL = CopyItem("s3://eu/x", "s3://eu/x", 4)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.3, 1.0])
def test_the_sample_is_of_its_rate_and_always_the_same(rate: float) -> None:
    uris = [f"s3://eu/table/{number}.parquet" for number in range(10_000)]
    chosen = {uri for uri in uris if is_sampled(uri, rate)}
    assert chosen == {uri for uri in reversed(uris) if is_sampled(uri, rate)}
    assert len(chosen) / len(uris) == pytest.approx(rate, rel=0.2)
    # A larger sample holds the smaller one.
    assert chosen <= {uri for uri in uris if is_sampled(uri, min(1.0, rate + 0.1))}


@pytest.mark.parametrize(
    ("verified", "rate", "expected"),
    [
        (VerifyItem(ITEM), 0.0, False),
        (VerifyItem(ITEM), 1.0, True),
        (VerifyItem(ITEM, must_read=True), 0.0, True),
        (VerifyItem(LOCAL), 1.0, False),
        (VerifyItem(LOCAL, must_read=True), 1.0, False),
        (VerifyItem(CopyItem("s3://eu/x", "s3://eu/x", 4, "ab"), must_read=True), 0.0, True),
    ],
)
def test_what_is_read(verified: VerifyItem, rate: float, expected: bool) -> None:
    assert is_read(verified, rate) is expected


def test_what_sizes_and_bytes_tell() -> None:
    verified = VerifyItem(ITEM)
    assert by_size(verified, None).verdict is Verdict.MISSING
    assert by_size(verified, 4).verdict is Verdict.RIGHT
    for other in (0, 3, 5):
        assert by_size(verified, other).verdict is Verdict.SIZE
    assert by_content(verified, "ab", "ab", "s3://us/x", 4).verdict is Verdict.RIGHT
    assert by_content(verified, "ab", "cd", "s3://us/x", 4).verdict is Verdict.CONTENT
    assert by_content(verified, None, "cd", None, 4).verdict is Verdict.UNPROVEN


@pytest.mark.parametrize(
    ("verdict", "may_replace", "origin", "expected"),
    [
        (Verdict.RIGHT, True, None, Remedy.NOTHING),
        (Verdict.RIGHT, False, None, Remedy.NOTHING),
        (Verdict.MISSING, True, None, Remedy.COPY),
        (Verdict.MISSING, False, None, Remedy.COPY),
        (Verdict.SIZE, True, None, Remedy.REPLACE),
        (Verdict.SIZE, False, None, Remedy.FAIL),
        (Verdict.CONTENT, True, "s3://us/x", Remedy.REPLACE),
        (Verdict.CONTENT, True, None, Remedy.REPLACE),  # by a checksum that is known
        (Verdict.CONTENT, False, "s3://us/x", Remedy.FAIL),
        (Verdict.CONTENT, True, "s3://asia/x", Remedy.FAIL),
        (Verdict.UNPROVEN, True, None, Remedy.FAIL),
        (Verdict.UNPROVEN, False, None, Remedy.FAIL),
    ],
)
def test_what_is_done_about_a_finding(
    verdict: Verdict, may_replace: bool, origin: str | None, expected: Remedy
) -> None:
    assert remedy(Finding(VerifyItem(ITEM, may_replace), verdict, origin=origin)) is expected


def copied(world: World, path: str, data: bytes = b"data", *, may_replace: bool = True) -> VerifyItem:
    item = world.item(path, data)
    world.copy([item])
    return VerifyItem(item, may_replace)


def damage(world: World, verified: VerifyItem, data: bytes | None) -> None:
    store, path = world.files.place(verified.item.destination)
    store.delete(path)
    if data is not None:
        store.put(path, data, Overwrite())


def test_right_files_are_right_and_counted() -> None:
    world = World()
    items = [copied(world, f"f{number}", b"x" * number) for number in range(5)]
    assert world.verifier(rate=0.0).verify(items) == VerifyReport(checked_files=5)
    # One is empty: there is nothing to read of it, and nothing that could differ.
    assert world.verifier(rate=1.0).verify(items) == VerifyReport(5, 4, 10)
    assert world.mover.replaced == []


@pytest.mark.parametrize("data", [None, b"", b"dat", b"dataa"])
def test_a_wrong_size_is_found_without_a_sample_and_made_good_once(data: bytes | None) -> None:
    world = World()
    items = [copied(world, f"f{number}") for number in range(3)]
    damage(world, items[1], data)
    report = world.verifier().verify(items)
    assert (report.checked_files, report.recopied_files) == (3, 1)
    assert [world.read(each.item.destination) for each in items] == [b"data"] * 3


def test_other_bytes_of_the_same_size_are_found_by_reading_only() -> None:
    world = World()
    items = [copied(world, "f")]
    damage(world, items[0], b"DATA")
    world.verifier(rate=0.0).verify(items)
    assert world.read("s3://eu/lake/f") == b"DATA"
    assert world.verifier(rate=1.0).verify(items).recopied_files == 1
    assert world.read("s3://eu/lake/f") == b"data"


def test_a_file_that_must_be_read_is_read_whatever_the_sample() -> None:
    world = World()
    verified = copied(world, "f")
    damage(world, verified, b"DATA")
    assert world.verifier().verify([VerifyItem(verified.item, may_replace=True, must_read=True)]).recopied_files == 1


def test_a_copy_that_is_wrong_again_fails_the_run_and_is_named() -> None:
    world = World()
    world.mover.damaged = {"bad": (2, b"DATA")}
    items = [copied(world, "good"), copied(world, "bad")]
    with pytest.raises(VerifyFailedError, match="s3://eu/lake/bad has the SHA-256") as caught:
        world.verifier(rate=1.0).verify(items)
    assert caught.value.fields["files"] == ["s3://eu/lake/bad"]
    assert caught.value.fields["expected"] == hashlib.sha256(b"data").hexdigest()
    assert world.mover.replaced == ["s3://eu/lake/bad"]  # once, and no more


@pytest.mark.hazard("R6")
@pytest.mark.parametrize(("data", "said"), [(b"mine", "SHA-256"), (b"my own", "has 6 bytes and not 4")])
def test_r6_a_file_that_was_there_before_is_never_overwritten(data: bytes, said: str) -> None:
    world = World()
    item = world.item("f")
    world.write("eu", "f", data)
    with pytest.raises(VerifyFailedError, match=said) as caught:
        world.verifier().verify([VerifyItem(item, must_read=True)])
    assert "remove the wrong one" in str(caught.value.hint)
    assert world.read(item.destination) == data
    assert world.mover.legs == []


def test_a_file_that_is_missing_is_copied_even_if_it_was_there_before() -> None:
    world = World()
    item = world.item("f")
    assert world.verifier().verify([VerifyItem(item)]).recopied_files == 1
    assert world.read(item.destination) == b"data"


def test_a_known_checksum_needs_no_source() -> None:
    world = World()
    verified = copied(world, "f")
    world.stores["us"].delete("f")
    checksum = hashlib.sha256(b"data").hexdigest()
    known = VerifyItem(CopyItem(verified.item.source, verified.item.destination, 4, checksum), must_read=True)
    assert world.verifier().verify([known]).read_files == 1
    damage(world, verified, b"DATA")
    with pytest.raises(VerifyFailedError, match=checksum):
        world.verifier().verify([known])


def test_the_copy_in_a_third_region_is_the_proof_when_the_source_is_gone() -> None:
    world = World()
    verified = copied(world, "f")
    world.stores["us"].delete("f")
    read = VerifyItem(verified.item, may_replace=True, must_read=True)
    with pytest.raises(VerifyFailedError, match="s3://us/f is gone from every region"):
        world.verifier().verify([read])
    world.write("asia", "f", b"data")
    assert world.verifier().verify([read]).read_files == 1
    # It may also be another file of that name: a copy is not replaced by it.
    world.stores["asia"].put("f", b"DATA", Overwrite())
    with pytest.raises(VerifyFailedError, match="SHA-256"):
        world.verifier().verify([read])
    assert world.read(verified.item.destination) == b"data"


def test_a_file_is_never_its_own_proof() -> None:
    world = World()
    world.write("eu", "f", b"data")
    local = CopyItem("s3://eu/lake/f", "s3://eu/lake/f", 4)
    assert world.verifier(rate=1.0).verify([VerifyItem(local)]) == VerifyReport(checked_files=1)
    with pytest.raises(VerifyFailedError, match="cannot be compared"):
        world.verifier().verify([VerifyItem(CopyItem("s3://us/f", "s3://eu/lake/f", 4), must_read=True)])


def test_a_local_file_that_is_missing_is_brought_from_another_region_or_named() -> None:
    world = World()
    local = VerifyItem(CopyItem("s3://eu/lake/f", "s3://eu/lake/f", 4))
    with pytest.raises(VerifyFailedError, match="s3://eu/lake/f is missing"):
        world.verifier().verify([local])
    world.write("us", "f", b"data")
    assert world.verifier().verify([local]).recopied_files == 1
    assert world.read("s3://eu/lake/f") == b"data"


def test_many_wrong_files_are_all_named() -> None:
    world = World()
    items = [VerifyItem(CopyItem(f"s3://us/{n}", f"s3://eu/lake/{n}", 4)) for n in range(1500)]
    with pytest.raises(VerifyFailedError, match="and 1499 more files are wrong") as caught:
        world.verifier().verify(iter(items))
    assert len(caught.value.findings) == 1500


def test_a_large_file_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_CHUNK_BYTES", 10)
    world = World()
    data = bytes(range(256)) * 4
    verified = copied(world, "f", data)
    report = world.verifier(rate=1.0).verify([verified])
    assert report.read_bytes == 1024
    damage(world, verified, data[:-1] + b"!")
    assert world.verifier(rate=1.0).verify([verified]).recopied_files == 1


def test_a_store_that_does_not_answer_is_no_missing_file(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    verified = copied(world, "f")

    def silent(path: str) -> ObjectMeta:
        raise TransientError("s3://eu", path, "connection refused")

    monkeypatch.setattr(world.stores["eu"], "head", silent)
    with pytest.raises(TransientError):
        world.verifier().verify([verified])
