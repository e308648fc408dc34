"""Certificates for tests: authorities, servers, clients, with any subject."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

CN, O, OU, C, DC, UID, EMAIL, SERIAL, STREET = (  # noqa: E741 - the names that everybody knows them by
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.DOMAIN_COMPONENT,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
    NameOID.SERIAL_NUMBER,
    NameOID.STREET_ADDRESS,
)
BMP, T61, PRINTABLE, UNIVERSAL = (
    _ASN1Type.BMPString,
    _ASN1Type.T61String,
    _ASN1Type.PrintableString,
    _ASN1Type.UniversalString,
)


def name(*parts: list[tuple[Any, ...]] | tuple[Any, ...]) -> x509.Name:
    """Return a name in the order of the certificate; a list is a relative name of several attributes."""
    return x509.Name(
        [
            x509.RelativeDistinguishedName([_attribute(*each) for each in (part if isinstance(part, list) else [part])])
            for part in parts
        ]
    )


def _attribute(oid: x509.ObjectIdentifier, value: str, type_: Any = None) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, type_, _validate=False)


class Authority:
    """An authority that signs certificates of servers and clients."""

    def __init__(self, common_name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name((CN, common_name))
        self.certificate = self._sign(self._name, self._key.public_key(), ca=True)

    def issue(self, subject: x509.Name, *, days: int = 1) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Return a certificate for loopback and for clients, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._sign(subject, key.public_key(), days=days), key

    def write(self, directory: Path, label: str, subject: x509.Name, *, days: int = 1) -> tuple[str, str]:
        """Write a new certificate and its key, and return their paths."""
        certificate, key = self.issue(subject, days=days)
        paths = directory / f"{label}.pem", directory / f"{label}.key"
        paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return str(paths[0]), str(paths[1])

    def write_own(self, path: Path) -> str:
        """Write the authority's own certificate, and return the path."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return str(path)

    def _sign(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool = False, days: int = 1
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=10))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if ca:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            loopback = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
            builder = builder.add_extension(x509.SubjectAlternativeName(loopback), critical=False)
        return builder.sign(self._key, hashes.SHA256())


SUBJECTS = {
    "CN=alice": name((CN, "alice")),
    "CN=alice,OU=Payments,O=Acme,C=DE": name((C, "DE"), (O, "Acme"), (OU, "Payments"), (CN, "alice")),
    'CN=a\\,b\\+c\\=d\\<e\\>f\\#g\\;h\\"i\\\\j': name((CN, 'a,b+c=d<e>f#g;h"i\\j')),
    "CN=\\ \\ a b\\ ": name((CN, "  a b ")),
    "CN=\\ \\ ": name((CN, "  ")),
    "CN=Jürgen 日本": name((CN, "Jürgen 日本")),
    "CN=a\\00b": name((CN, "a\0b")),
    "DC=www,DC=example,DC=com": name((DC, "com"), (DC, "example"), (DC, "www")),
    "UID=u7,STREET=1 A Street": name((STREET, "1 A Street"), (UID, "u7")),
    "2.5.4.5=#130131": name((SERIAL, "1", PRINTABLE)),
    "1.2.840.113549.1.9.1=#1603614062,CN=a": name((CN, "a"), (EMAIL, "a@b")),
    "CN=a+UID=b": name([(CN, "a"), (UID, "b")]),
    "CN=\\00a\\00b": name((CN, "ab", BMP)),
    "CN=ab": name((CN, "ab", T61)),
    "CN=#1c0400000061": name((CN, "a", UNIVERSAL)),
    "2.999.1=#0c0161": name((x509.ObjectIdentifier("2.999.1"), "a")),
}
"""Subjects in Java's form; they are compared with Java's own output if Java is available."""

RULES = (
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/U , RULE:^CN=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:.*/x/",
    "RULE:a*|.*/<$0>/,DEFAULT",
    "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT",
    "RULE:^CN=(.*)$/$2/",
    "RULE:^CN=(.*)$/$2$3-$1/",
    "RULE:^CN=(.*)$/$10|$01|$0/",
    "RULE:^CN=(.*)$/$/",
    "RULE:^CN=(.*)$/\\$1\\//",
    "RULE:^CN=(.*)$/$x/",
    "RULE:^CN=.*$/$1/",
    "RULE:^CN=(a)?(.*)$/[$1][$2]/",
    "RULE:(?i)^cn=(.*)$/$1/",
    "RULE:^.*[Cc][Nn]=([^,]*).*$/$1/,RULE:UID=(.*)/$1/",
    "RULE:^CN=(.*)$/$999999999999/",
    "RULE:^(((((((((((.*)))))))))))$/$11$12/",
    "RULE:a/b/,, ,DEFAULT,",
    "  RULE:^CN=Jürgen (.*)$/$1/U  ,  DEFAULT ",
)
NO_RULES = (
    "default",
    "DEFAULT/L",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?)$/$1/",
    "RULE:^CN=(.*?)$/$1/L/U",
    "RULE:^CN=(.*?)$/L",
    "RULE:(/x/",
    "RULE:*/x/",
)
"""Rules that Kafka refuses."""
