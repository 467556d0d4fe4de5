"""What copies the files of one registry: into folders by ourselves, into buckets by rclone.

rclone would put a file into a folder without syncing it, and over one that has just appeared there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.kernel.settings import Settings
from headwater.regions.registry.model import Registry
from headwater.sync.copy.elsewhere import Elsewhere
from headwater.sync.copy.model import Leg, Locator, Moved, Mover, Progress
from headwater.sync.copy.protocol import CopyPorts
from headwater.sync.copy.rclone import RcloneMover, RcloneOptions, find_rclone
from headwater.sync.copy.remotes import Remotes
from headwater.sync.copy.stores import StoreMover

_FOLDER = "file://"


def open_ports(registry: Registry, files: Locator, settings: Settings, environ: Mapping[str, str]) -> CopyPorts:
    """The ports of copy and verify; rclone is looked for when the first file needs it."""
    sync = settings.sync
    bandwidth = sync.copy_bandwidth_bytes_per_second

    def open_rclone() -> Mover:
        options = RcloneOptions(
            find_rclone(sync.rclone, environ),
            transfers=sync.copy_transfers,
            # The processes share it; rclone knows no other limit than its own.
            bandwidth_bytes_per_second=None if bandwidth is None else max(1, bandwidth // sync.copy_processes),
            configuration=sync.rclone_config,
        )
        remotes = Remotes.of(registry, settings.storage.s3, configured=sync.rclone_config is not None)
        return RcloneMover(options, remotes, environ)

    prefixes = tuple(region.local_prefix for region in registry.regions)
    return CopyPorts(FittingMover(StoreMover(files), open_rclone), files, Elsewhere(registry), prefixes)


class FittingMover:
    """Takes the mover that fits a leg."""

    def __init__(self, into_folders: Mover, open_other: Callable[[], Mover]) -> None:
        self._into_folders = into_folders
        self._open_other = open_other
        self._other: Mover | None = None

    def move(self, leg: Leg, progress: Progress, *, replace: bool = False) -> Moved:
        """Copy a leg."""
        if leg.destination_root.startswith(_FOLDER):
            return self._into_folders.move(leg, progress, replace=replace)
        if self._other is None:
            self._other = self._open_other()
        return self._other.move(leg, progress, replace=replace)
