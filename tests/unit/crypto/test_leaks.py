"""Nothing that holds a secret shows it: planted ones are looked for in whatever text can be made of each object."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from confplane.crypto import BrokerSecrets, ConfigFingerprinter, KafkaCipher, KafkaRotator, Keyring
from confplane.crypto.fingerprints import fingerprinter
from confplane.crypto.password_encoder import PasswordEncoder
from confplane.domain.errors import ConfplaneError
from confplane.settings import PasswordEncoderSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET, OLD_SECRET, PASSWORD = "planted-secret", "planted-old-secret", "planted-password"
KEY = "listener.name.external.ssl.key.password"
STORED = PasswordEncoder(SECRET).encode(PASSWORD)
CIPHERTEXT = STORED.rpartition(":")[2]
UNREADABLE = STORED.replace(SALT := STORED.split("salt:")[1][:40], SALT[::-1])


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    folder: Path = tmp_path_factory.mktemp("secrets")
    (folder / "current").write_text(SECRET)
    (folder / "old").write_text(OLD_SECRET)
    settings = PasswordEncoderSettings(
        secret_file=folder / "current", old_secret_file=folder / "old", brokers={1: {"secret_file": folder / "old"}}
    )
    return Keyring.from_settings("payments", settings)


def clean(text: str) -> None:
    assert text
    for planted in (SECRET, OLD_SECRET, PASSWORD, CIPHERTEXT, SALT, SALT[::-1]):
        assert planted not in text
    assert "planted" not in text


def reachable(value: object, depth: int = 3) -> Iterator[object]:
    """Yield an object and what its attributes hold, as tools that render whole objects do."""
    yield value
    if depth and type(value).__module__.startswith(("confplane.", "functools")):
        names = {*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())} - {"__dict__", "__weakref__"}
        for name in names:
            yield from reachable(getattr(value, name, None), depth - 1)


def test_representations(keyring: Keyring) -> None:
    secrets = keyring.secret_for(0)
    cipher = KafkaCipher(keyring)
    rotator = KafkaRotator(keyring, encoded=lambda _: True)
    rotation = rotator.rotate(0, {KEY: PasswordEncoder(OLD_SECRET).encode(PASSWORD)})
    assert rotation.needed
    of_configs = ConfigFingerprinter(cipher, sensitive=lambda _: True, encoded=lambda _: True)
    assert cipher.decode(0, KEY, STORED) == PASSWORD
    assert cipher.fingerprint(0, KEY, PASSWORD)
    for subject in (
        keyring,
        secrets,
        secrets.current,
        secrets.old,
        cipher,
        of_configs,
        rotator,
        rotation,
        of_configs.fingerprints(0, {KEY: STORED}),
        fingerprinter(SECRET, "payments"),
    ):
        for each in (repr(subject), str(subject), f"{subject}"):
            clean(each)
    for subject in (keyring, secrets, cipher, rotator):
        for found in reachable(subject):
            clean(repr(found))


def test_what_holds_a_secret_can_t_be_pickled_or_copied(keyring: Keyring) -> None:
    for subject in (keyring, keyring.secret_for(0), keyring.secret_for(0).current, KafkaCipher(keyring)):
        with pytest.raises(TypeError, match="holds a secret"):
            pickle.dumps(subject)
        with pytest.raises(TypeError, match="holds a secret"):
            copy.deepcopy(subject)


FAILURES: dict[str, Callable[[Keyring], Any]] = {
    "another secret": lambda keyring: KafkaCipher(keyring).decode(1, KEY, STORED),
    "altered": lambda keyring: KafkaCipher(keyring).decode(0, KEY, UNREADABLE),
    "cut off": lambda keyring: KafkaCipher(keyring).decode(0, KEY, STORED[:-9]),
    "in clear": lambda keyring: KafkaCipher(keyring).decode(0, KEY, PASSWORD),
    "in clear, like pairs": lambda keyring: KafkaCipher(keyring).decode(0, KEY, f"{PASSWORD}:{PASSWORD},"),
    "cipher": lambda keyring: KafkaCipher(keyring).decode(0, KEY, STORED.replace("AES/CBC", PASSWORD)),
    "number": lambda keyring: KafkaCipher(keyring).decode(0, KEY, STORED.replace("4096", PASSWORD)),
    "no Unicode": lambda keyring: KafkaCipher(keyring).encode(0, KEY, f"{PASSWORD}\ud800"),
    "no secret": lambda _: KafkaCipher(Keyring("payments")).decode(0, KEY, STORED),
    "no secret to encode": lambda _: KafkaCipher(Keyring("payments")).encode(0, KEY, PASSWORD),
}


@pytest.mark.parametrize("name", FAILURES)
def test_errors_hold_nothing(name: str, keyring: Keyring, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfplaneError) as caught:
        FAILURES[name](keyring)
    error = caught.value
    clean(str(error) + repr(error) + error.detail + repr(error.args) + repr(vars(error)))
    # Nothing of the way there hangs on to it, whoever renders what an error refers to.
    assert error.__context__ is None
    assert error.__cause__ is None
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above
    assert type(again) is type(error)
    assert again.detail == error.detail
    assert b"planted" not in pickle.dumps(error)
    # Source lines of this test name the planted values' variables, never the values.
    clean("".join(traceback.format_exception(error)))
    logging.getLogger("test").error("failed", exc_info=error)
    clean(caplog.text)


def test_wrong_secrets_hold_nothing() -> None:
    for secret in ("", f"{SECRET}\ud800"):
        with pytest.raises(ValueError, match="is empty or holds") as caught:
            BrokerSecrets.of("payments", secret)
        clean("".join(traceback.format_exception(caught.value)))
        assert caught.value.__context__ is None
