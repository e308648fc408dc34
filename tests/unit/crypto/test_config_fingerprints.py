from __future__ import annotations

from confplane.crypto import BrokerSecrets, ConfigFingerprinter, KafkaCipher, Keyring
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder

FAST = EncoderParameters(iterations=1024)
SECRETS = BrokerSecrets.of("payments", "new", old="old", parameters=FAST)
OLD, NEW, FOREIGN = (PasswordEncoder(secret, FAST) for secret in ("old", "new", "foreign"))


def fingerprinter(keyring: Keyring | None = None) -> ConfigFingerprinter:
    return ConfigFingerprinter(
        KafkaCipher(keyring or Keyring("payments", SECRETS)),
        sensitive=lambda key: key.startswith("plugin."),
        encoded=lambda key: key.endswith("password"),
    )


def mark(key: str, value: str) -> str:
    return SECRETS.fingerprint(key, value)


def test_secrets_have_fingerprints_and_nothing_else_has() -> None:
    config = {"a.password": NEW.encode("planted"), "log.cleaner.threads": "2", "plugin.token": "planted"}
    assert fingerprinter().fingerprints(0, config) == {
        "a.password": mark("a.password", "planted"),
        "plugin.token": mark("plugin.token", "planted"),
    }


def test_a_password_under_the_old_secret_has_the_fingerprint_that_it_has_under_the_new() -> None:
    under_old, under_new = (fingerprinter().fingerprints(0, {"a.password": x.encode("planted")}) for x in (OLD, NEW))
    assert under_old == under_new == {"a.password": mark("a.password", "planted")}


def test_what_can_t_be_known_has_no_fingerprint() -> None:
    stored = FOREIGN.encode("planted")
    config = {"a.password": stored, "b.password": "in clear", "plugin.token": "planted"}
    assert fingerprinter().fingerprints(0, config) == {
        "a.password": None,
        "b.password": None,
        "plugin.token": mark("plugin.token", "planted"),
    }
    # Without a secret, and at the cluster-wide default, where no encoded value can be.
    none = dict.fromkeys(config)
    assert fingerprinter(Keyring("payments")).fingerprints(0, config) == none
    assert fingerprinter().fingerprints(None, {"a.password": NEW.encode("x")}) == {"a.password": None}
