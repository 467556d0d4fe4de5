"""A document with the line of each of its values, read from YAML or made from JSON.

The YAML is taken as nodes, which know where they stand, and not as Python objects, which do not. A key that stands
twice in one mapping is a mistake: a parser would silently keep one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from headwater.regions.errors import Mistake, RegistryInvalidError

Plain = str | int | float | bool | None
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Mapped:
    """A mapping, with the line of each key."""

    values: dict[str, Located] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Located:
    """A value and the line on which it begins; 0 when it has none."""

    value: Plain | Mapped | tuple[Located, ...]
    line: int = 0


def parse_yaml(text: str, name: str) -> Located:
    """The one document that the text holds; whatever is wrong with its form is told with its line."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        problem = str(error.problem or error.context)
        hint = "indent with spaces: YAML takes no tabs there" if "\\t" in problem else "look at this line, and above it"
        raise RegistryInvalidError(name, [Mistake(line, "", f"not YAML: {problem}", hint)]) from None
    except yaml.YAMLError as error:
        raise RegistryInvalidError(name, [Mistake(0, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    except RecursionError:
        raise RegistryInvalidError(name, [Mistake(0, "", "it is nested too deeply")]) from None
    if node is None:
        raise RegistryInvalidError(name, [Mistake(1, "", "the file is empty", "it begins with `version: 2`")])
    reading = _Reading()
    located = reading.value(node, "")
    if reading.mistakes:
        raise RegistryInvalidError(name, sorted(reading.mistakes, key=lambda each: each.line))
    return located


def from_values(value: object) -> Located:
    """The same of values that have no lines."""
    if isinstance(value, Mapping):
        return Located(Mapped({str(key): from_values(each) for key, each in value.items()}))
    if isinstance(value, list):
        return Located(tuple(from_values(each) for each in value))
    return Located(value if isinstance(value, str | int | float) else None)


@dataclass
class _Reading:
    mistakes: list[Mistake] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def value(self, node: yaml.Node, at: str) -> Located:
        line = node.start_mark.line + 1
        if id(node) in self._seen:
            # It may hold itself, or a tower of others; where it stands is not where it is meant.
            self.mistakes.append(Mistake(line, at, "it is used again by an alias", "write it out"))
            return Located(None, line)
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return Located(self._mapping(node, at), line)
        if isinstance(node, yaml.SequenceNode):
            return Located(tuple(self.value(each, f"{at}[{number}]") for number, each in enumerate(node.value)), line)
        assert isinstance(node, yaml.ScalarNode)
        return Located(self._scalar(node, at), line)

    def _mapping(self, node: yaml.MappingNode, at: str) -> Mapped:
        found = Mapped()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag != f"{_TAG}str":
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "here"
                self.mistakes.append(Mistake(line, at, f"the key {shown} is not text", "write it in quotes"))
                continue
            key = key_node.value
            inner = f"{at}.{key}" if at else key
            if key in found.values:
                first = found.key_lines[key]
                self.mistakes.append(Mistake(line, inner, f"it stands here and on line {first}", "keep one of the two"))
                continue
            found.key_lines[key] = line
            found.values[key] = self.value(value_node, inner)
        return found

    def _scalar(self, node: yaml.ScalarNode, at: str) -> Plain:
        """Text, whole numbers, yes and no: the registry has nothing else."""
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() in ("yes", "true", "on")
            case "int" if text.isascii() and text.isdecimal():
                return int(text)
            case _:
                line, hint = node.start_mark.line + 1, "write it in quotes if it is text"
                self.mistakes.append(Mistake(line, at, f"{text} is read as {kind}", hint))
                return None
