"""Settings of the config keys that a cluster has in addition to Kafka's own: those of vendors and of plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from confplane.domain.definitions import ConfigKind, ConfigType
from confplane.domain.extra_keys import extra_definition
from confplane.identity_settings import SettingsGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confplane.domain.definitions import ConfigDef


class ExtraKeySettings(SettingsGroup):
    """A config key that Kafka does not define, such as those of vendors and plug-ins (docs/kafka4.md)."""

    key: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(\.\*)?$",
        max_length=200,
        description="The name, without a listener's prefix; or a prefix of names, such as confluent.*",
    )
    entity_types: tuple[Literal["topic", "broker", "group", "client-metrics"], ...] = Field(
        min_length=1, description="The types of entities that may have it"
    )
    type: Literal["boolean", "string", "int", "short", "long", "double", "list", "class", "password"] = Field(
        description="The type of its values, as in Kafka's definitions of configs"
    )
    sensitive: bool = Field(default=False, description="Its values are secrets, as those of the type password always")
    description: str | None = Field(default=None, min_length=1, description="What it does, shown with its definition")

    @model_validator(mode="after")
    def _kafka_lacks_it(self) -> ExtraKeySettings:
        if len(set(self.entity_types)) < len(self.entity_types):
            raise ValueError("entity_types has a type twice")
        list(self.definitions())
        return self

    def definitions(self) -> Iterator[tuple[ConfigKind, ConfigDef]]:
        """Iterate over the definitions of the key, one for each entity type."""
        for entity_type in self.entity_types:
            kind, of_type = ConfigKind(entity_type), ConfigType(self.type.upper())
            yield (
                kind,
                extra_definition(kind, self.key, of_type, sensitive=self.sensitive, description=self.description),
            )


def check_distinct(keys: Iterable[ExtraKeySettings]) -> None:
    """Refuse a key that is declared twice for one entity type.

    Raises:
        ValueError: There is such a key.
    """
    declared = set[tuple[str, str]]()
    for each in keys:
        for entity_type in each.entity_types:
            if (entity_type, each.key) in declared:
                raise ValueError(f"{each.key} is declared twice for the entity type {entity_type}")
            declared.add((entity_type, each.key))
