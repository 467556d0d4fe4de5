"""How an error is answered in JSON."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class Problem(JSONResponse):
    """JSON in ASCII: an error may quote what is no text at all."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False).encode()


def problem(status: int, code: str, message: str, hint: str | None = None, **more: object) -> Problem:
    """An error that is none of the lake's."""
    return Problem({"error": message, "code": code, "hint": hint, **more}, status)
