"""``confplane whoami`` and ``confplane clusters``: the caller, and the clusters of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.cli.remote.output import print_json, print_table
from confplane.cli.remote.session import DONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.cli.remote.profiles import Profile
    from confplane.client import AsyncConfplane


async def whoami(client: AsyncConfplane, profile: Profile, *, as_json: bool) -> int:
    """Print the principal of a profile's token and its grants, and return the exit code."""
    caller = (await client.service.whoami()).body
    if as_json:
        print_json(caller)
        return DONE
    facts = {
        "principal": caller["principal"],
        "groups": ", ".join(caller["groups"]) or None,
        "on behalf of": caller["onBehalfOf"],
        "owner": caller["owner"],
        "authenticated by": caller["authenticatedBy"],
        "token from": profile.token_source,
        "token id": caller["tokenId"],
        "expires": caller["expiresAt"],
        "limits": _limits(caller["narrowing"]),
        "service": profile.url,
        "cluster": profile.cluster,
    }
    print_table(("CALLER", ""), [(name, str(value)) for name, value in facts.items() if value is not None])
    if grants := caller["grants"]:
        print_table(("PRINCIPAL", "PERMISSION", "GRANT", "RESOURCE", "CLUSTER"), [_grant(each) for each in grants])
    return DONE


def _limits(narrowing: Mapping[str, Any] | None) -> str | None:
    """Return the limits of a credential in words, or None if it has no limits."""
    if narrowing is None:
        return None
    parts = ["reads alone"] if narrowing["readOnly"] else []
    parts += [f"{name}: {', '.join(narrowing[name])}" for name in ("clusters", "operations") if narrowing[name]]
    return "; ".join(parts)


def _grant(grant: Mapping[str, Any]) -> tuple[str, ...]:
    name = grant["name"] or ""
    pattern = f"{name}*" if grant["patternType"] == "prefixed" else name
    resource = " ".join(filter(None, (grant["resourceType"], pattern)))
    granted = grant["operation"] or f"the role {grant['role']}"
    return grant["principal"], grant["permission"], granted, resource or "all of the role", grant["cluster"] or "all"


async def clusters(client: AsyncConfplane, *, as_json: bool) -> int:
    """Print the clusters of the service, and return the exit code."""
    found = (await client.clusters.list()).body["items"]
    if as_json:
        for item in found:
            print_json(item)
        return DONE
    rows = [_cluster(each) for each in found]
    print_table(("CLUSTER", "STATE", "REVISION", "WARNINGS"), rows)
    return DONE


def _cluster(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the table; of a cluster in which the caller may describe nothing only the name is known."""
    if "mirror" not in cluster:
        return cluster["name"], "not shown to you", "-", ""
    return cluster["name"], _state(cluster), cluster["revision"], "; ".join(cluster["warnings"])


def _state(cluster: Mapping[str, Any]) -> str:
    """Return the state of a cluster in words: its session, its copy of the configs, its freeze."""
    parts = [cluster["session"] if cluster["session"] != "connected" else cluster["mirror"]]
    if cluster["frozen"] is not None:
        parts.append(f"frozen: {cluster['frozen']}")
    return ", ".join(parts)
