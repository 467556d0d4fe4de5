"""The next results are made by threads while one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def ahead(make: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R]:
    """What `make` gives of each item, in their order. As many are made ahead as there are threads, and no more.

    Who is slow to take them does not let them pile up. Whatever ends it, the end of its user too, ends the threads.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
