"""Translates errors of the wire protocol to those of the port."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from confplane.domain.errors import UnavailableError
from confplane.kraft.wire import errors
from confplane.services.ports.kafka import NotPermittedError, OtherClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the errors of the wire as those of the port."""
    try:
        yield
    except errors.WrongClusterError as error:
        raise OtherClusterError(str(error)) from None
    except (errors.KraftLoginError, errors.RightsError) as error:
        raise NotPermittedError(str(error)) from None
    except errors.KraftError as error:
        raise UnavailableError(str(error)) from None
