"""Reading, opening, and bad input."""

from __future__ import annotations

import pytest

from headwater.kernel.errors import CorruptError, UsageError
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.history import History
from headwater.sequence.model import (
    Entry,
    Namespace,
)
from headwater.sequence.protocol import Sequencer
from headwater.storage.caching import CachingStore
from headwater.storage.confined import ReadOnlyStore
from headwater.storage.errors import (
    MissingCapabilityError,
    ObjectNotFoundError,
)
from headwater.storage.port import Create, Overwrite
from tests.unit.hooks import HookedStore
from tests.unit.sequence_world import (
    BOUNDARY,
    NAMESPACE,
    World,
)


@pytest.fixture
def world() -> World:
    return World()


class TestLatest:
    @pytest.mark.hazard("S1")
    def test_s1_a_hint_behind_the_boundary_is_dropped(self, world: World) -> None:
        """Its successors were collected, so probing finds nothing and the hint would look like the latest."""
        reader = world.open()
        world.append(2)
        assert reader.latest() is not None
        world.append(3)
        world.collect()
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 5

    @pytest.mark.hazard("S1")
    def test_s1_the_boundary_is_read_after_the_object(self, world: World) -> None:
        """The collection happens between the probe and the look at the boundary."""
        reader = world.open()
        world.append(2)
        reader.latest()

        world.store.before("get", "3.manifest", world.overtake)
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 5
        gets = [path for op, path in world.store.calls if op == "get"]
        assert gets[-1] == BOUNDARY

    def test_everything_behind_the_boundary_is_damage(self, world: World) -> None:
        world.append(2)
        world.memory.put(BOUNDARY, b"2", Create())
        with pytest.raises(CorruptError, match="covers everything"):
            world.open().latest()
        with pytest.raises(CorruptError, match="covers everything"):
            world.collect()
        assert world.ids() == [1, 2]


class TestBadInput:
    @pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", "../x", ".hidden", "gc", "a b", "ä", "a\n"])
    def test_namespace_names(self, name: str) -> None:
        with pytest.raises(UsageError):
            Namespace("lake", name, ".manifest")

    @pytest.mark.parametrize("suffix", ["", "manifest", ".", "./x", "..", ".a/b"])
    def test_suffixes(self, suffix: str) -> None:
        with pytest.raises(UsageError):
            Namespace("lake", "manifest", suffix)

    @pytest.mark.parametrize("root", ["..", "/lake", "a//b", "a/../b"])
    def test_roots(self, root: str) -> None:
        with pytest.raises(UsageError):
            Namespace(root, "manifest", ".manifest")

    @pytest.mark.parametrize(
        "name",
        [
            "garbage.manifest",
            "1.manifest",
            "00000000000000000004",
            "00000000000000000004.other",
            "00000000000000000000.manifest",
            "99999999999999999999.manifest",
            "0000000000000000000x.manifest",
            "00000000000000000004.manifest.bak",
            "sub/00000000000000000004.manifest",
            "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤.manifest",
        ],
    )
    def test_an_object_whose_name_is_not_an_id(self, world: World, name: str) -> None:
        world.append(3)
        path = f"lake/manifest/{name}"
        world.memory.put(path, b"?", Create())
        before = list(world.memory.list())
        with pytest.raises(CorruptError) as caught:
            world.open().latest()
        assert caught.value.fields["path"] == path
        with pytest.raises(CorruptError):
            world.collect()
        assert list(world.memory.list()) == before

    def test_a_shared_folder_passes_over_what_has_another_ending(self, world: World) -> None:
        namespace = Namespace("table", "metadata", ".metadata.json", shared_folder=True)
        sequencer = Sequencer(world.store, namespace, clock=world.clock, randomness=world.randomness)
        sequencer.write(b"1", after=None)
        world.memory.put("table/metadata/snap-1.avro", b"?", Create())
        fresh = Sequencer(world.store, namespace, clock=world.clock, randomness=world.randomness)
        assert fresh.latest() is not None
        world.memory.put("table/metadata/v1.metadata.json", b"?", Create())
        with pytest.raises(CorruptError, match=r"v1\.metadata\.json"):
            list(sequencer.listing())

    @pytest.mark.parametrize("cut", [0, 1, 30, 60, -1])
    def test_a_truncated_object(self, world: World, cut: int) -> None:
        world.append(2)
        path = NAMESPACE.path_of(2)
        whole = world.memory.get(path).data
        world.memory.put(path, whole[:cut], Overwrite())
        before = list(world.memory.list())
        with pytest.raises(CorruptError, match=r"00000000000000000002\.manifest"):
            world.open().latest()
        with pytest.raises(CorruptError, match=r"00000000000000000002\.manifest"):
            world.open().update(lambda _: b"over it")
        assert list(world.memory.list()) == before

    def test_a_flipped_bit(self, world: World) -> None:
        world.append(1)
        path = NAMESPACE.path_of(1)
        whole = world.memory.get(path).data
        world.memory.put(path, whole[:-1] + bytes([whole[-1] ^ 1]), Overwrite())
        with pytest.raises(CorruptError, match="truncated or damaged"):
            world.open().latest()

    def test_a_newer_format_is_refused(self, world: World) -> None:
        world.append(1)
        path = NAMESPACE.path_of(1)
        whole = world.memory.get(path).data
        world.memory.put(path, whole.replace(b"headwater-sequenced 1", b"headwater-sequenced 2"), Overwrite())
        with pytest.raises(CorruptError, match="newer"):
            world.open().latest()

    def test_the_last_id_there_is(self, world: World) -> None:
        last = Entry(2**64 - 1, world.append(1)[0].writer, None, b"")
        with pytest.raises(UsageError):
            world.open().write(b"x", after=last)
        data = EnvelopeCodec().encode(Body(last.writer, None, b""))
        world.memory.put(BOUNDARY, str(2**64 - 2).encode(), Create())
        world.memory.put(NAMESPACE.path_of(last.id), data, Create())
        sequencer = world.open()
        assert sequencer.latest() == sequencer.latest()

    def test_reading_what_is_not_there(self, world: World) -> None:
        with pytest.raises(ObjectNotFoundError):
            world.open().read(1)
        with pytest.raises(UsageError):
            world.open().read(0)


class TestOpening:
    @pytest.mark.hazard("S5")
    def test_s5_not_over_a_cache(self, world: World) -> None:
        with pytest.raises(MissingCapabilityError, match="memory://"):
            world.open(CachingStore(world.memory, capacity_bytes=1000))
        with pytest.raises(MissingCapabilityError):
            world.open(HookedStore(CachingStore(world.memory, capacity_bytes=1000)))

    def test_reading_needs_no_right_to_write(self, world: World) -> None:
        world.append(2)
        reader = History(ReadOnlyStore(world.memory), NAMESPACE, clock=world.clock, randomness=world.randomness)
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 2

    def test_writing_over_a_read_only_store_is_refused(self, world: World) -> None:
        with pytest.raises(MissingCapabilityError):
            world.open(ReadOnlyStore(world.memory))
