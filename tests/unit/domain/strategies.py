"""Names and entities that Kafka can have, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from confplane.domain.entities import Entity, EntityType

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda name: name not in {".", ".."}
)
"""Arbitrary Unicode, without what no znode can carry."""

odd_names = names | st.sampled_from(
    ["<default>", "CN=Alice, O=Acme/x y*é", "a+b", "a%2Bb", "~41", "%", "~", "...", "\U0001f600", "é", "x" * 200]
)
"""The same, and names that have gone wrong somewhere before."""


def entities(name: st.SearchStrategy[str] = odd_names) -> st.SearchStrategy[Entity]:
    """Draw users, client-ids, pairs and ips, defaults included."""
    maybe = st.none() | name
    return st.one_of(
        maybe.map(lambda user: Entity(((EntityType.USER, user),))),
        maybe.map(lambda client: Entity(((EntityType.CLIENT_ID, client),))),
        st.tuples(maybe, maybe).map(lambda pair: Entity(((EntityType.USER, pair[0]), (EntityType.CLIENT_ID, pair[1])))),
        maybe.map(lambda address: Entity(((EntityType.IP, address),))),
    )
