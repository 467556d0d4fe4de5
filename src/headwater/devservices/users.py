"""Running a server as somebody else: which user that is, and what that user can reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

# Where root keeps state of services that run as another user, when the chosen folder is closed to that user.
_OPEN_PLACE = Path("/var/lib/headwater")


def unprivileged() -> tuple[int, int] | None:
    """(uid, gid) of `nobody` when we are root, which some servers refuse to be; otherwise `None`: stay as we are."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return (65534, 65534)  # the kernel's overflow user, which is what `nobody` is made from
    return (entry.pw_uid, entry.pw_gid)


def can_reach(path: Path, user: tuple[int, int]) -> bool:
    """Whether the user may enter every folder above `path`, and read and enter (or run) `path` itself."""
    path = path.resolve()
    return all(_allows(folder, user, 0o1) for folder in path.parents) and _allows(path, user, 0o5)


def _allows(path: Path, user: tuple[int, int], bits: int) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid == user[0]:
        mode >>= 6
    elif status.st_gid == user[1]:
        mode >>= 3
    return mode & bits == bits


def open_place(folder: Path, identity: str, user: tuple[int, int] | None) -> Path:
    """A folder whose parents the user can enter: `folder` itself, or one elsewhere that is named by the identity.

    Elsewhere is found again from the identity alone. What is there already stays there, also when `folder` has
    become open since: nobody's data may depend on today's permissions.
    """
    if user is not None and (_elsewhere() / identity).exists():
        return _elsewhere() / identity
    if user is None or all(_allows(parent, user, 0o1) for parent in (folder.resolve(), *folder.resolve().parents)):
        return folder
    return _elsewhere() / identity


def forget_place(folder: Path, identity: str) -> None:
    """Remove what `open_place` led to elsewhere, once it is empty."""
    place = open_place(folder, identity, unprivileged())
    if place != folder:
        for empty in (place, place.parent):
            with suppress(OSError):  # not empty, or gone already
                empty.rmdir()


def _elsewhere() -> Path:
    existing = _OPEN_PLACE if _OPEN_PLACE.exists() else _OPEN_PLACE.parent
    if os.access(existing, os.W_OK):
        return _OPEN_PLACE
    return Path(tempfile.gettempdir()) / "headwater"


def make_folder(path: Path, owner: tuple[int, int] | None, mode: int) -> None:
    """The folder with exactly this owner and mode, parents included (those stay ours, open for passing through)."""
    if not path.parent.exists():
        make_folder(path.parent, None, 0o755)
    path.mkdir(exist_ok=True)
    if owner is not None:
        os.chown(path, *owner)
    path.chmod(mode)


def readable_copy(source: Path, target: Path) -> None:
    """Copy a tree so that everybody may read and run it; a copy that was cut short is made again."""
    if target.exists():
        return
    make_folder(target.parent, None, 0o755)
    temporary = target.with_name(f"{target.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary, ignore=shutil.ignore_patterns("include", "doc", "man"))
    for path in (temporary, *temporary.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    temporary.rename(target)
