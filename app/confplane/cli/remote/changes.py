"""A change of one entity's keys: the facet of each key, the request, its result, and its state in a Kafka 4 cluster."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.output import echo
from confplane.cli.remote.entities import facets_of
from confplane.cli.remote.session import DONE, FAILED
from confplane.client import Change, ClientChange
from confplane.domain.approvals import PAST_RULES
from confplane.domain.entities import EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.numbers import parse_java_double
from confplane.domain.quotas import QUOTA_KEYS, ClientQuotasFacet
from confplane.domain.suggestions import nearest_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confplane.client import AsyncConfplane
    from confplane.domain.entities import Entity


_WHOLE: Final = re.compile(r"[0-9]{1,19}")
"""Matches numbers that are sent as integers, because these are exact above 2^53 too."""
_UNCHANGED: Final = "Nothing was changed, so nothing was sent. The Kafka cluster has the last change of this entity"


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of a change: conditions, and the reason and ticket for the trail."""

    validate_only: bool = False
    reason: str | None = None
    ticket: str | None = None
    quotas_etag: str | None = None
    configs_etag: str | None = None
    wait_applied_ms: int | None = None
    """Maximum wait until the change is applied to a Kafka 4 cluster; None for no wait."""
    expires_in_s: int | None = None
    """Seconds after which the keys get their earlier values again; None for a change that stays."""
    break_glass: str | None = None
    """The reason to write past the rules of the policies; None for a change within them."""

    def client_kwargs(self) -> dict[str, Any]:
        """Return all options except the ETags as arguments of the client library."""
        return {
            "validate_only": self.validate_only,
            "reason": self.reason,
            "ticket": self.ticket,
            "wait_applied_ms": self.wait_applied_ms,
            "expires_in": self.expires_in_s,
            "break_glass": self.break_glass,
        }


