"""Manifests as files: a file or the files of a directory, read as one document with the place of each part."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from confplane.cli.remote.entities import facets_of
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.manifests import API_VERSION, FACETS, KIND, MEMBERS
from confplane.domain.ownership import OWNER_PATTERN
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.releases import newest, releases
from confplane.domain.texts import step
from confplane.strict_yaml import YamlNode, is_map, read_document, read_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

_STANDARD_INPUT: Final = Path("-")
_SUFFIXES: Final = {".yaml", ".yml", ".json"}
_HEAD: Final = {"apiVersion": API_VERSION, "kind": KIND}
_MEMBERS: Final = (*_HEAD, "cluster", "owner", "labels", "entities")
_FROM_FILE: Final = "fromFile"
_FROM_ENV: Final = "fromEnv"
_FACETS: Final = {**FACETS, **{facet.value: facet for facet in FACETS.values()}}
"""The facets by the member of an entity, as manifests and as the list that ``confplane export`` writes spell it."""
PART_ENTITIES: Final = 10_000
"""Entities of a part: the service plans a part as a whole, and needs 9 kB of memory for each of its entities."""
_PART_BYTES: Final = 16 << 20
"""The size of a part as JSON, but for its last entity: the service accepts 64 MiB."""


@dataclass(slots=True)
class ManifestFiles:
    """The manifest of one or several files.

    Args:
        path: A file, a directory, or ``-`` for standard input.
        env_prefix: The beginning of the environment variables that values may come from; None: none may.
        merged: The manifest keeps keys that it does not name, so secrets that are null are left out.
    """

    path: Path
    env_prefix: str | None = None
    merged: bool = False
    cluster: str | None = None
    owner: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    entities: list[dict[str, Any]] = field(default_factory=list)
    secrets: int = 0
    """The number of secrets that are left out."""
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
            for item in self.add_head(document):
                self.add_entity(item, path)

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

    def part(self) -> ManifestFiles:
        """Return an empty part of the manifest, without its owner; an entity occurs in one part only."""
        return replace(self, owner=None, labels={}, entities=[], secrets=0, _places={})

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        found = []
        # A file or folder that can't be read must not be left out: with --prune its entities would be deleted.
        for folder, folders, names in os.walk(self.path, onerror=_refuse_folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = [Path(folder, name) for name in names if not name.startswith(".")]
            found += [path for path in paths if path.suffix in _SUFFIXES and (path.is_file() or path.is_symlink())]
        if not found:
            raise InvalidRequestError(f"{self.path} has no files that end with {', '.join(sorted(_SUFFIXES))}.")
        return sorted(found)

    def add_head(self, document: YamlNode) -> list[YamlNode]:
        """Read the members of a manifest, and return its entities.

        Raises:
            InvalidRequestError: A member is missing or not valid.
        """
        if isinstance(document.value, list):
            raise document.error(
                "this is a list, as `confplane export` writes it: use `confplane load`, or export it with"
                " `--format manifest`"
            )
        members = _map(document, "a manifest is a map with the members apiVersion, kind and entities")
        for name, node in members.items():
            if name not in _MEMBERS:
                raise node.error(f"{name!r} is not a member of a manifest; there are {', '.join(_MEMBERS)}")
        for name, value in _HEAD.items():
            if (found := members.get(name)) is None:
                raise document.error(f"the member {name} is missing; write `{name}: {value}`")
            if found.value != value:
                raise found.error(f"the {name} of a manifest is {value}")
        self._add_names(members)
        entities = members.get("entities")
        if entities is None:
            raise document.error("the member entities is missing; an empty list is written `entities: []`")
        if not isinstance(entities.value, list):
            raise entities.error("entities is a list, whose items begin with '- '")
        items: list[YamlNode] = entities.value
        return items

    def _add_names(self, members: dict[str, YamlNode]) -> None:
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

    def add_entity(self, item: YamlNode, path: Path) -> None:
        """Add an entity.

        Args:
            item: The entity.
            path: The file.

        Raises:
            InvalidRequestError: The entity is not valid, or occurs twice.
        """
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
            if (facet := _FACETS.get(member)) is None:
                raise node.error(f"{member!r} is not a member of an entity; there are id, {', '.join(FACETS)}")
            if MEMBERS[facet] in made:
                raise node.error(f"{member} and {MEMBERS[facet]} have the same keys. Join both.")
            keys = _map(node, f"{member} is a map of keys and values")
            place = f"{pointer}/{MEMBERS[facet]}"
            self._places[place] = node
            made[MEMBERS[facet]] = values = {}
            for key, value in keys.items():
                self._places[f"{place}{step(key)}"] = value
                values[key] = self._value(entity, facet, key, value, path)
                if self.merged and values[key] is None:
                    del values[key]
                    self.secrets += 1
        if len(made) > 1:
            self.entities.append(made)
        elif not self.merged:
            raise item.error(f"{entity.id} has no keys; give one of {', '.join(FACETS)}")

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


def read_parts(stream: BinaryIO, path: Path, env_prefix: str | None) -> Iterator[ManifestFiles]:
    """Read a manifest, or the list that ``confplane export`` writes, as manifests without an owner that are merged.

    A list is read part by part.

    Raises:
        InvalidRequestError: As :meth:`ManifestFiles.read`.
    """
    whole = ManifestFiles(path, env_prefix, merged=True)
    items: Iterable[YamlNode]
    if is_map(stream, str(path)):
        document = read_document(stream, str(path))
        items = [] if document is None else whole.add_head(document)
    else:
        items = read_items(stream, str(path))
    part, size = whole.part(), 0
    for item in items:
        if len(part.entities) == PART_ENTITIES or size > _PART_BYTES:
            yield part
            part, size = whole.part(), 0
        part.add_entity(item, path)
        size += len(json.dumps(part.entities[-1:]))
    yield part


def _map(node: YamlNode, text: str) -> dict[str, YamlNode]:
    if not isinstance(node.value, dict):
        raise node.error(text)
    found: dict[str, YamlNode] = node.value
    return found


def _refuse_folder(error: OSError) -> NoReturn:
    raise InvalidRequestError(f"{error.filename} can't be read: {error.strerror}") from None


@contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """Open a file that can be read twice. A pipe is copied to disk first.

    Raises:
        InvalidRequestError: The file can't be read.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == _STANDARD_INPUT else path.open("rb") as file:
            if file.seekable():
                yield file
                return
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                yield copy
    except IsADirectoryError:
        raise InvalidRequestError(
            f"{path} is a directory: load its files one by one, or use `confplane apply`"
        ) from None
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be read: {error.strerror}") from None


