"""Free dimensions are listed, set, and refused with the option that sets them."""

from __future__ import annotations

import pytest
from importer_nets import imported, make_model, node

from tilewright.errors import ConfigError, ModelError
from tilewright.importer import FreeDimension, fix_shapes, free_dimensions, import_model


def two_inputs():
    return make_model(
        [node("Add", "image mask", "y")],
        {"image": ["N", 3, "H", "W"], "mask": ["N", 1, "H", "W"]},
        ["y"],
    )


def test_lists_symbols_zero_and_minus_one():
    model = make_model([node("Relu", "x", "y")], {"x": ["N", 3, 0, -1]}, ["y"])
    assert free_dimensions(model) == [
        FreeDimension("x", 0, "N"),
        FreeDimension("x", 2, ""),
        FreeDimension("x", 3, ""),
    ]


def test_refusal_holds_the_option_filled_in():
    with pytest.raises(ModelError) as caught:
        import_model(make_model([node("Relu", "image", "y")], {"image": ["N", 3, "H", "W"]}, ["y"]))
    assert caught.value.code == "TW-1105"
    assert "image[0] (N), image[2] (H), image[3] (W)" in str(caught.value)
    assert '--input-shapes "image:1x3x224x224"' in str(caught.value)


def test_a_symbol_is_bound_in_other_inputs_too():
    result = imported(two_inputs(), input_shapes={"image": (2, 3, 8, 6)})
    assert [list(v.shape) for v in result.model.graph.inputs] == [[2, 3, 8, 6], [2, 1, 8, 6]]
    assert list(result.model.graph.outputs[0].shape) == [2, 3, 8, 6]


def test_a_question_mark_is_no_symbol():
    model = make_model([node("Add", "a b", "y")], {"a": ["?", 3], "b": ["?", 3]}, ["y"])
    with pytest.raises(ModelError, match=r"b\[0\]"):
        fix_shapes(model, {"a": (2, 3)})


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"imagee": (1, 3, 4, 4)}, "did you mean 'image'?"),
        ({"image": (1, 3, 4)}, "rank 4"),
        ({"image": (1, 4, 4, 4)}, "fixes axis 1 at 3"),
        ({"image": (1, 3, 0, 4)}, "at least 1"),
    ],
)
def test_wrong_shapes(shapes, words):
    with pytest.raises(ConfigError) as caught:
        import_model(two_inputs(), input_shapes=shapes)
    assert words in str(caught.value)


def test_the_source_model_is_left_alone():
    model = two_inputs()
    import_model(model, input_shapes={"image": (1, 3, 4, 4)})
    assert len(free_dimensions(model)) == 6


def test_contradicting_shapes_name_the_node():
    model = make_model([node("Concat", "a b", "y", axis=0)], {"a": ["N", 4], "b": ["M", 5]}, ["y"])
    with pytest.raises(ModelError) as caught:
        import_model(model, input_shapes={"a": (1, 4), "b": (1, 5)})
    assert caught.value.code == "TW-1110"
    assert "n_y" in str(caught.value) and "[1, 5]" in str(caught.value)
