"""Which names are taken while a script goes on. Tables, views and namespaces share one set of names."""

from __future__ import annotations

from difflib import get_close_matches

from headwater.catalog.model import NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel.errors import UsageError
from headwater.publish.schema.model import Kind, Standing
from headwater.query.references import folded


class Names:
    """The names as they stand after the statements so far."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._taken: dict[TableKey, Kind] = {
            key: _kind(content) for key, content in standing.contents.items() if content is not None
        }
        self._others = {folded(str(key)): key for key in standing.names if key not in standing.contents}

    def kind(self, key: TableKey) -> Kind | None:
        """What the name stands for."""
        return self._taken.get(key)

    def spelled(self, key: TableKey) -> TableKey:
        """The name as it is spelled, where only capitals differ; as it was given when there is none."""
        if key in self._taken:
            return key
        same = [each for each in self._taken if folded(str(each)) == folded(str(key))]
        return same[0] if len(same) == 1 else key

    def found(self, key: TableKey, kind: Kind) -> TableKey | None:
        """The name as it is spelled, if it stands for such a thing; None when it stands for nothing."""
        key = self.spelled(key)
        actual = self._taken.get(key)
        if actual is not None and actual is not kind:
            raise UsageError(f"{key} is a {actual}, not a {kind}", table=str(key))
        return None if actual is None else key

    def there(self, key: TableKey, kind: Kind, *, if_exists: bool) -> TableKey | None:
        """The same for a name that must stand for something, unless the script says `IF EXISTS`."""
        found = self.found(key, kind)
        if found is not None or if_exists:
            return found
        known = {each for each, other in self._taken.items() if other is kind} | set(self._others.values())
        near = get_close_matches(str(key), sorted(map(str, known)), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "IF EXISTS passes over it"
        raise UsageError(f"there is no {kind} {key}", hint=hint, table=str(key))

    def take(self, key: TableKey, kind: Kind, *, origin: TableKey | None = None) -> None:
        """The name stands for this from now on; `origin` is the name that it had before the script."""
        taken = self.spelled(key)
        if taken in self._taken:
            differs = "" if taken == key else ", which differs from it in capitals alone"
            raise UsageError(
                f"there is a {self._taken[taken]} {taken} already{differs}", hint="choose another name", table=str(key)
            )
        if (other := self._others.get(folded(str(key)))) is not None:
            raise UsageError(
                f"{key} and {other} differ in capitals alone, and SQL cannot tell them apart",
                hint="choose another name",
                table=str(key),
            )
        if self._standing.contents.get(key) is not None and origin != key:
            raise UsageError(
                f"{key} is something else until this script is applied, and one commit cannot make it another thing",
                hint="let it go in one script, and take its name in the next",
                table=str(key),
            )
        parent = key.parent
        if parent is not None and self._taken.get(parent) is not Kind.NAMESPACE:
            raise UsageError(
                f"{key} would be in namespace {parent}, which is not there",
                hint=f"CREATE NAMESPACE {parent} before it, in the same script",
                table=str(key),
            )
        self._taken[key] = kind

    def free(self, key: TableKey) -> None:
        """The name stands for nothing from now on."""
        del self._taken[key]

    def inside(self, namespace: TableKey) -> TableKey | None:
        """Something that is in this namespace, if anything is known to be."""
        everything = {*self._taken, *self._others.values()}
        return next((each for each in sorted(everything) if each.is_in(namespace.elements)), None)


def _kind(content: TableContent | ViewContent | NamespaceContent) -> Kind:
    match content:
        case TableContent():
            return Kind.TABLE
        case ViewContent():
            return Kind.VIEW
        case NamespaceContent():
            return Kind.NAMESPACE
