"""The parts of the tasks that can be told right from wrong without a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


def test_word_pieces_are_the_longest_ones() -> None:
    from wordpiece import WordPiece, words

    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", ",", "cafe", "$"]
    tokenizer = WordPiece({piece: index for index, piece in enumerate(known)})
    assert words("Café, UN\u200baff\t$中文") == ["cafe", ",", "unaff", "$", "中", "文"]
    assert tokenizer.pieces("unaffable") == ["un", "##aff", "##able"]
    assert tokenizer.pieces("unb") == ["[UNK]"]
    ids, mask = tokenizer.encode("Café, unaffable x", 9)
    assert ids.tolist() == [[2, 9, 8, 4, 5, 6, 1, 3, 0]]
    assert mask.tolist() == [[1, 1, 1, 1, 1, 1, 1, 1, 0]]
    cut, whole = tokenizer.encode("un un un un", 4)
    assert cut.tolist() == [[2, 4, 4, 3]] and whole.all()


def test_lines_are_read_by_their_best_steps() -> None:
    from lines import edit_distance, read

    letters = ["", "a", "b", " "]
    best = [0, 1, 1, 0, 1, 2, 2, 3, 0]
    assert read(np.eye(4)[best], letters) == "aab "
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == 3 and edit_distance("abc", "abc") == 0


def test_retrieval_counts_the_nearest_partner() -> None:
    from texts import VerseRetrieval

    task = VerseRetrieval()
    vectors = np.eye(4)[[0, 1, 2, 3, 0, 1, 3, 2]]
    assert task.figures(vectors) == {"retrieval top-1": 0.5}
    figures = task.comparison(vectors, 2 * vectors)
    assert figures["cosine worst"] == pytest.approx(1.0)
    assert figures["SQNR dB"] == pytest.approx(0.0)


def test_excerpts_hold_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filetypes

    monkeypatch.setattr(filetypes, "_config", lambda: {"padding_token": 256})
    (tmp_path / "short").write_bytes(b" \n ab \n")
    value = filetypes.excerpt(tmp_path / "short")
    assert value.shape == (1, 2048) and value.dtype == np.int32
    assert value[0, :4].tolist() == [97, 98, 32, 10]
    assert value[0, -5:].tolist() == [32, 10, 32, 97, 98]
    assert (value[0, 4:-5] == 256).all()


def test_structures_tell_their_inputs(tmp_path: Path) -> None:
    import onnx
    from architectures import inputs_of, measured_only, noise
    from models import Network
    from onnx import TensorProto, helper

    def declared(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    table = helper.make_tensor("table", TensorProto.FLOAT, [50, 4], np.zeros(200))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        "g",
        [
            declared("ids", TensorProto.INT64, 1, 600),
            declared("mask", TensorProto.INT32, 1, 600),
            declared("x", TensorProto.FLOAT, 2, 3),
            declared("table", TensorProto.FLOAT, 50, 4),
        ],
        [declared("y", TensorProto.FLOAT, 1, 600, 4)],
        [table],
    )
    inputs = inputs_of(helper.make_model(graph))
    assert [(i.name, i.shape, i.values) for i in inputs] == [
        ("ids", (1, 600), 50),
        ("mask", (1, 600), 2),
        ("x", (2, 3), 0),
    ]
    ids, mask, x = next(noise(inputs, 1))
    assert ids.dtype == np.int64 and ids.max() == 49 and ids.min() == 0
    assert mask.dtype == np.int32 and mask.max() == 1
    assert x.dtype == np.float32 and x.shape == (2, 3)
    network = Network("n", ((1,),), lambda _: iter(()), lambda: onnx.ModelProto())
    assert not measured_only(network)


def test_what_is_measured_only_leaves_nothing(tmp_path: Path) -> None:
    import dataclasses

    from bits import _work, shard
    from models import REAL

    network = REAL["magika"]
    kept, scratch = tmp_path / "kept", tmp_path / "scratch"
    assert _work(network, kept, scratch) == kept and _work(network, None, scratch) == scratch
    agpl = dataclasses.replace(network, origin="ultralytics 8.4.190 yolov8s.yaml")
    assert _work(agpl, kept, scratch) == scratch
    assert shard("2/8") == (2, 8)
