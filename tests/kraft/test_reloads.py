"""Certificates that a real Kafka 4 loads again because a client sets the same path again."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.certificates import CN, Authority
from tests.support.certificates import name as subject_name
from tests.support.kraft import kraft_cluster
from tests.support.waiting import until
from tests.support.world import UNTIL_APPLIED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster, KraftNode
    from tests.support.world import World

PREFIX = "listener.name.ssl.ssl"
KEYSTORE, TRUSTSTORE = f"{PREFIX}.keystore.location", f"{PREFIX}.truststore.location"
BROKER = "broker=1"


class Stores:
    """The files of a broker's TLS listener, and clients of the listener."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.keystore, self.truststore = directory / "keys.pem", directory / "trust.pem"
        self.replace_certificate()
        self.replace_authority()

    @property
    def paths(self) -> dict[str, str]:
        """The configs with the paths."""
        return {KEYSTORE: str(self.keystore), TRUSTSTORE: str(self.truststore)}

    def replace_certificate(self) -> None:
        """Give the broker another certificate, under the same path."""
        certificate, key = map(Path, Authority().write(self._directory, "broker", subject_name((CN, "broker"))))
        self.certificate = certificate.read_text()
        self.keystore.write_text(key.read_text() + self.certificate)

    def replace_authority(self) -> None:
        """Let the broker trust clients of another authority, under the same path."""
        authority = Authority()
        authority.write_own(self.truststore)
        self._client = authority.write(self._directory, "client", subject_name((CN, "client")))

    async def served(self, node: KraftNode) -> str | None:
        """Return the certificate that the broker shows; None if it refuses the client's."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # whose handshake ends with the client's certificate
        context.load_cert_chain(*self._client)
        host, port = node.listener("SSL").split(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        except (ssl.SSLError, ConnectionError):
            return None
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return ssl.DER_cert_to_PEM_cert(found)

    async def is_loaded(self, node: KraftNode) -> bool:
        """Return True if the broker shows the present certificate, and accepts that of the client."""
        return await self.served(node) == self.certificate


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
def kraft(tmp_path: Path, kraft_class_path: str, stores: Stores) -> Iterator[KraftCluster]:
    """A node whose listener SSL asks for certificates of clients."""
    properties = {
        f"{PREFIX}.truststore.type": "PEM",
        TRUSTSTORE: stores.paths[TRUSTSTORE],
        f"{PREFIX}.client.auth": "required",
    }
    with kraft_cluster(tmp_path / "kafka", kraft_class_path, logins=True, properties=properties) as running:
        yield running


async def alter(http: ConfplaneClient, values: dict[str, str], **headers: str) -> Any:
    """Set configs of the broker; return the result."""
    ops = [{"name": key, "configOperation": "SET", "value": value} for key, value in values.items()]
    body = {"resources": [{"resourceType": "BROKER", "resourceName": "1", "configs": ops}]}
    [result] = (await http.request("POST", "configs:incrementalAlter", json=body, headers=headers)).body["responses"]
    return result


async def test_files_are_loaded_again(kraft: KraftCluster, stores: Stores, world: World) -> None:
    [node] = kraft.nodes
    with world.adopting(kraft) as service:
        async with service.client() as http:
            assert (await alter(http, stores.paths, **UNTIL_APPLIED))["applied"]["state"] == "applied"
            await until(lambda: stores.is_loaded(node))
            for key, replace in ((KEYSTORE, stores.replace_certificate), (TRUSTSTORE, stores.replace_authority)):
                replace()
                # Equal content is no request to load files again.
                put = await http.request(
                    "PUT", f"configs/{BROKER}", json={"configs": stores.paths}, headers=UNTIL_APPLIED
                )
                assert put.change_id is None
                assert not await stores.is_loaded(node)
                result = await alter(http, {key: stores.paths[key]}, **UNTIL_APPLIED)
                assert (result["changeId"] is not None, result["applied"]["state"]) == (True, "applied")
                await until(lambda: stores.is_loaded(node), why=key)
                change = (await http.request("GET", f"audit/{result['changeId']}")).body
                [changed] = change["entities"]
                assert (change["kind"], changed["keys"]) == ("reload", [key])
                assert changed["before"] == changed["after"] == stores.paths
            # A broker that is away gets the change once it is back.
            node.kill()
            result = await alter(http, {KEYSTORE: stores.paths[KEYSTORE]})
            assert (result["changeId"] is not None, "was not asked" in result["warnings"][-1]) == (True, True)
            node.start()

            async def applied() -> bool:
                found = (await http.request("GET", f"configs/{BROKER}?view=full")).body["status"]["applied"]
                return bool(found == {**found, "state": "applied", "revision": result["revision"]})

            await until(applied)
