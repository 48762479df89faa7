"""LSTM and GRU become their steps, with the numbers of onnxruntime."""

from __future__ import annotations

import pytest
from importer_nets import imported, make_model, node, normal, ops

STEPS, BATCH, WIDTH, HIDDEN = 5, 2, 6, 4


def recurrent_net(op_type, direction="forward", *, state=False, outputs=None, steps=STEPS, **given):
    count = 2 if direction == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3}[op_type]
    constants = {
        "w": 0.5 * normal(count, gates * HIDDEN, WIDTH, seed=1),
        "r": 0.5 * normal(count, gates * HIDDEN, HIDDEN, seed=2),
        "b": 0.2 * normal(count, 2 * gates * HIDDEN, seed=3),
    }
    inputs = {"x": (steps, BATCH, WIDTH)}
    operands = "x w r b"
    if state:
        states = ["h0", "c0"] if op_type == "LSTM" else ["h0"]
        inputs |= dict.fromkeys(states, (count, BATCH, HIDDEN))
        operands += " - " + " ".join(states)
    made = "y yh yc" if op_type == "LSTM" else "y yh"
    layer = node(op_type, operands, made, hidden_size=HIDDEN, direction=direction, **given)
    return make_model([layer], inputs, outputs or made.split(), constants)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("state", [False, True])
def test_lstm(direction, state):
    found = imported(recurrent_net("LSTM", direction, state=state)).model
    assert "LSTM" not in ops(found)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("linear", [0, 1])
def test_gru(direction, state, linear):
    model = recurrent_net("GRU", direction, state=state, linear_before_reset=linear)
    assert "GRU" not in ops(imported(model).model)


def test_a_single_step_reads_its_state():
    found = imported(recurrent_net("LSTM", state=True, steps=1)).model
    assert ops(found).count("Sigmoid") == 3


def test_the_weights_of_all_steps_are_stored_once():
    found = imported(recurrent_net("LSTM")).model
    shapes = [tuple(v.shape.numpy()) for v in found.graph.initializers.values()]
    assert shapes.count((4 * HIDDEN, HIDDEN)) + shapes.count((HIDDEN, 4 * HIDDEN)) == 1


@pytest.mark.parametrize(
    "given",
    [{"steps": 65}, {"clip": 3.0}, {"activations": ["Sigmoid", "Tanh", "Relu"]}],
)
def test_other_forms_stay(given):
    assert "LSTM" in ops(imported(recurrent_net("LSTM", **given)).model)
