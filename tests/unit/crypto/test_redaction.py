from __future__ import annotations

from app.crypto import BrokerSecrets, ConfigRedactor, KafkaCipher, Keyring
from app.crypto.password_encoder import EncoderParameters, PasswordEncoder
from app.domain.changes import Op
from app.services.ports import RedactedDifference, ValueChange

FAST = EncoderParameters(iterations=1024)
SECRETS = BrokerSecrets.of("payments", "new", old="old", parameters=FAST)
OLD, NEW, FOREIGN = (PasswordEncoder(secret, FAST) for secret in ("old", "new", "foreign"))


def redactor(keyring: Keyring | None = None) -> ConfigRedactor:
    return ConfigRedactor(
        KafkaCipher(keyring or Keyring("payments", SECRETS)),
        sensitive=lambda key: key.startswith("plugin."),
        encoded=lambda key: key.endswith("password"),
    )


def mark(key: str, value: str) -> str:
    return SECRETS.fingerprint(key, value)


def test_a_map_keeps_its_keys_and_loses_its_secrets() -> None:
    config = {"a.password": NEW.encode("planted"), "log.cleaner.threads": "2", "plugin.token": "planted"}
    assert redactor().config(config) == {"a.password": None, "log.cleaner.threads": "2", "plugin.token": None}
    assert redactor().fingerprints(0, config) == {
        "a.password": mark("a.password", "planted"),
        "plugin.token": mark("plugin.token", "planted"),
    }


def test_ops_keep_all_but_the_value() -> None:
    assert redactor().op(Op("a.password", "planted")) == {"key": "a.password", "value": None, "sensitive": True}
    assert redactor().op(Op("plugin.token", "planted")) == {"key": "plugin.token", "value": None, "sensitive": True}
    assert redactor().op(Op("a.password", remove=True)) == {"key": "a.password", "remove": True}
    assert redactor().op(Op("threads", "2")) == {"key": "threads", "value": "2"}


def test_differences_tell_what_happened_and_no_value() -> None:
    before = {
        "changed.password": OLD.encode("planted-1"),
        "removed.password": NEW.encode("planted-2"),
        "same.password": OLD.encode("planted-3"),
        "untouched.password": (untouched := NEW.encode("planted-4")),
        "plugin.token": "planted-5",
        "threads": "1",
        "gone": "x",
    }
    after = {
        "added.password": NEW.encode("planted-6"),
        "changed.password": NEW.encode("planted-7"),
        "same.password": NEW.encode("planted-3"),
        "untouched.password": untouched,
        "plugin.token": "planted-8",
        "threads": "2",
        "new": "y",
    }
    found = redactor().differences(0, before, after)

    def hidden(key: str, change: ValueChange, old: str | None, new: str | None) -> RedactedDifference:
        marks = [None if value is None else mark(key, value) for value in (old, new)]
        return RedactedDifference(key, change, sensitive=True, before_fingerprint=marks[0], after_fingerprint=marks[1])

    assert found == [
        hidden("added.password", ValueChange.ADDED, None, "planted-6"),
        hidden("changed.password", ValueChange.CHANGED, "planted-1", "planted-7"),
        RedactedDifference("gone", ValueChange.REMOVED, before="x"),
        RedactedDifference("new", ValueChange.ADDED, after="y"),
        hidden("plugin.token", ValueChange.CHANGED, "planted-5", "planted-8"),
        hidden("removed.password", ValueChange.REMOVED, "planted-2", None),
        hidden("same.password", ValueChange.REENCODED, "planted-3", "planted-3"),
        RedactedDifference("threads", ValueChange.CHANGED, before="1", after="2"),
    ]
    assert "planted" not in repr(found)


def test_what_can_t_be_known_has_no_fingerprint() -> None:
    stored = FOREIGN.encode("planted")
    config = {"a.password": stored, "b.password": "in clear", "plugin.token": "planted"}
    assert redactor().fingerprints(0, config) == {
        "a.password": None,
        "b.password": None,
        "plugin.token": mark("plugin.token", "planted"),
    }
    # Without a secret, and at the cluster-wide default, where no encoded value can be.
    none = dict.fromkeys(config)
    assert redactor(Keyring("payments")).fingerprints(0, config) == none
    assert redactor(Keyring("payments")).config(config) == none
    assert redactor().fingerprints(None, {"a.password": NEW.encode("x")}) == {"a.password": None}
    changed = redactor().differences(0, {"a.password": stored}, {"a.password": FOREIGN.encode("planted")})
    assert changed == [RedactedDifference("a.password", ValueChange.CHANGED, sensitive=True)]
