"""Token buckets by a clock of the test: bursts, debts, overrides, waiting requests, and forgotten principals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.errors import KafkaCode, LimitExceededError, WriteOutcome
from confplane.services.limits import (
    BULK_REQUEST,
    WAITING,
    Allowance,
    Bucket,
    LimitClass,
    Limiter,
    LimitOverride,
    RateLimit,
    RateLimits,
)
from tests.support.clock import Clock

ALICE = Identity("User:alice", Authentication.TOKEN)
DEFAULTS = RateLimits(
    {LimitClass.READ: RateLimit(10, 5), LimitClass.BULK: RateLimit(100, 1000), LimitClass.WRITE: RateLimit(1, 2)},
    waiting=2,
)


def limiter(clock: Clock[float], overrides: dict[str, LimitOverride] | None = None, *, most: int = 100) -> Limiter:
    return Limiter(DEFAULTS, overrides, most=most, clock=clock)


def allowance(
    clock: Clock[float], identity: Identity = ALICE, overrides: dict[str, LimitOverride] | None = None
) -> Allowance:
    found = limiter(clock, overrides).of(identity)
    assert found is not None
    return found


def taken(of: Allowance, kind: LimitClass, most: int = 1000) -> int:
    """The number of requests that are admitted at once."""
    for count in range(most):
        try:
            of.take(kind)
        except LimitExceededError:
            return count
    return most


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    clock = Clock(1000.0)
    alice = allowance(clock)
    assert taken(alice, LimitClass.READ) == 5
    clock.now += 0.05
    assert taken(alice, LimitClass.READ) == 0
    clock.now += 0.05
    assert taken(alice, LimitClass.READ) == 1
    clock.now += 3600
    assert taken(alice, LimitClass.READ) == 5


def test_a_refusal_says_who_how_much_and_how_long() -> None:
    clock = Clock(1000.0)
    alice = allowance(clock)
    taken(alice, LimitClass.WRITE)
    with pytest.raises(LimitExceededError) as refused:
        alice.take(LimitClass.WRITE)
    error = refused.value
    assert (error.code, error.retriable) == (KafkaCode.THROTTLING_QUOTA_EXCEEDED, True)
    assert (error.throttle_ms, error.retry_after_s, error.outcome) == (1000, 1, WriteOutcome.NOT_APPLIED)
    assert "User:alice has used up its limit on this process: 1 writes a second, and 2 at once" in error.detail
    clock.now += error.throttle_ms / 1000
    alice.take(LimitClass.WRITE)


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock(1000.0)
    alice = allowance(clock)
    taken(alice, LimitClass.READ)
    for _ in range(1000):
        with pytest.raises(LimitExceededError):
            alice.take(LimitClass.READ)
    clock.now += 0.5
    assert taken(alice, LimitClass.READ) == 5


def test_work_after_admission_may_overdraw_and_the_next_request_waits() -> None:
    clock = Clock(1000.0)
    alice = allowance(clock)
    alice.take(LimitClass.WRITE)
    alice.charge(LimitClass.WRITE, 499)
    assert alice.throttle_ms(LimitClass.WRITE) == 499_000
    with pytest.raises(LimitExceededError) as refused:
        alice.take(LimitClass.WRITE)
    assert refused.value.retry_after_s == 499
    clock.now += 499
    assert alice.throttle_ms(LimitClass.WRITE) == 0
    alice.take(LimitClass.WRITE)


def test_a_bulk_read_costs_by_its_items_and_something_by_itself() -> None:
    alice = allowance(Clock(1000.0))
    alice.take(LimitClass.BULK)
    alice.charge(LimitClass.BULK, 10)
    assert dict(alice.headers(LimitClass.BULK))[b"ratelimit"] == b'"bulk";r=%d;t=1' % (1000 - BULK_REQUEST - 10)


def test_classes_are_apart_and_a_class_without_a_limit_has_none() -> None:
    alice = allowance(Clock(1000.0))
    taken(alice, LimitClass.READ)
    assert taken(alice, LimitClass.WRITE) == 2
    assert taken(alice, LimitClass.ADMIN) == 1000
    assert alice.throttle_ms(LimitClass.ADMIN) == 0


def test_headers_are_those_of_the_draft() -> None:
    clock = Clock(1000.0)
    alice = allowance(clock)
    policy = (b"ratelimit-policy", b'"read";q=5;w=1')
    assert alice.headers(LimitClass.READ) == (policy, (b"ratelimit", b'"read";r=5;t=0'))
    taken(alice, LimitClass.READ)
    assert alice.headers(LimitClass.READ) == (policy, (b"ratelimit", b'"read";r=0;t=1'))
    alice.charge(LimitClass.READ, 100)
    assert alice.headers(LimitClass.READ) == (policy, (b"ratelimit", b'"read";r=0;t=11'))
    clock.now += 10.3
    assert alice.headers(LimitClass.READ) == (policy, (b"ratelimit", b'"read";r=3;t=1'))
    clock.now += 3600
    assert alice.headers(LimitClass.READ) == (policy, (b"ratelimit", b'"read";r=5;t=0'))
    assert alice.headers(LimitClass.ADMIN) == ()


@given(
    per_second=st.floats(0.01, 10_000),
    burst=st.integers(1, 10_000),
    pauses=st.lists(st.floats(0, 100), min_size=1, max_size=60),
)
def test_no_more_than_burst_and_rate_allow_is_ever_admitted(per_second: float, burst: int, pauses: list[float]) -> None:
    bucket = Bucket(LimitClass.READ, RateLimit(per_second, burst))
    begin = now = 1000.0
    admitted = 0
    for pause in pauses:
        now += pause
        while admitted < 20_000 and bucket.take(now) == 0:
            admitted += 1
        assert admitted <= burst + (now - begin) * per_second + 1e-3
        wait = bucket.wait_s(now)
        assert admitted == 20_000 or bucket.take(now + wait) == 0
        admitted += 1
        now += wait


def test_the_admin_token_and_commands_have_no_limits_unless_one_is_set() -> None:
    for kind in (Authentication.ADMIN_TOKEN, Authentication.COMMAND):
        admin = Identity(ADMIN, kind)
        assert limiter(Clock(1000.0)).of(admin) is None
        strict = LimitOverride({LimitClass.READ: RateLimit(1, 1)})
        assert taken(allowance(Clock(1000.0), admin, {ADMIN: strict}), LimitClass.READ) == 1


def test_overrides_go_by_principal_and_else_by_the_most_generous_group() -> None:
    few = LimitOverride({LimitClass.READ: RateLimit(1, 7)}, waiting=1)
    more = LimitOverride({LimitClass.READ: RateLimit(2, 8)}, waiting=5)
    groups = frozenset({"Group:few", "Group:more"})
    member = Identity("User:bob", Authentication.OIDC, groups)
    overrides = {"Group:few": few, "Group:more": more}
    assert taken(allowance(Clock(1000.0), member, overrides), LimitClass.READ) == 8
    assert taken(allowance(Clock(1000.0), member, overrides), LimitClass.WRITE) == 2
    assert taken(allowance(Clock(1000.0), member, {**overrides, "User:bob": few}), LimitClass.READ) == 7
    assert taken(allowance(Clock(1000.0), ALICE, overrides), LimitClass.READ) == 5


def test_a_higher_rate_is_more_generous_than_a_larger_burst() -> None:
    groups = frozenset({"Group:bursts", "Group:rates"})
    member = Identity("User:bob", Authentication.OIDC, groups)
    bursts, rates = (LimitOverride({LimitClass.READ: limit}) for limit in (RateLimit(1, 100), RateLimit(50, 7)))
    clock = Clock(1000.0)
    bob = allowance(clock, member, {"Group:bursts": bursts, "Group:rates": rates})
    assert taken(bob, LimitClass.READ) == 7
    clock.now += 0.1
    assert taken(bob, LimitClass.READ) == 5


def test_other_groups_bring_other_limits_and_pay_no_debts() -> None:
    clock = Clock(1000.0)
    made = limiter(clock, {"Group:big": LimitOverride({LimitClass.WRITE: RateLimit(10, 20)})})
    alone = made.of(ALICE)
    assert alone is not None
    alone.take(LimitClass.WRITE)
    alone.charge(LimitClass.WRITE, 99)
    grouped = made.of(Identity("User:alice", Authentication.OIDC, frozenset({"Group:big"})))
    assert grouped is alone
    assert grouped.throttle_ms(LimitClass.WRITE) == 8_100  # 100 are missing of 20, and 10 a second come again
    clock.now += 8.1
    assert taken(grouped, LimitClass.WRITE) == 1


def test_waiting_requests_have_a_bound_of_their_own() -> None:
    made = limiter(Clock(1000.0))
    alice = made.of(ALICE)
    assert alice is not None
    with alice.wait(), alice.wait():
        with pytest.raises(LimitExceededError, match="2 requests of User:alice are waiting"), alice.wait():
            pytest.fail("it waits")
        assert alice.waiting == 2
    assert alice.waiting == 0
    assert {labels: value for _, value, labels in made.metrics()}[WAITING,] == 1


def test_refusals_are_counted_by_class() -> None:
    made = limiter(Clock(1000.0))
    alice = made.of(ALICE)
    assert alice is not None
    taken(alice, LimitClass.READ)
    taken(alice, LimitClass.WRITE)
    counts = {labels: value for name, value, labels in made.metrics() if name == "requests_limited"}
    assert counts == {("read",): 1, ("write",): 1, ("bulk",): 0, ("admin",): 0, ("waiting",): 0}


def known(of: Limiter) -> float:
    [count] = [value for name, value, _ in of.metrics() if name == "limited_principals" and isinstance(value, int)]
    return count


def test_idle_principals_are_forgotten_and_busy_ones_are_not() -> None:
    clock = Clock(1000.0)
    made = limiter(clock)
    alice = made.of(ALICE)
    assert alice is not None
    alice.charge(LimitClass.WRITE, 1_000_000)
    for number in range(1000):
        clock.now += 1
        other = made.of(Identity(f"User:{number}", Authentication.OIDC))
        assert other is not None
        other.take(LimitClass.READ)
    assert known(made) <= 3
    assert made.of(ALICE) is alice


def test_memory_is_bounded_also_where_all_are_busy() -> None:
    made = limiter(Clock(1000.0), most=50)
    for number in range(1000):
        busy = made.of(Identity(f"User:{number}", Authentication.OIDC))
        assert busy is not None
        busy.take(LimitClass.READ)
        assert known(made) <= 50
    assert known(made) >= 40
