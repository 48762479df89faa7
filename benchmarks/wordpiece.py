"""BERT's uncased WordPiece tokenizer (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

CJK_FIRST, CJK_LAST = 0x4E00, 0x9FFF


class WordPiece:
    """Words, then the longest pieces of each that the vocabulary holds."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def read(cls, path: Path) -> WordPiece:
        """From a tokenizer.json."""
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        return cls(content["model"]["vocab"])

    def encode(self, text: str, length: int) -> tuple[Ids, Ids]:
        """Ids and mask, int64 [1, length]: [CLS] pieces [SEP], cut or padded to `length`."""
        pieces = [piece for word in words(text) for piece in self.pieces(word)]
        tokens = ["[CLS]", *pieces[: length - 2], "[SEP]"]
        ids, mask = np.zeros((1, length), np.int64), np.zeros((1, length), np.int64)
        ids[0, : len(tokens)] = [self.vocabulary[token] for token in tokens]
        mask[0, : len(tokens)] = 1
        return ids, mask

    def pieces(self, word: str) -> list[str]:
        """The greedy split of one word; [UNK] where it gets stuck."""
        found: list[str] = []
        rest = word
        while rest:
            prefix = "##" if found else ""
            candidates = (prefix + rest[:end] for end in range(len(rest), 0, -1))
            piece = next((c for c in candidates if c in self.vocabulary), None)
            if piece is None:
                return ["[UNK]"]
            found.append(piece)
            rest = rest[len(piece) - len(prefix) :]
        return found


def words(text: str) -> list[str]:
    """Lower case without accents, split at spaces and around each punctuation mark."""
    return "".join(_spaced(text)).split()


def _spaced(text: str) -> Iterator[str]:
    for character in unicodedata.normalize("NFD", text.lower()):
        kind = unicodedata.category(character)
        if character.isspace():
            yield " "
        elif _stands_alone(character, kind):
            yield f" {character} "
        elif kind != "Mn" and not kind.startswith("C"):
            yield character


def _stands_alone(character: str, kind: str) -> bool:
    cjk = CJK_FIRST <= ord(character) <= CJK_LAST
    return kind.startswith("P") or character in "$+<=>^`|~" or cjk
