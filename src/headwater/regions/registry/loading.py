"""Reading a registry that a person wrote."""

from __future__ import annotations

from pathlib import Path

from headwater.kernel.errors import UsageError
from headwater.regions.registry.decide import to_registry
from headwater.regions.registry.document import parse_yaml
from headwater.regions.registry.model import Registry


def load_registry(file: Path) -> Registry:
    """The registry in a YAML file; `RegistryInvalidError` with the line of each mistake."""
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8: byte {error.start}", hint="save it as UTF-8 text", path=str(file)
        ) from None
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}", hint="name a YAML file that you may read", path=str(file)
        ) from None
    return parse_registry(text, str(file))


def parse_registry(text: str, name: str = "registry") -> Registry:
    """The registry that a YAML text describes; `name` is how messages call it."""
    return to_registry(parse_yaml(text, name), name)
