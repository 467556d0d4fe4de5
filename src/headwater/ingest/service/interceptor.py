"""Calls pass the gate, and errors become statuses, for every call alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from headwater.ingest import pieces
from headwater.ingest.service.failures import code_of, details_of, trailer_of
from headwater.ingest.service.gate import Gate
from headwater.kernel.errors import UsageError
from headwater.kernel.logs import Log

_log = Log("ingest")
_SERIALIZERS = {"/headwater.ingest.v1.IngestNode/Scan": pieces.written}


class Statuses(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps the handler of each call."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler, with its errors translated."""
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        make = _MAKERS[handler.request_streaming, handler.response_streaming]
        kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        inner: Callable[..., Any] = next(each for each in kinds if each is not None)
        wrap = _streaming if handler.response_streaming else _single
        wrapped = wrap(inner, method, self._gate)
        return make(
            wrapped,
            request_deserializer=_lenient(handler.request_deserializer),
            response_serializer=_SERIALIZERS.get(method, handler.response_serializer),
        )


_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class _Unreadable:
    """Bytes that are no message of the call. gRPC itself would say INTERNAL, as if it were the node's fault."""


def _lenient(read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    def readable(data: bytes) -> object:
        try:
            return read(data) if read is not None else data
        except DecodeError:
            return _Unreadable()

    return readable


def _checked(request: object) -> object:
    if isinstance(request, _Unreadable):
        raise UsageError("the bytes are no message of this call", hint="send what the protocol describes")
    return request


def _taken(request: object) -> object:
    return map(_checked, request) if isinstance(request, Iterator) else _checked(request)


def _single(inner: Callable[..., Any], method: str, gate: Gate) -> Callable[..., Any]:
    def call(request: object, context: grpc.ServicerContext) -> object:
        try:
            with gate.entered(method):
                return inner(_taken(request), context)
        except Exception as error:
            _end(error, method, context)

    return call


def _streaming(inner: Callable[..., Iterator[Any]], method: str, gate: Gate) -> Callable[..., Iterator[Any]]:
    def call(request: object, context: grpc.ServicerContext) -> Iterator[object]:
        try:
            with gate.entered(method):
                yield from inner(_taken(request), context)
        except Exception as error:
            _end(error, method, context)

    return call


def _end(error: Exception, method: str, context: grpc.ServicerContext) -> NoReturn:
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL:
        _log.error("a call failed", method=method, error=repr(error))
    context.set_trailing_metadata(trailer_of(error))
    context.abort(code, details_of(error))
