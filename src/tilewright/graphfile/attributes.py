"""Attributes of an operator as a run of s64 words.

In declaration order: a scalar is one word, a tuple of fixed length its values, a tuple of any
length its count and then its values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import ArtifactError
from tilewright.graph import Attribute, Operator

Value = int | tuple[int, ...]


def to_words(op: Operator) -> list[int]:
    """The words of `op`'s attributes."""
    words: list[int] = []
    for name, declared in op.attributes().items():
        value = getattr(op, name)
        if declared.count is None:
            words.append(int(value))
            continue
        values = [int(v) for v in value]
        if declared.count == -1:
            words.append(len(values))
        elif len(values) != declared.count:
            raise ArtifactError(
                f"{type(op).__name__}.{name} takes {declared.count} values, it has {len(values)}"
            )
        words += values
    return words


def from_words(
    declared: dict[str, Attribute], words: Sequence[int], where: str
) -> dict[str, Value]:
    """The attributes of a node; every word is used.

    Raises:
        ArtifactError: too few words or words left over; `where` names the node.
    """
    rest = list(words)
    values: dict[str, Value] = {}
    for name, attribute in declared.items():
        count = attribute.count
        if count is None:
            (values[name],) = _take(rest, 1, where)
            continue
        if count == -1:
            (count,) = _take(rest, 1, where)
        values[name] = tuple(_take(rest, count, where))
    if rest:
        raise ArtifactError(f"{where}: {len(rest)} attribute words are left over")
    return values


def _take(words: list[int], count: int, where: str) -> list[int]:
    if not 0 <= count <= len(words):
        raise ArtifactError(f"{where}: its attributes are cut short")
    taken = words[:count]
    del words[:count]
    return taken
