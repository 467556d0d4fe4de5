"""Where sidecars lie: `__recovery/<operation>.json`, created if absent, never changed, deleted at the end."""

from __future__ import annotations

from headwater.kernel.ids import Ulid
from headwater.publish.codec import decode_sidecar, encode_sidecar
from headwater.publish.errors import SidecarCorruptError
from headwater.publish.model import Sidecar
from headwater.storage.errors import ObjectNotFoundError
from headwater.storage.port import Create, ObjectStore

FOLDER = "__recovery"
SUFFIX = ".json"


class Sidecars:
    """The sidecars of a lake. A list that fails is an error for whoever asked: drift is not passed over in silence.

    Those of this process are remembered while they are there: they never change, and each of many writers at once
    would read those of all the others.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._own: dict[str, Sidecar] = {}

    def write(self, sidecar: Sidecar) -> None:
        """Phase A."""
        path = path_of(sidecar.operation)
        self._store.put(path, encode_sidecar(sidecar), Create())
        self._own[path] = sidecar

    def settle(self, operation: Ulid) -> None:
        """Make sure that a sidecar that was found stays: its writer may have died before it was durable."""
        self._store.settle(path_of(operation))

    def delete(self, operation: Ulid) -> None:
        """Phase D."""
        path = path_of(operation)
        self._store.delete(path)
        self._own.pop(path, None)

    def read(self, operation: Ulid) -> Sidecar | None:
        """The sidecar of this operation, if there is one."""
        path = path_of(operation)
        try:
            return decode_sidecar(self._store.get(path).data, path)
        except ObjectNotFoundError:
            return None

    def pending(self) -> tuple[Sidecar, ...]:
        """Every sidecar that is there, oldest first; one that cannot be read is an error that names it."""
        found = []
        for meta in self._store.list(FOLDER):
            try:
                found.append(self._own.get(meta.path) or decode_sidecar(self._store.get(meta.path).data, meta.path))
            except ObjectNotFoundError:
                continue  # finished meanwhile
        return tuple(sorted(found, key=lambda sidecar: sidecar.operation))

    def readable(self) -> tuple[tuple[Sidecar, ...], tuple[SidecarCorruptError, ...]]:
        """What can be read, and what cannot, for those who only look."""
        sound, broken = [], []
        for meta in self._store.list(FOLDER):
            try:
                sound.append(decode_sidecar(self._store.get(meta.path).data, meta.path))
            except ObjectNotFoundError:
                continue
            except SidecarCorruptError as error:
                broken.append(error)
        return tuple(sound), tuple(broken)


def path_of(operation: Ulid) -> str:
    """Where the sidecar of this operation lies."""
    return f"{FOLDER}/{operation}{SUFFIX}"
