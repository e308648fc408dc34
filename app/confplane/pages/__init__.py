"""HTML pages, made from the templates in this package. Every value in a page is escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_TEMPLATES: Final = "templates"


def environment(package: str) -> Environment:
    """Return the templates of a package, in its folder ``templates``."""
    return Environment(
        loader=PackageLoader(package, _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_ENVIRONMENT: Final = environment("confplane.pages")


def render(template: str, **values: Any) -> str:
    """Return a page.

    Args:
        template: The name of its template, such as ``docs.html``.
        values: Values for the names in the template; a missing one is an error.
    """
    return _ENVIRONMENT.get_template(template).render(values)


def fragment(template: str, **values: Any) -> Markup:
    """Return a part of a page, ready to stand in another template; see :func:`render`."""
    return Markup(render(template, **values))  # noqa: S704 - a template of ours, which escapes


def inline(*files: str) -> Markup:
    """Return styles or scripts of ours as one, ready to stand in a page."""
    folder = resources.files("confplane.pages").joinpath(_TEMPLATES)
    return Markup("".join(folder.joinpath(file).read_text("utf-8") for file in files))  # noqa: S704 - our files


def source_hash(text: str) -> str:
    """Return the source by which a content security policy admits this inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
