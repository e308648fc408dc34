"""The blocking and the asynchronous sender: the only difference between the two clients."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Generator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import httpx

from confplane.client.core.answers import FAILURES, answer_of, no_answer_error
from confplane.client.core.calls import Answer, ApiCall
from confplane.client.errors import ClientError, ProblemError
from confplane.client.tokens import authorization, authorization_in_thread, renewed_authorization

if TYPE_CHECKING:
    import ssl

    from confplane.client.tokens import Token


TRIES: Final = 4
"""Number of times that a request may be sent, by default."""
TIMEOUT_S: Final = 30.0


class HttpxSettings(TypedDict):
    """Arguments of httpx's clients."""

    base_url: str
    timeout: float
    verify: ssl.SSLContext | bool
    trust_env: bool
    limits: httpx.Limits


def settings(url: str, *, timeout_s: float, verify: ssl.SSLContext | bool) -> HttpxSettings:
    """Return the arguments for httpx's clients."""
    return {
        "base_url": url,
        "timeout": timeout_s,
        # Redirects are not followed, so plain HTTP stays plain; loading all certificate authorities takes a while.
        "verify": False if httpx.URL(url).scheme == "http" else verify,
        "trust_env": False,
        "limits": httpx.Limits(max_connections=1024, max_keepalive_connections=1024),
    }


_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class Retries:
    """The attempts of one call.

    A call is retried after a transient failure: no answer, or a retriable answer. A call that is not repeatable is
    retried only if the failed attempt is known to have changed nothing.

    Args:
        call: The call.
        tries: How often it may be sent.
        patience_s: Maximum pause in seconds that the caller accepts.
    """

    def __init__(self, call: ApiCall[Any], tries: int, patience_s: float) -> None:
        self._repeatable = call.repeatable
        self._tries = tries
        self._patience_s = patience_s
        self._failures = 0
        self._has_renewed = False

    def renews_token(self, error: ProblemError) -> bool:
        """Return True for the first refusal of the token: it is then read again, and another one is sent at once."""
        renews = error.status == HTTPStatus.UNAUTHORIZED and not error.may_be_applied and not self._has_renewed
        self._has_renewed = self._has_renewed or renews
        return renews

    def pause_s(self, error: ClientError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            ClientError: The error itself, if no attempt follows.
        """
        self._failures += 1
        if self._failures >= self._tries or not error.retriable or not (self._repeatable or not error.may_be_applied):
            raise error
        if error.retry_after_s is None:
            return backoff_s(self._failures)
        if error.retry_after_s > self._patience_s:
            raise error  # an earlier attempt would fail again
        return error.retry_after_s * random.uniform(1.0, 1.2)  # noqa: S311 - no secret


def backoff_s(failures: int) -> float:
    """Return the seconds before the next attempt; the random part spreads clients that failed together."""
    return min(_FIRST_PAUSE_S * (1 << failures), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


T = TypeVar("T")

Steps = Generator[ApiCall[Any] | float, Any, T]
"""A generator that yields calls, receives their answers, and returns a result. A failure is raised inside. It may also
yield seconds to wait."""


class _BaseSender:
    """The settings of both senders.

    Args:
        token: See the clients.
        tries: How often a call may be sent.
        timeout_s: See the clients. It is also the patience of :class:`Retries`.
    """

    def __init__(self, token: Token | None, tries: int, timeout_s: float) -> None:
        if tries < 1:
            raise ValueError("tries is below 1")
        self._token = token
        self._tries = tries
        self._timeout_s = timeout_s

    def _prepared(self, call: ApiCall[T]) -> tuple[ApiCall[T], Retries]:
        call = call.with_key() if self._tries > 1 else call
        return call, Retries(call, 1 if call.once else self._tries, self._seconds(call))

    def _request(self, call: ApiCall[Any], credential: str | None) -> dict[str, Any]:
        """Return the arguments of a request of httpx, given the value of the Authorization header."""
        headers = {} if credential is None else {"Authorization": credential}
        return {
            "method": call.method,
            "url": call.path,
            "json": call.json,
            "params": call.params or None,
            "headers": {**headers, **call.headers},
            "timeout": self._seconds(call),
        }

    def _seconds(self, call: ApiCall[Any]) -> float:
        return max(self._timeout_s, call.lasts_s)


class BlockingSender(_BaseSender):
    """Sends calls in the calling thread."""

    def __init__(self, http: httpx.Client, token: Token | None, tries: int, timeout_s: float) -> None:
        super().__init__(token, tries, timeout_s)
        self._http = http

    def one(self, call: ApiCall[T]) -> Answer[T]:
        """Send a call, with retries after transient failures, and return its answer.

        Raises:
            ClientError: The last failure.
        """
        call, retries = self._prepared(call)
        while True:
            try:
                return self._send_once(call, retries)
            except ClientError as error:
                pause_s = retries.pause_s(error)
            time.sleep(pause_s)

    def all(self, steps: Steps[T]) -> T:
        """Send the calls of several steps, and return their result."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._run_step(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _run_step(self, step: ApiCall[Any] | float) -> Any:
        if isinstance(step, ApiCall):
            return self.one(step)
        time.sleep(step)
        return None

    def _send_once(self, call: ApiCall[T], retries: Retries) -> Answer[T]:
        credential = None if self._token is None else authorization(self._token)
        try:
            return self._exchange(call, credential)
        except ProblemError as error:
            other = renewed_authorization(self._token, credential) if retries.renews_token(error) else None
            if other is None:
                raise
        return self._exchange(call, other)

    def _exchange(self, call: ApiCall[T], credential: str | None) -> Answer[T]:
        try:
            response = self._http.request(**self._request(call, credential))
        except FAILURES as error:
            raise no_answer_error(call, error) from error
        return answer_of(call, response)


class AsyncSender(_BaseSender):
    """Sends calls in coroutines of an event loop."""

    def __init__(self, http: httpx.AsyncClient, token: Token | None, tries: int, timeout_s: float) -> None:
        super().__init__(token, tries, timeout_s)
        self._http = http

    async def one(self, call: ApiCall[T]) -> Answer[T]:
        """Send a call, with retries after transient failures, and return its answer.

        Raises:
            ClientError: The last failure.
        """
        call, retries = self._prepared(call)
        while True:
            try:
                return await self._send_once(call, retries)
            except ClientError as error:
                pause_s = retries.pause_s(error)
            await asyncio.sleep(pause_s)

    async def all(self, steps: Steps[T]) -> T:
        """Send the calls of several steps, and return their result."""
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._run_step(step)
                except ClientError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _run_step(self, step: ApiCall[Any] | float) -> Any:
        if isinstance(step, ApiCall):
            return await self.one(step)
        return await asyncio.sleep(step)

    async def _send_once(self, call: ApiCall[T], retries: Retries) -> Answer[T]:
        credential = None if self._token is None else await authorization_in_thread(self._token)
        try:
            return await self._exchange(call, credential)
        except ProblemError as error:
            if not retries.renews_token(error):
                raise
            other = await asyncio.to_thread(renewed_authorization, self._token, credential)
            if other is None:
                raise
        return await self._exchange(call, other)

    async def _exchange(self, call: ApiCall[T], credential: str | None) -> Answer[T]:
        try:
            response = await self._http.request(**self._request(call, credential))
        except FAILURES as error:
            raise no_answer_error(call, error) from error
        return answer_of(call, response)
