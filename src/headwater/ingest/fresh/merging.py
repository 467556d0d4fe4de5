"""Several sources read at a time, into one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _Item(Generic[T]):
    value: T


@dataclass(frozen=True)
class _End:
    error: BaseException | None


def merged(sources: Sequence[Callable[[], Iterable[T]]]) -> Iterator[T]:
    """What all sources give, as it comes; each is read by a thread, and two items of each wait at most.

    The first error ends it. Threads end with their next item, or when what they read from is closed.
    """
    found: Queue[_Item[T] | _End] = Queue(2 * len(sources))
    is_over = threading.Event()
    for source in sources:
        threading.Thread(target=_pour, args=(source, found, is_over), name="source", daemon=True).start()
    left = len(sources)
    try:
        while left:
            got = found.get()
            if isinstance(got, _Item):
                yield got.value
            elif got.error is None:
                left -= 1
            else:
                raise got.error
    finally:
        is_over.set()
        # Whoever waits for room has it now, and sees that it is over.
        with suppress(Empty):
            while True:
                found.get_nowait()


def _pour(source: Callable[[], Iterable[T]], into: Queue[_Item[T] | _End], is_over: threading.Event) -> None:
    try:
        for item in source():
            if is_over.is_set():
                return
            into.put(_Item(item))
    except BaseException as error:
        into.put(_End(error))
    else:
        into.put(_End(None))
