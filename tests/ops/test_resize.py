"""Resize against onnxruntime, exact positions and the golden vectors."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from node_harness import EXACT, case_encoding, compare, golden, lowered, matched, model_of, run

from tilewright.errors import QuantizationError
from tilewright.graph import DType, Encoding, TensorType
from tilewright.ops import resize
from tilewright.ops.resize import COORDINATES, NEAREST, Axis, Rule, tap_records

S8 = Encoding(DType.S8, 0.5, 3)
SIZES = [(8, 6), (3, 9), (1, 1), (5, 2), (2, 12)]
BY_SIZES = [(SHAPE, out) for SHAPE in [(4, 3), (1, 6)] for out in SIZES]


def by_sizes(shape, out, **attributes):
    rank = len(shape)
    sizes = np.array([*shape[: rank - len(out)], *out])
    return model_of("Resize", {"x": shape}, [None, None, sizes], **attributes)


def by_scales(shape, scales, **attributes):
    full = np.array([1, 1, *scales], np.float32)
    return model_of("Resize", {"x": shape}, [None, full], **attributes)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("scales", [(2, 2), (1, 3), (0.5, 0.25), (1.5, 2.5), (4, 1)])
def test_nearest_is_that_of_onnxruntime(coordinates, nearest, scales):
    model = by_scales(
        (1, 3, 4, 8),
        scales,
        mode="nearest",
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
    )
    compare(resize, model, {"x": S8, "y0": S8}, np.random.default_rng(0))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(("shape", "out"), BY_SIZES)
def test_interpolation_is_within_a_step_of_onnxruntime(coordinates, mode, shape, out):
    model = by_sizes((2, 2, *shape), out, mode=mode, coordinate_transformation_mode=coordinates)
    encodings = {"x": S8, "y0": S8}
    # Half a step of rounding, and Q11 coefficients that are each off by up to 1 in 4096.
    compare(resize, model, encodings, np.random.default_rng(1), steps=0.75)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_signal_is_an_image_of_one_row(mode):
    model = by_sizes((1, 3, 5), (8,), mode=mode)
    compare(resize, model, {"x": S8, "y0": S8}, np.random.default_rng(2), steps=0.75)


def test_a_cubic_signal_is_a_cubic_image_of_one_row():
    # onnxruntime has no 1-D cubic.
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (1, 3, 5)).astype(np.int8)
    signal = lowered(resize, by_sizes((1, 3, 5), (8,), mode="cubic"), {"x": S8, "y0": S8})
    image = lowered(resize, by_sizes((1, 3, 1, 5), (1, 8), mode="cubic"), {"x": S8, "y0": S8})
    wanted = run(image, {"x": x[:, :, None]})["y0"][:, :, 0]
    np.testing.assert_array_equal(run(signal, {"x": x})["y0"], wanted)


def test_sixteen_bits():
    for mode in ("linear", "cubic"):
        model = by_scales((1, 2, 3, 4), (2, 2), mode=mode)
        compare(resize, model, {"x": EXACT, "y0": EXACT}, np.random.default_rng(3), steps=0.51)


def test_cubic_without_what_is_outside():
    model = by_scales((1, 1, 4, 4), (2, 2), mode="cubic", exclude_outside=1)
    compare(resize, model, {"x": S8, "y0": S8}, np.random.default_rng(4), steps=0.75)


def test_golden_vectors():
    for case in golden("resize_linear"):
        x, y = case_encoding(case, "x"), case_encoding(case, "y")
        model = by_sizes(
            (1, 1, *case["x"].shape),
            case["y"].shape,
            mode="linear",
            coordinate_transformation_mode=str(case["mode"]),
        )
        graph = lowered(resize, model, {"x": x, "y0": y})
        got = run(graph, {"x": case["x"][None, None]})["y0"][0, 0]
        np.testing.assert_array_equal(got, case["y"])


def rule(mode, coordinates="half_pixel", exclude_outside=False):
    return Rule(mode, coordinates, "floor", Fraction(-3, 4), exclude_outside)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_coefficients_of_every_output_add_up_to_one(mode, coordinates):
    for size, out in [(5, 7), (7, 5), (3, 30), (1, 4), (4, 1)]:
        records = tap_records(Axis(size, out, Fraction(out, size)), rule(mode, coordinates))
        assert (records["coefficient"].sum(axis=1) == 2048).all()
        assert records["index"].min() >= 0 and records["index"].max() < size


def test_the_scale_is_the_float32_that_the_node_gives():
    scale = Fraction(float(np.float32(0.7)))
    records = tap_records(Axis(10, 7, scale), rule("nearest", "asymmetric"))
    assert records["index"][:, 0].tolist() == [int(i / scale) for i in range(7)]


def test_an_axis_that_keeps_its_extent_keeps_its_codes():
    records = tap_records(Axis(4, 4, Fraction(1)), rule("cubic"))
    assert records["coefficient"].tolist() == [[0, 2048, 0, 0]] * 4
    assert records["index"].tolist() == [[i] * 4 for i in range(4)]


def test_refusals_say_why():
    channels = model_of("Resize", {"x": (1, 2, 3, 4)}, [None, np.float32([1, 2, 2, 2])])
    assert "other axes" in matched(resize, channels).reason
    crop = by_scales((1, 2, 3, 4), (2, 2), coordinate_transformation_mode="tf_crop_and_resize")
    assert matched(resize, crop).reason == "its coordinates are tf_crop_and_resize"
    smooth = by_scales((1, 2, 4, 4), (0.5, 0.5), mode="linear", antialias=1)
    assert matched(resize, smooth).reason == "it is antialiased"


def test_a_tap_outside_the_input_is_an_error():
    taps = tap_records(Axis(4, 8, Fraction(2)), rule("linear"))
    op = resize.Resize(2, 1 << 23, 45, taps, taps)
    with pytest.raises(QuantizationError, match="a tap leaves"):
        op.infer([TensorType(DType.S8, (1, 4, 3, 1), 1.0, 0)], "here")
