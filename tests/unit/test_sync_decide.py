"""The decisions of a sync, row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headwater.catalog.model import Content, Delete, NamespaceContent, Put, TableContent, TableKey, ViewContent
from headwater.sync.catchup.decide import next_target, pressure
from headwater.sync.catchup.model import Limits, Pending, Target
from headwater.sync.model import Origin, Times, origin_of, spelled, times_of
from headwater.sync.observe.decide import lags
from headwater.sync.promote.decide import after_conflict, before_commit, promotion, standing
from headwater.sync.promote.model import Gate, Next, Standing
from headwater.sync.route.decide import first, step
from headwater.sync.route.model import Health, RouteLimits, RouteState, Way

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECOND = timedelta(seconds=1)
OPEN, SHUT = Gate(is_visible=True, do_contents_load=True), Gate(is_visible=True, do_contents_load=False)


def origin(name: str, age_seconds: float = 0) -> Origin:
    return Origin(name, NOW - timedelta(seconds=age_seconds))


class TestCatchUp:
    LIMITS = Limits(
        forward_commits=3, forward_after=60 * SECOND, alarm_after=100 * SECOND, alarm_backlog_bytes=1_000_000
    )

    @pytest.mark.parametrize(
        ("pending", "is_asked", "expected"),
        [
            (None, False, None),
            (None, True, None),
            (Pending(1, origin("a"), origin("a")), False, Target(origin("a"))),
            (Pending(1, origin("a", 999), origin("a", 999)), True, Target(origin("a", 999))),
            (Pending(3, origin("a"), origin("c")), False, Target(origin("a"))),
            (Pending(4, origin("a"), origin("d")), False, Target(origin("d"), is_forward=True)),
            (Pending(2, origin("a", 60), origin("b")), False, Target(origin("a", 60))),
            (Pending(2, origin("a", 61), origin("b")), False, Target(origin("b"), is_forward=True)),
            (Pending(2, origin("a"), origin("b")), True, Target(origin("b"), is_forward=True)),
        ],
    )
    def test_next_target(self, pending: Pending | None, is_asked: bool, expected: Target | None) -> None:
        assert next_target(pending, NOW, self.LIMITS, is_forward_asked=is_asked) == expected

    @pytest.mark.parametrize(
        ("age_seconds", "backlog_bytes", "words"),
        [(100, 1_000_000, []), (101, 0, ["oldest commit"]), (0, 1_000_001, ["bytes wait"])],
    )
    def test_pressure(self, age_seconds: int, backlog_bytes: int, words: list[str]) -> None:
        found = pressure(Pending(1, origin("a", age_seconds), origin("a")), backlog_bytes, NOW, self.LIMITS)
        assert found.is_raised is bool(words)
        assert [word in reason for word, reason in zip(words, found.reasons, strict=True)] == [True] * len(words)


class TestStanding:
    @pytest.mark.parametrize(
        ("shown", "is_on_main", "is_target_before", "expected"),
        [
            (None, False, False, Standing.NOWHERE),
            (origin("m5"), True, False, Standing.AT),
            (origin("m4"), True, False, Standing.BEHIND),
            (origin("m7"), True, True, Standing.PAST),
            (origin("m7"), False, True, Standing.OFF_MAIN),  # main was moved back to m5: the replica follows
            (origin("x1"), False, False, Standing.OFF_MAIN),
        ],
    )
    def test_standing(self, shown: Origin | None, is_on_main: bool, is_target_before: bool, expected: Standing) -> None:
        found = standing(shown, origin("m5"), is_shown_on_main=is_on_main, is_target_before_shown=is_target_before)
        assert found is expected

    @pytest.mark.hazard("R2")
    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (Standing.NOWHERE, Next.PLAN_AGAIN),
            (Standing.BEHIND, Next.PLAN_AGAIN),
            (Standing.AT, Next.STOP),
            (Standing.PAST, Next.STOP),
            (Standing.OFF_MAIN, Next.PLAN_AGAIN),
        ],
    )
    def test_who_lost_never_goes_back(self, where: Standing, expected: Next) -> None:
        assert after_conflict(where) is expected

    @pytest.mark.parametrize(
        ("where", "is_target_on_main", "gate", "waited_seconds", "expected"),
        [
            (Standing.BEHIND, True, OPEN, 0, Next.COMMIT),
            (Standing.NOWHERE, True, OPEN, 0, Next.COMMIT),
            (Standing.OFF_MAIN, True, OPEN, 0, Next.COMMIT),
            (Standing.BEHIND, True, SHUT, 0, Next.WAIT),
            (Standing.BEHIND, True, SHUT, 9.9, Next.WAIT),
            (Standing.BEHIND, True, SHUT, 10, Next.GIVE_UP),
            (Standing.BEHIND, True, OPEN, 10, Next.COMMIT),
            (Standing.BEHIND, False, OPEN, 0, Next.PLAN_AGAIN),
            (Standing.AT, True, SHUT, 0, Next.STOP),
            (Standing.PAST, True, OPEN, 0, Next.STOP),
            (Standing.PAST, False, OPEN, 0, Next.STOP),
        ],
    )
    def test_before_the_commit(
        self, where: Standing, is_target_on_main: bool, gate: Gate, waited_seconds: float, expected: Next
    ) -> None:
        waited = timedelta(seconds=waited_seconds)
        found = before_commit(
            where, is_target_on_main=is_target_on_main, gate=gate, waited=waited, patience=10 * SECOND
        )
        assert found is expected

    @pytest.mark.parametrize("gate", [Gate(False, False), Gate(True, False), Gate(False, True)])
    def test_a_gate_needs_both(self, gate: Gate) -> None:
        assert not gate.is_open


def table(identity: str, place: str) -> TableContent:
    return TableContent(identity, place, 1, 0, 0, 0)


class TestPromotion:
    def test_changes(self) -> None:
        t, u, v, new, ns = (TableKey.parse(name) for name in ("db.t", "db.u", "db.v", "db.new", "x.y"))
        shown: dict[TableKey, Content] = {
            t: table("replica-t", "old"),
            u: table("replica-u", "same"),
            v: table("replica-v", "v"),
            ns: NamespaceContent("n", {"a": "1"}),
        }
        localised: dict[TableKey, Content] = {
            t: table("origin-t2", "new"),  # dropped and made again on main
            u: table("origin-u", "same"),
            v: ViewContent("origin-v", "view", 1, 0),
            new: table("origin-new", "n"),
        }
        found = promotion(localised, shown)
        assert found.changes == {
            t: Put(table("replica-t", "new")),
            v: Put(ViewContent("origin-v", "view", 1, 0)),
            new: Put(table("origin-new", "n")),
            ns: Delete(),
        }
        assert found.expected == {t: shown[t], v: None, new: None, ns: shown[ns]}
        assert found.removals == {v: shown[v]}

    def test_nothing_to_do(self) -> None:
        shown = {TableKey.parse("t"): table("a", "x")}
        localised = {key: replace(each, content_id="b") for key, each in shown.items()}
        assert promotion(localised, shown).changes == {}


class TestRoute:
    LIMITS = RouteLimits(stale_after=30 * SECOND, well_for=10 * SECOND)
    WELL, DOWN = Health(), Health(fault="does not answer")

    def stale(self, seconds: float) -> Health:
        return Health(lacks_since=NOW - timedelta(seconds=seconds))

    def test_it_begins_near(self) -> None:
        assert first(NOW) == RouteState(Way.LOCAL, NOW)

    @pytest.mark.parametrize(
        ("health_of", "way", "asks"),
        [("well", Way.LOCAL, False), (30.0, Way.LOCAL, False), (30.1, Way.PRIMARY, True), ("down", Way.PRIMARY, True)],
    )
    def test_away_at_once(self, health_of: str | float, way: Way, asks: bool) -> None:
        known = {"well": self.WELL, "down": self.DOWN}
        health = known[health_of] if isinstance(health_of, str) else self.stale(health_of)
        routed = step(first(NOW), health, NOW, self.LIMITS)
        assert (routed.state.way, routed.asks_forward) == (way, asks)

    def test_back_only_after_the_whole_window(self) -> None:
        state = step(first(NOW), self.DOWN, NOW, self.LIMITS).state
        ways = []
        # Well from 1 s on, down once at 8 s, well from 9 s on: back at 19 s and not before.
        for second in range(1, 20):
            health = self.DOWN if second == 8 else self.WELL
            state = step(state, health, NOW + second * SECOND, self.LIMITS).state
            ways.append(state.way)
        assert ways == [Way.PRIMARY] * 18 + [Way.LOCAL]


class TestLags:
    TIMES = Times(NOW, NOW + 2 * SECOND, NOW + 5 * SECOND, NOW + 4 * SECOND)

    def test_by_the_formulas(self) -> None:
        found = lags(self.TIMES, NOW + 9 * SECOND, {"writer_data_write_end_ts": spelled(NOW - 3 * SECOND)})
        assert found.regional_commit_seconds == 4
        assert found.end_to_end_seconds == 5
        assert found.read_ready_seconds == 9
        assert found.writer_to_read_ready_seconds == 12

    @pytest.mark.parametrize("said", [{}, {"writer_data_write_end_ts": "soon"}])
    def test_a_writer_that_does_not_say(self, said: dict[str, str]) -> None:
        assert lags(self.TIMES, NOW + 9 * SECOND, said).writer_to_read_ready_seconds == 9

    def test_clocks_that_disagree(self) -> None:
        assert lags(self.TIMES, NOW - SECOND, {}).read_ready_seconds == 0


class TestProperties:
    def test_there_and_back(self) -> None:
        properties = {"origin_main_hash": "h", **TestLags.TIMES.properties}
        assert times_of(properties) == TestLags.TIMES
        assert origin_of(properties) == Origin("h", NOW)

    @pytest.mark.parametrize(
        "lost", ["origin_main_created_ts", "data_copy_end_ts", "localize_end_ts", "replica_commit_created_ts"]
    )
    def test_what_is_lacking_is_not_guessed(self, lost: str) -> None:
        properties = TestLags.TIMES.properties
        del properties[lost]
        assert times_of(properties) is None

    @pytest.mark.parametrize(
        "properties",
        [{}, {"origin_main_hash": "h"}, {"origin_main_hash": "h", "origin_main_created_ts": "2026-01-01T00:00:00"}],
    )
    def test_an_origin_that_cannot_be_read_is_unknown(self, properties: dict[str, str]) -> None:
        assert origin_of(properties) is None
