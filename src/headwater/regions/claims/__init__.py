"""Claims on files by runs that need them, and deletions that respect them (hazard G3)."""

from headwater.regions.claims.model import Claimed, ClaimRun, DeleteVerdict, Deletion, Opened
from headwater.regions.claims.protocol import Claims

__all__ = ["ClaimRun", "Claimed", "Claims", "DeleteVerdict", "Deletion", "Opened"]
