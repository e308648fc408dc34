"""The committed specification as schemathesis reads it, and how its cases are sent to a running service."""

from __future__ import annotations

import functools
import os
import re
import uuid
import zlib
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import schemathesis
from hypothesis import Phase, settings
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Err
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    negative_data_rejection,
    unsupported_method,
)

from confplane.api import formats
from confplane.domain import id_patterns
from tests.support.published import publish_all

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests
    from schemathesis.specs.openapi.schemas import OpenApiSchema

    from tests.support import servers
    from tests.support.service import Service

    Case = schemathesis.Case[Any]

FILE: Final = Path(__file__).parents[2] / "openapi" / "openapi.yaml"
SEED: Final = int(os.environ.get("CONTRACT_SEED", "649"))
IDS: Final = {
    re.compile(id_patterns.QUOTA_ID): (
        "user=alice",
        "user=alice,client-id=clientid-override",
        "user",
        "user=CN~3Da~20b~C3~A9",
    ),
    re.compile(id_patterns.RESOURCE_ID): ("topic=orders", "broker=0", "broker", "topic=-._9"),
}
"""Entities of which cases write and read again, by what their ids are like; random ones would never meet."""
PROBLEM_MEMBERS: Final = frozenset(
    {
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "kafkaErrorCode",
        "kafkaErrorName",
        "retriable",
        "requestId",
        "errors",
    }
)
MAX_TARGET: Final = 65_000
"""Longer targets are above the bound of a head, together with the other headers of a case."""
_PATIENCE_S: Final = 120
"""Seconds for an answer: a case may name thousands of entities, and the machine be busy."""
_REFUSALS: Final = ["400", "401", "403", "404", "405", "406", "409", "410", "412", "413", "415", "422", "429"]
_OF_SEVERAL: Final = ("alter", "incrementalAlter", "describeConfigs", "describeEntityConfigs")
_FREEZES: Final = ("freezeCluster", "thawCluster")
_CLUSTER: Final = re.compile(formats.CLUSTER)
_ETAGS: Final = re.compile(formats.ETAGS)
_CHANGE_ID: Final = re.compile(formats.CHANGE_ID)
_REVISION: Final = re.compile(formats.REVISION)
_KEY: Final = re.compile(formats.IDEMPOTENCY_KEY)


def try_cases(
    operation_id: str, max_examples: int, check: Callable[[Case], None], *, met_headers: set[Any] | None = None
) -> None:
    """Check an operation's systematic cases and this many random ones.

    They are made here, not by ``parametrize``: that makes all of them while tests are collected, in every process.

    Args:
        operation_id: The operation.
        max_examples: The number of random cases.
        check: Sends a case and looks at the answer.
        met_headers: The kinds of systematic cases of headers that were sent for any operation, to which this one's are
            added. Where they are given, the first case of each kind is sent alone: of headers for all operations, of
            any other part of a request for this one. That is less than half of all cases.
    """
    schema = _load(max(1, max_examples)).include(operation_id=operation_id)
    test = _taking_case(check if met_headers is None else _once_of_a_kind(check, met_headers))
    systematic_alone = None if max_examples else settings(phases=[Phase.explicit])
    [made] = get_all_tests(schema=schema, test_func=test, settings=systematic_alone, given_kwargs=None)
    if isinstance(made, Err):
        raise made.err()
    _, run = made.ok()
    run()


def _taking_case(check: Callable[[Case], None]) -> Callable[[Case], None]:
    def test(case: Case) -> None:
        check(case)

    return test


def _once_of_a_kind(check: Callable[[Case], None], met_headers: set[Any]) -> Callable[[Case], None]:
    met: set[Any] = set()

    def once(case: Case) -> None:
        if case.meta is not None and isinstance(case.meta.phase.data, CoveragePhaseData):
            data = case.meta.phase.data
            kind = (case.meta.generation.mode, data.scenario, data.parameter_location, data.parameter, data.location)
            # The headers of all operations are read by the same code.
            known = met_headers if data.parameter_location is ParameterLocation.HEADER else met
            if kind in known:
                return
            known.add(kind)
        check(case)

    return once


@functools.cache
def _load(max_examples: int) -> OpenApiSchema:
    config = schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "suppress-health-check": ["all"],
            "generation": {
                "max-examples": max_examples,
                "database": "none",
                "no-shrink": True,
                # Every request has the token; test_answers.py has those without.
                "with-security-parameters": False,
            },
            "checks": {
                # Whether an entity has a key, whether names repeat, what is stored: a schema can't say any of it.
                "positive_data_acceptance": {"enabled": False},
                # Also a body above the limit and a precondition that does not hold, which come before the schema.
                "negative_data_rejection": {"expected-statuses": _REFUSALS},
                # Sends cases again, without the token and with a wrong one, which test_answers.py does.
                "ignored_auth": {"enabled": False},
            },
        }
    )
    return schemathesis.openapi.from_path(FILE, config=config)


