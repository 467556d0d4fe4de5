"""Clock, ids, durations, retry, metrics, errors."""

from __future__ import annotations

import inspect
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater.kernel.errors as errors_module
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.durations import format_duration, parse_duration
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError, UnavailableError, UsageError
from headwater.kernel.ids import new_ulid, parse_ulid, time_of
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.kernel.randomness import seeded, system_randomness
from headwater.kernel.retry import Retry, RetryPolicy


class TestUlids:
    def test_shape_and_time(self) -> None:
        clock = ManualClock(datetime(2026, 11, 15, 8, 30, 0, 123000, tzinfo=UTC))
        ulid = new_ulid(clock, seeded(1))
        assert len(ulid) == 26
        assert parse_ulid(ulid) == ulid
        assert time_of(ulid) == clock.now()

    @given(st.integers(0, 2**40), st.integers(1, 10**8))
    def test_they_sort_by_time(self, start_milliseconds: int, later_milliseconds: int) -> None:
        clock = ManualClock(datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=start_milliseconds))
        first = new_ulid(clock, seeded(1))
        clock.advance(timedelta(milliseconds=later_milliseconds))
        assert first < new_ulid(clock, seeded(2))

    def test_they_differ_within_a_millisecond(self) -> None:
        clock, randomness = ManualClock(), system_randomness()
        assert len({new_ulid(clock, randomness) for _ in range(1000)}) == 1000

    def test_a_known_one(self) -> None:
        """The example of the ULID specification (github.com/ulid/spec)."""
        assert time_of(parse_ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV")) == datetime(
            2016, 7, 30, 23, 54, 10, 259000, tzinfo=UTC
        )

    @pytest.mark.parametrize(
        "text", ["", "01ARZ3NDEKTSV4RRFFQ69G5FA", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01arz3ndektsv4rrffq69g5fav", "I" * 26]
    )
    def test_what_is_none_is_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_ulid(text)


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("250ms", 0.25), ("30s", 30), ("15m", 900), ("6h", 21600), ("7d", 604800), ("0s", 0), ("1.5h", 5400)],
    )
    def test_parse(self, text: str, seconds: float) -> None:
        assert parse_duration(text).total_seconds() == seconds

    @pytest.mark.parametrize("text", ["", "5", "-1s", "1w", "s", "1 h", "1e3s", "9" * 400 + "d", "999999999999d"])
    def test_refuse(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_duration(text)

    @pytest.mark.parametrize("text", ["250ms", "30s", "15m", "6h", "7d", "20833d", "0ms"])
    def test_format(self, text: str) -> None:
        assert format_duration(parse_duration(text)) == text

    def test_the_future_has_no_age(self) -> None:
        assert format_duration(timedelta(days=-400)) == "0ms"


class TestRetry:
    def test_until_it_works(self) -> None:
        clock = ManualClock()
        left = [UnavailableError("1"), UnavailableError("2")]

        def action() -> str:
            if left:
                raise left.pop()
            return "done"

        assert Retry(RetryPolicy(attempts=3), clock, seeded(1)).call(action, on=(UnavailableError,)) == "done"
        assert clock.monotonic() > 0

    def test_the_last_error_is_raised(self) -> None:
        tries = []

        def action() -> None:
            tries.append(1)
            raise UnavailableError(f"try {len(tries)}")

        with pytest.raises(UnavailableError, match="try 4"):
            Retry(RetryPolicy(attempts=4), ManualClock(), seeded(1)).call(action, on=(UnavailableError,))

    def test_other_errors_are_not_retried(self) -> None:
        tries = []

        def action() -> None:
            tries.append(1)
            raise UsageError("no")

        with pytest.raises(UsageError):
            Retry(RetryPolicy(), ManualClock(), seeded(1)).call(action, on=(UnavailableError,))
        assert len(tries) == 1

    def test_the_budget_ends_it_early(self) -> None:
        clock = ManualClock()
        policy = RetryPolicy(attempts=1000, first_seconds=1, longest_seconds=1, budget_seconds=5)
        patience = Retry(policy, clock, seeded(1)).patience()
        tries = 0
        while patience.wait():
            tries += 1
        assert 5 <= tries < 30
        assert clock.monotonic() <= 5

    def test_a_first_attempt_that_took_long_does_not_use_the_budget_up(self) -> None:
        clock = ManualClock()
        patience = Retry(RetryPolicy(budget_seconds=5), clock, seeded(1)).patience()
        clock.sleep(60)
        assert patience.wait()

    def test_jitter_spreads_callers(self) -> None:
        delays = {next(RetryPolicy().delays(seeded(seed))) for seed in range(20)}
        assert len(delays) == 20

    def test_delays_grow_to_a_ceiling(self) -> None:
        class Most(random.Random):
            def random(self) -> float:
                return 1.0

        policy = RetryPolicy(attempts=6, first_seconds=1, longest_seconds=5)
        assert list(policy.delays(Most())) == [1, 2, 4, 5, 5]


class TestMetrics:
    COUNTER = Metric("things_total", MetricKind.COUNTER, "Things.", labels=("kind",))
    GAUGE = Metric("level", MetricKind.GAUGE, "Level.")
    HISTOGRAM = Metric("took_seconds", MetricKind.HISTOGRAM, "Took.")

    def test_values_and_exposition(self) -> None:
        metrics = Metrics()
        metrics.count(self.COUNTER, kind="a")
        metrics.count(self.COUNTER, 2, kind="a")
        metrics.level(self.GAUGE, 7)
        metrics.observe(self.HISTOGRAM, 0.1)
        assert metrics.value(self.COUNTER, kind="a") == 3
        assert metrics.value(self.COUNTER, kind="b") == 0
        assert metrics.value(self.GAUGE) == 7
        assert metrics.value(self.HISTOGRAM) == 1
        text = metrics.exposition().decode()
        assert 'things_total{kind="a"} 3.0' in text
        assert "# HELP took_seconds Took." in text

    def test_two_registries_do_not_mix(self) -> None:
        one, two = Metrics(), Metrics()
        one.count(self.COUNTER, kind="a")
        assert two.value(self.COUNTER, kind="a") == 0


class TestErrors:
    def test_every_exit_code_is_one_of_the_contract(self) -> None:
        classes = [
            each for _, each in inspect.getmembers(errors_module, inspect.isclass) if issubclass(each, HeadwaterError)
        ]
        assert {each.__name__: each.exit_code for each in classes} == {
            "HeadwaterError": 1,
            "UsageError": 2,
            "ConflictError": 3,
            "RefusedError": 4,
            "UnavailableError": 5,
            "OutcomeUnknownError": 1,
            "CorruptError": 1,
        }

    def test_fields_and_hint(self) -> None:
        error = OutcomeUnknownError("lost", operation="01X", hint="look", path="a/b")
        assert error.operation == "01X"
        assert str(error) == "lost (look)"
        assert error.as_json() == {
            "error": "lost", "kind": "OutcomeUnknown", "hint": "look", "operation": "01X", "path": "a/b",
        }  # fmt: skip


def test_the_system_clock_moves() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.now().tzinfo is UTC