def entity_at(item: YamlNode, named: YamlNode | None) -> Entity:
    """Return the entity of an item by the node of its id.

    Raises:
        InvalidRequestError: It has no id, or no entity can have it; the text has the place.
    """
    if named is None or not isinstance(named.value, str):
        raise item.error("an entity has an id, such as `id: user=alice`")
    try:
        entity = Entity.from_id(named.value)
        if FacetName.CONFIGS in facets_of(entity):
            _configs_of(newest()).check_entity(entity)
        else:  # an id with a user fits both facets of clients
            ClientQuotasFacet().check_entity(entity)
    except ConfplaneError as error:
        raise named.error(str(error)) from None
    return entity


def check_value(entity: Entity, facet: FacetName, key: str, node: YamlNode) -> None:
    """Refuse a value of the wrong kind; only the service knows the ranges.

    Raises:
        InvalidRequestError: The value is not of the kind of the facet; the text has the place.
    """
    value = node.value
    if facet is FacetName.CLIENT_QUOTAS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise node.error(f"the value of {key} is not a number")
    elif value is None:
        if facet is not FacetName.CONFIGS or not may_be_secret(entity, key):
            raise node.error(
                f"{key} is not a secret, so its value can't be null; `confplane delete` removes a key from an entity"
            )
    elif not isinstance(value, str):
        raise node.error(f"the value of {key} is not text; put it in quotes")


def may_be_secret(entity: Entity, key: str) -> bool:
    """Return True if a cluster of some release hides the values of a key, so that its exports have null."""
    return any(_configs_of(release).is_secret(entity, key) for release in releases())


def _configs_of(release: str) -> ConfigsFacet:
    return ConfigsFacet(lambda: catalog_of(release))