class Sender:
    """Sends cases, holds their answers against the specification, and counts them.

    Args:
        known: Ids of what was made, by the names of parameters, so that some cases find one.
        session: The connection for all cases.
    """

    def __init__(self, known: dict[str, str], session: requests.Session) -> None:
        self._known = known
        self._session = session
        self.sent: Counter[tuple[str, str, int]] = Counter()
        """Cases by operation id, mode of generation and status."""

    def send(self, case: Case, service: Service) -> None:
        """Send one case and check its answer."""
        self._settle(case)
        headers = {"Authorization": f"Bearer {service.token}"}
        response = case.call(base_url=service.url, session=self._session, headers=headers, timeout=_PATIENCE_S)
        operation_id = case.operation.definition.raw["operationId"]
        mode = "given" if case.meta is None else case.meta.generation.mode.value
        self.sent[operation_id, mode, response.status_code] += 1
        assert response.status_code < 500, (response.status_code, response.text, case.as_curl_command())
        if len(response.request.path_url) > MAX_TARGET:
            assert response.status_code in {
                HTTPStatus.REQUEST_URI_TOO_LONG,
                HTTPStatus.NOT_FOUND,
                HTTPStatus.BAD_REQUEST,
            }
            return
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"], (
                response.status_code,
                response.text,
                case.as_curl_command(),
            )
            assert response.json().keys() >= PROBLEM_MEMBERS
            assert response.json()["status"] == response.status_code
        case.validate_response(
            response,
            excluded_checks=_excluded(operation_id, response.status_code, response.request.path_url),
            headers=headers,
            transport_kwargs={"base_url": service.url, "session": self._session, "headers": headers},
        )

    def _settle(self, case: Case) -> None:
        """Turn random but sound names into those of things that are there. What is meant to be unsound stays."""
        case.freeze_metadata()  # what was meant to be sound or unsound is so after this as before
        path: dict[str, Any] = case.path_parameters or {}
        headers: Any = case.headers or {}
        if _CLUSTER.match(str(path.get("cluster"))):
            path["cluster"] = "default"
        entity = _unquoted(path, "id")
        for pattern, ids in IDS.items():
            if pattern.match(entity) and entity not in ids and (pick := zlib.crc32(entity.encode()) % 6) < len(ids):
                path["id"] = quote(ids[pick])
        for name, known in self._known.items():
            if _CHANGE_ID.match(_unquoted(path, name)):
                path[name] = known
        _settle_headers(headers, sound=case.meta is not None and not case.meta.is_negative_at(ParameterLocation.HEADER))
        if case.operation.definition.raw["operationId"] in _FREEZES and _is_sound(case, ParameterLocation.QUERY):
            case.query = {**(case.query or {}), "validateOnly": "true"}  # or all writes behind it would be refused
        sound = case.meta is not None and not case.meta.is_negative_at(ParameterLocation.BODY)
        if case.method == "PUT" and sound and isinstance(case.body, dict):
            # The body of a resource names the entity of the path, or none; and few guess an ETag.
            case.body = {key: value for key, value in case.body.items() if key not in {"id", "entity", "etag"}}


def _is_sound(case: Case, place: ParameterLocation) -> bool:
    return case.meta is None or not case.meta.is_negative_at(place)


def _settle_headers(headers: Any, *, sound: bool) -> None:
    # Random keys are few, and a replay does nothing: what it says is there may be gone.
    if _KEY.match(str(headers.get("Idempotency-Key"))):
        headers["Idempotency-Key"] = str(uuid.uuid4())
    # A revision that the cluster will not reach in time ends in the documented 503; test_answers.py has that case.
    if _REVISION.match(str(headers.get("Confplane-Min-Revision"))):
        headers["Confplane-Min-Revision"] = "1"
    if sound:
        for name in ("If-Match", "If-None-Match"):
            # The systematic cases fill optional headers without a look at their patterns.
            if name in headers and not _ETAGS.match(str(headers[name])):
                del headers[name]


def _unquoted(path: dict[str, Any], name: str) -> str:
    return unquote(str(path.get(name)))


def _excluded(operation_id: str, status: int, target: str) -> list[Any]:
    """Return the checks that are wrong about an answer."""
    excluded: list[Any] = []
    if operation_id in _FREEZES:
        # Their path is also one of a cluster, though of one that can't be: 404, as for all of these.
        excluded += [unsupported_method, allow_header_conformance]
    if operation_id.startswith(("effective", "history", "diff", "status", "report", "revertC", "rotateToken")):
        # Such a path behind an entity's is also one of an entity, though of one that can't be: 400, as for all of these.
        # So is the path of a rotation one of a token.
        excluded += [unsupported_method, allow_header_conformance]
    if operation_id.startswith(_OF_SEVERAL) and status == HTTPStatus.MULTI_STATUS:
        # Entries stand each for itself: the unsound one was refused, in its place in the answer.
        excluded.append(negative_data_rejection)
    if (
        operation_id == "listConfigDefinitions"
        and "" in dict(parse_qsl(urlsplit(target).query, keep_blank_values=True)).values()
    ):
        # Its page has a form, and a browser sends the fields of a form with nothing in them: as if they were not there.
        excluded.append(negative_data_rejection)
    return excluded


def publish_and_configure(database: servers.Database, key_file: Path | None = None) -> dict[str, Any]:
    """Publish a result of each rollup, and return the options of the service whose answers are compared.

    With a path for their key, webhooks are on.
    """
    publish_all(database.service_dsn)
    settings = {
        "CONFPLANE_HTTP__REQUEST_DEADLINE_MS": "3000",
        "CONFPLANE_HTTP__PUBLIC_URL": "https://confplane.example.com",
    }
    if key_file is not None:
        key_file.write_text("a key of webhooks for tests, of no other use")
        settings["CONFPLANE_WEBHOOKS__KEY_FILE"] = str(key_file)
    return {"settings": settings}