@dataclass(frozen=True, slots=True)
class EntityUpdate:
    """New values of an entity by key; None removes the key."""

    entity: Entity
    quotas: dict[str, float | None]
    configs: dict[str, str | None]
    """The client configs of a user, or the configs of a topic, broker, group or subscription."""

    @classmethod
    def of(cls, entity: Entity, values: Mapping[str, str | None]) -> EntityUpdate:
        """Sort keys by their facet.

        All keys that are not quotas count as configs, because only the service knows the valid configs.

        Raises:
            InvalidRequestError: A quota is not a number, or the entity has no user and so supports only quotas.
        """
        if facets_of(entity) == (FacetName.CONFIGS,):
            return cls(entity, {}, dict(values))
        quotas = {key: _number(key, value) for key, value in values.items() if ClientQuotasFacet().owns(entity, key)}
        configs = {key: value for key, value in values.items() if key not in quotas}
        if configs and EntityType.USER not in entity.types:
            raise InvalidRequestError(
                f"{', '.join(sorted(configs))}: {entity.types[0].plural} have only quotas; client configs"
                " require a user"
            )
        return cls(entity, quotas, configs)

    async def propose(
        self, client: AsyncConfplane, options: ChangeOptions, proposal: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Propose the change for another person to approve, and return the request in the API's form."""
        of_facets: dict[FacetName, Mapping[str, float | str | None]] = {FacetName.CLIENT_QUOTAS: self.quotas}
        of_facets[_configs_facet(self.entity)] = self.configs
        edits: Any = [
            {
                "facet": facet.value,
                "id": self.entity.id,
                "ops": [
                    {"key": key, "op": "DELETE"} if value is None else {"key": key, "value": value}
                    for key, value in values.items()
                ],
            }
            for facet, values in of_facets.items()
            if values
        ]
        terms: Any = {"validate_only": options.validate_only, "reason": options.reason, "ticket": options.ticket}
        terms |= proposal
        found: Any = (await client.change_requests.propose(edits, **terms)).body
        return dict(found)

    async def send(self, client: AsyncConfplane, options: ChangeOptions | None = None) -> dict[str, Any]:
        """Make the change, print its warnings, and return its result in the API's form.

        Raises:
            InvalidRequestError: The options have an ETag of quotas, and the entity has none.
        """
        options = options or ChangeOptions()
        result: Any
        if facets_of(self.entity) == (FacetName.CONFIGS,):
            if options.quotas_etag is not None:
                raise InvalidRequestError(f"{self.entity.id} has no quotas; give its ETag as --configs-etag.")
            change = Change(self.entity, self.configs, options.configs_etag)
            [result] = (await client.configs.alter([change], **options.client_kwargs())).body["responses"]
        else:
            both = ClientChange(self.entity, self.quotas, self.configs, options.quotas_etag, options.configs_etag)
            [result] = (await client.clients.alter([both], **options.client_kwargs())).body["entries"]
        for warning in result["warnings"]:
            echo(f"Warning: {warning}", err=True)
        report_bypass(options.break_glass, [result])
        found: dict[str, Any] = result
        return found


def report_bypass(break_glass: str | None, results: Iterable[Mapping[str, Any]]) -> None:
    """Report that ``--break-glass`` bypasses nothing, if no warning of the results names a rule."""
    if break_glass is not None and not any(
        warning.startswith(PAST_RULES) for result in results for warning in result["warnings"]
    ):
        echo("No rule refuses this change: --break-glass has no effect, and nobody has to acknowledge it", err=True)


def _configs_facet(entity: Entity) -> FacetName:
    """Return the facet of an entity's configs that are not quotas."""
    return FacetName.CONFIGS if facets_of(entity) == (FacetName.CONFIGS,) else FacetName.CLIENT_CONFIGS


def differences(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys of a result whose values changed; for a client, those of both facets."""
    diff = result["diff"]
    return diff if isinstance(diff, list) else [*diff["quotas"], *diff["configs"]]


def refuse_unset(keys: Iterable[str], found: Collection[str]) -> None:
    """Refuse to remove keys that are not set, so that a misspelt key is not a success.

    Raises:
        InvalidRequestError: A key is not among those that were found.
    """
    if unset := [key for key in keys if key not in found]:
        close = dict.fromkeys(
            filter(None, (nearest_name(key, [*found, *QUOTA_KEYS]) for key in unset if key not in QUOTA_KEYS))
        )
        suggestion = f" Did you mean {', '.join(close)}?" if close else ""
        raise InvalidRequestError(f"Nothing was changed. These keys are not set: {', '.join(unset)}.{suggestion}")


def _number(key: str, text: str | None) -> float | None:
    if text is None:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        value = parse_java_double(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidRequestError(f"The value of {key} is not a number: {text!r}")
    return value


def report_one(result: Mapping[str, Any]) -> int:
    """Print the apply result of one change, and return the exit code."""
    applied = result.get("applied")
    if applied is not None:
        unchanged = result["changeId"] is None and applied["state"] == "applied"
        echo(_UNCHANGED if unchanged else _sentence(applied), err=True)
    return _code(applied)


def report_many(results: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """Print which changes are not applied, and how many are; return the exit code.

    Args:
        results: Ids of entities, each with its result. Those without a change are not counted.
    """
    waited = [(entity_id, result) for entity_id, result in results if result.get("applied") is not None]
    left = [(entity_id, result["applied"]) for entity_id, result in waited if _code(result["applied"]) != DONE]
    for entity_id, applied in left:
        echo(f"{entity_id}: {_sentence(applied)}", err=True)
    sent = [_code(result["applied"]) for _, result in waited if result["changeId"] is not None]
    if sent:
        echo(f"The Kafka cluster has applied {sent.count(DONE)} of {len(sent)} changes", err=True)
    return FAILED if left else DONE


def _code(applied: Mapping[str, Any] | None) -> int:
    return DONE if applied is None or applied["state"] == "applied" else FAILED


def _sentence(applied: Mapping[str, Any]) -> str:
    match applied:
        case {"state": "applied"}:
            return "The Kafka cluster has applied the change"
        case {"state": "refused", "code": code, "message": message}:
            return f"The Kafka cluster refuses the change, which stays committed: {message} (code {code})"
        case {"state": "partly-refused", "message": message}:
            return f"The Kafka cluster has applied the change without these keys, which it refuses: {message}"
    return "The Kafka cluster has not applied the change yet. It stays committed and is sent later"
