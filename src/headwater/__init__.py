"""Headwater: a lakehouse that runs across regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.lake import Lake

__version__ = "0.1.0"


def open(url: str, *, read_only: bool = False, region: str | None = None) -> Lake:  # noqa: A001
    """The lake at this URL, with the settings of the working folder and the environment.

    A writer of a region puts its files under that region's prefix, as the lake's registry says.
    """
    # Imported here, so that `import headwater` costs nothing.
    from headwater.app import App
    from headwater.kernel import settings

    return App(settings.load()).open_lake(url, read_only=read_only, region=region)


def init(url: str) -> Lake:
    """Make the folder or prefix a lake, or the Nessie repository, unless it is one, and open it."""
    from headwater.app import App
    from headwater.kernel import settings

    return App(settings.load()).init_lake(url)
