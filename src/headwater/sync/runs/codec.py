"""Names and contents as the database holds them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from headwater.catalog.model import Content, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel.errors import CorruptError

_KINDS: Final = {"table": TableContent, "view": ViewContent, "namespace": NamespaceContent}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_key(key: TableKey) -> str:
    """A name, whatever characters it has."""
    return json.dumps(key.elements, ensure_ascii=False)


def decode_key(text: str) -> TableKey:
    """The name again."""
    *namespace, name = json.loads(text)
    return TableKey(tuple(namespace), name)


def encode_content(content: Content) -> str:
    """A content, with its kind."""
    return json.dumps({"kind": _NAMES[type(content)], **asdict(content)}, ensure_ascii=False)


def decode_content(text: str) -> Content:
    """The content again; what a newer version wrote is refused."""
    values = json.loads(text)
    kind = _KINDS.get(values.pop("kind", ""))
    if kind is None:
        raise CorruptError(f"a sync has noted what this version does not know: {text}")
    made: Content = kind(**values)
    return made
