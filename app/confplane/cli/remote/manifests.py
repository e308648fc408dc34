"""Manifests as files: a file or the files of a directory, read as one document with the place of each part."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.remote.load_commands import check_value, entity_at, may_be_secret, open_source
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.manifests import API_VERSION, FACETS, KIND
from confplane.domain.ownership import OWNER_PATTERN
from confplane.domain.texts import step
from confplane.strict_yaml import YamlNode, read_document

if TYPE_CHECKING:
    from confplane.domain.entities import Entity

_STANDARD_INPUT: Final = Path("-")
_SUFFIXES: Final = {".yaml", ".yml", ".json"}
_HEAD: Final = {"apiVersion": API_VERSION, "kind": KIND}
_MEMBERS: Final = (*_HEAD, "cluster", "owner", "labels", "entities")
_FROM_FILE: Final = "fromFile"
_FROM_ENV: Final = "fromEnv"


@dataclass(slots=True)
class ManifestFiles:
    """The manifest of one or several files.

    Args:
        path: A file, a directory, or ``-`` for standard input.
        env_prefix: The beginning of the environment variables that values may come from; None: none may.
    """

    path: Path
    env_prefix: str | None = None
    cluster: str | None = None
    owner: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    entities: list[dict[str, Any]] = field(default_factory=list)
    _places: dict[str, YamlNode] = field(default_factory=dict)
    """The nodes of the document by JSON pointer."""
    _heads: dict[str, YamlNode] = field(default_factory=dict)
    """The nodes of the cluster, the owner and the labels, by name."""
    _entity_nodes: dict[str, YamlNode] = field(default_factory=dict)
    """The nodes of the entities by id."""

    def read(self) -> None:
        """Read all files.

        Raises:
            InvalidRequestError: A file can't be read or is not a manifest, or two files contradict each other; the text
                has the place, and never a value.
        """
        for path in self._files():
            with open_source(path) as stream:
                document = read_document(stream, str(path))
            if document is None:
                raise YamlNode(None, str(path), 1, 1).error("the file has no content")
            self._add(document, path)

    @property
    def document(self) -> dict[str, Any]:
        """The manifest as JSON."""
        given = {"cluster": self.cluster, "owner": self.owner, "labels": self.labels}
        return {**_HEAD, **{name: value for name, value in given.items() if value}, "entities": self.entities}

    def place(self, pointer: str) -> str:
        """Return the place of a part of the document, or of the nearest part around it; '' if there is none."""
        while pointer and pointer not in self._places:
            pointer = pointer.rpartition("/")[0]
        return self._places[pointer].place if pointer else ""

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = sorted(
            path
            for path in self.path.rglob("*")
            if path.suffix in _SUFFIXES
            and not any(part.startswith(".") for part in path.relative_to(self.path).parts)
            and path.is_file()
        )
        if not found:
            raise InvalidRequestError(f"{self.path} has no files that end with {', '.join(sorted(_SUFFIXES))}.")
        return found

    def _add(self, document: YamlNode, path: Path) -> None:
        members = _map(document, "a manifest is a map with the members apiVersion, kind and entities")
        for name, node in members.items():
            if name not in _MEMBERS:
                raise node.error(f"{name!r} is not a member of a manifest; there are {', '.join(_MEMBERS)}")
        for name, value in _HEAD.items():
            if (found := members.get(name)) is None:
                raise document.error(f"the member {name} is missing; write `{name}: {value}`")
            if found.value != value:
                raise found.error(f"the {name} of a manifest is {value}")
        self._add_head(members)
        entities = members.get("entities")
        if entities is None:
            raise document.error("the member entities is missing; an empty list is written `entities: []`")
        if not isinstance(entities.value, list):
            raise entities.error("entities is a list, whose items begin with '- '")
        for item in entities.value:
            self._add_entity(item, path)

    def _add_head(self, members: dict[str, YamlNode]) -> None:
        if (cluster := members.get("cluster")) is not None:
            self.cluster = self._once("cluster", cluster)
        if (owner := members.get("owner")) is not None:
            self.owner = self._once("owner", owner)
            if not re.fullmatch(OWNER_PATTERN, self.owner):
                raise owner.error("the owner is not a name of letters, digits and . _ / -, 100 characters at most")
        if (labels := members.get("labels")) is not None:
            self._places["/labels"] = labels
            for name, node in _map(labels, "labels is a map of names and values").items():
                self.labels[name] = self._once(f"label {name}", node)
                self._places[f"/labels{step(name)}"] = node

    def _once(self, name: str, node: YamlNode) -> str:
        """Return a text that all files that have it agree on."""
        if not isinstance(node.value, str) or not node.value:
            raise node.error(f"the {name} is not text")
        before = self._heads.setdefault(name, node)
        if before.value != node.value:
            raise node.error(f"the {name} is another one than in {before.place}")
        self._places[f"/{name}"] = node
        text: str = node.value
        return text

    def _add_entity(self, item: YamlNode, path: Path) -> None:
        members = _map(item, "an entity is a map with an id, and its keys")
        entity = entity_at(item, members.get("id"))
        named = members["id"]
        if (before := self._entity_nodes.setdefault(entity.id, named)) is not named:
            raise named.error(f"{entity.id} occurs twice: here, and in {before.place}. Join both.")
        pointer = f"/entities/{len(self.entities)}"
        self._places |= {pointer: item, f"{pointer}/id": named}
        made: dict[str, Any] = {"id": entity.id}
        for member, node in members.items():
            if member == "id":
                continue
            if member not in FACETS:
                raise node.error(f"{member!r} is not a member of an entity; there are id, {', '.join(FACETS)}")
            keys = _map(node, f"{member} is a map of keys and values")
            self._places[f"{pointer}/{member}"] = node
            made[member] = {}
            for key, value in keys.items():
                self._places[f"{pointer}/{member}{step(key)}"] = value
                made[member][key] = self._value(entity, FACETS[member], key, value, path)
        if len(made) == 1:
            raise item.error(f"{entity.id} has no keys; give one of {', '.join(FACETS)}")
        self.entities.append(made)

    def _value(self, entity: Entity, facet: FacetName, key: str, node: YamlNode, path: Path) -> Any:
        if isinstance(node.value, dict):
            return self._reference(entity, facet, key, node, path)
        check_value(entity, facet, key, node)
        return node.value

    def _reference(self, entity: Entity, facet: FacetName, key: str, node: YamlNode, path: Path) -> str:
        """Return the secret that a value names."""
        if len(node.value) != 1 or not node.value.keys() <= {_FROM_FILE, _FROM_ENV}:
            raise node.error(f"the value of {key} is not text; a secret may be given by {_FROM_FILE} or {_FROM_ENV}")
        [(source, named)] = node.value.items()
        if facet is not FacetName.CONFIGS or not may_be_secret(entity, key):
            raise node.error(f"{key} is not a secret, so its value is written into the manifest, without {source}")
        if not isinstance(named.value, str) or not named.value:
            raise named.error(f"the value of {source} is not text")
        return self._from_file(named, path) if source == _FROM_FILE else self._from_env(named)

    def _from_file(self, node: YamlNode, path: Path) -> str:
        if path == _STANDARD_INPUT:
            raise node.error(f"{_FROM_FILE} needs a manifest in a file")
        root = (self.path if self.path.is_dir() else self.path.parent).resolve()
        try:
            found: Path = (path.parent / node.value).resolve(strict=True)
            if not found.is_relative_to(root):
                raise node.error(f"{_FROM_FILE} leads out of the folder of the manifest, {root}")
            text = found.read_text("utf-8")
        except UnicodeDecodeError:
            raise node.error("the file with the secret is not UTF-8") from None
        except (OSError, RuntimeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a valid path"
            raise node.error(f"the file with the secret can't be read: {reason}") from None
        return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")

    def _from_env(self, node: YamlNode) -> str:
        name: str = node.value
        if not self.env_prefix:
            # Every name begins with an empty text, which a pipeline may give by mistake.
            raise node.error(f"{_FROM_ENV} needs the option --env-prefix with the beginning of the variable's name")
        if not name.startswith(self.env_prefix):
            raise node.error(f"the variable {name} does not begin with {self.env_prefix}, as --env-prefix demands")
        if (value := os.environ.get(name)) is None:
            raise node.error(f"the variable {name} is not set")
        return value


def _map(node: YamlNode, text: str) -> dict[str, YamlNode]:
    if not isinstance(node.value, dict):
        raise node.error(text)
    found: dict[str, YamlNode] = node.value
    return found
