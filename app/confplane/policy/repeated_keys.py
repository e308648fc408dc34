"""Keys that occur twice in a YAML file: YAML would use the last one, which is rarely intended."""

from __future__ import annotations

import yaml


def refuse_repeated_keys(root: yaml.Node | None) -> None:
    """Refuse equal keys in one map.

    Raises:
        yaml.MarkedYAMLError: A key occurs twice; the error has its location.
    """
    waiting = [] if root is None else [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in keys:
                        raise yaml.MarkedYAMLError(
                            problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                        )
                    keys.add(key.value)
                waiting.append(value)
