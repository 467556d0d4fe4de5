"""Carrying a write out, once.

Promise: a request that carries a key is carried out at most once, however often it is sent, to however many servers of
one lake and database, and whenever any of them dies. One that carries none is carried out as often as it is sent. What
an error says of a write is true: only an unknown outcome leaves it open, and names the operation that settles it.

The order, which `access/requests.py` explains: claim the key, change the lake under the claimed operation and before
the claim's lease is over, keep the answer. A key that is found unanswered is looked up in the lake's log. There, a
commit answers at once. Nothing there proves nothing while the one who claimed it may still commit; afterwards the
operation is settled, and only then carried out anew, under an operation of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.access.decide import check_key, may_be_running, next_step
from headwater.access.model import Caller, KeyedRequest, Step
from headwater.catalog.errors import RefNotFoundError
from headwater.catalog.model import Commit
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError
from headwater.kernel.logs import Log
from headwater.publish.model import Attempt
from headwater.server.errors import InProgressError, KeyReusedError
from headwater.server.serving import Serving
from headwater.server.shapes import told

Body = Mapping[str, object]
Work = Callable[[Attempt], Body]

_log = Log("server")


@dataclass(frozen=True)
class Asked:
    """A write that is asked for: by whom, where, and under which key, if any; `digest` tells it from others."""

    caller: Caller
    branch: str
    key: str | None
    digest: str


@dataclass(frozen=True)
class Done:
    """What a write is answered; `is_replayed` says that it had been carried out before."""

    body: Body
    is_replayed: bool = False


def carry_out(serving: Serving, asked: Asked, work: Work, attempt: Attempt | None = None) -> Done:
    """Carry the write out, in this attempt if one is given, or find what came of it when it was."""
    attempt = attempt or serving.attempt()
    if asked.key is None:
        return Done(_run(serving, attempt, work))
    assert attempt.deadline is not None
    wanted = KeyedRequest(
        asked.caller.id, check_key(asked.key), asked.digest, asked.branch, attempt.operation, attempt.deadline
    )
    found = serving.requests.claim(wanted)
    match next_step(found, asked.digest):
        case Step.MISMATCH:
            raise KeyReusedError
        case Step.REPLAY:
            assert found is not None
            assert found.answer is not None
            return Done(json.loads(found.answer), is_replayed=True)
        case Step.LOOK:
            assert found is not None
            if (body := _looked_up(serving, found, attempt)) is not None:
                return Done(body, is_replayed=True)
        case Step.RUN:
            pass
    return Done(_run_claimed(serving, wanted, attempt, work))


def _looked_up(serving: Serving, found: KeyedRequest, attempt: Attempt) -> Body | None:
    """What became of a request that was never answered; None when nothing did, and its claim is ours now."""
    commit = _in_log(serving, found)
    if commit is None:
        if may_be_running(found, serving.clock.now(), serving.skew):
            raise InProgressError(found.operation)
        commit = serving.lake.writing.recovery.settle(found.operation, branch=found.branch)
    if commit is None:
        assert attempt.deadline is not None
        if not serving.requests.take_over(found, attempt.operation, attempt.deadline):
            raise InProgressError(found.operation)
        return None
    body = told(commit)
    _keep(serving, found, attempt=Attempt(found.operation), body=body)
    return body


def _in_log(serving: Serving, found: KeyedRequest) -> Commit | None:
    try:
        return serving.lake.catalog.outcome(found.branch, found.operation)
    except RefNotFoundError:
        return None


def _run_claimed(serving: Serving, wanted: KeyedRequest, attempt: Attempt, work: Work) -> Body:
    try:
        body = _run(serving, attempt, work)
    except OutcomeUnknownError:
        # Nobody works on it any more: whoever asks again need not wait for the lease.
        ended = serving.clock.now() - serving.skew
        _quietly(lambda: serving.requests.end(wanted, attempt.operation, ended))
        raise
    except HeadwaterError:
        _quietly(lambda: serving.requests.release(wanted, attempt.operation))
        raise
    _keep(serving, wanted, attempt=attempt, body=body)
    return body


def _run(serving: Serving, attempt: Attempt, work: Work) -> Body:
    """The work. An error that nobody foresaw says nothing about what was done before it."""
    with serving.flights.flying(attempt.operation):
        try:
            return work(attempt)
        except HeadwaterError:
            raise
        except Exception as error:
            _log.error("a write failed in a way that was not foreseen", cause=error, operation=attempt.operation)
            raise OutcomeUnknownError(
                "the write failed in a way that was not foreseen, and may have been committed",
                operation=attempt.operation,
                hint="ask the URL in `settle` before doing the work again",
            ) from error


def _keep(serving: Serving, request: KeyedRequest, *, attempt: Attempt, body: Body) -> None:
    _quietly(lambda: serving.requests.keep(request, attempt.operation, json.dumps(body)))


def _quietly(work: Callable[[], object]) -> None:
    """The lake is changed, or is not: that is what is answered. The log knows it too, should this fail."""
    try:
        work()
    except HeadwaterError as error:
        _log.warning("what came of a keyed request could not be noted", error=str(error))
