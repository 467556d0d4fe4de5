"""The way of a region's readers, with hysteresis: away at once, back only after a while. Pure."""

from __future__ import annotations

from datetime import datetime

from headwater.sync.route.model import Health, Routed, RouteLimits, RouteState, Way


def first(now: datetime) -> RouteState:
    """Where readers are sent before anything is known."""
    return RouteState(Way.LOCAL, now)


def step(state: RouteState, health: Health, now: datetime, limits: RouteLimits) -> Routed:
    """Where readers are sent from now on.

    They leave a replica that is down or stale at once, and come back when it has been well for the whole of the
    observation window. A single bad look in it begins the window anew, so that nobody is sent to and fro.
    """
    trouble = _trouble(health, now, limits)
    if state.way is Way.LOCAL:
        if trouble is None:
            return Routed(RouteState(Way.LOCAL, state.since), "the local replica is well")
        return Routed(RouteState(Way.PRIMARY, now), trouble, asks_forward=True)
    if trouble is not None:
        return Routed(RouteState(Way.PRIMARY, state.since), trouble, asks_forward=True)
    well_since = state.well_since or now
    if now - well_since >= limits.well_for:
        return Routed(RouteState(Way.LOCAL, now), "the local replica has been well for the observation window")
    left = (limits.well_for - (now - well_since)).total_seconds()
    return Routed(
        RouteState(Way.PRIMARY, state.since, well_since), f"the local replica is well; observed for {left:.0f} s more"
    )


def _trouble(health: Health, now: datetime, limits: RouteLimits) -> str | None:
    if health.fault is not None:
        return f"the local replica {health.fault}"
    if health.lacks_since is not None and now - health.lacks_since > limits.stale_after:
        behind = (now - health.lacks_since).total_seconds()
        return f"the local replica is {behind:.0f} s behind, more than {limits.stale_after.total_seconds():.0f} s"
    return None
