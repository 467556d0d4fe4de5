"""Where a URI lives in each region: an index over the registry's prefixes, and the check that no two files collide."""

from headwater.regions.resolve.collide import check_injective, collision, sharing
from headwater.regions.resolve.cover import uncovered
from headwater.regions.resolve.model import Resolution, Rule, RuleKind
from headwater.regions.resolve.resolver import Replica, Replicas, Resolver

__all__ = [
    "Replica",
    "Replicas",
    "Resolution",
    "Resolver",
    "Rule",
    "RuleKind",
    "check_injective",
    "collision",
    "sharing",
    "uncovered",
]
