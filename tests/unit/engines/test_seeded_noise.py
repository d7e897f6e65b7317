import numpy as np
import pytest

from voicejobs.engines.seeded_noise import _message, _node, _number, with_noise_inputs

onnxruntime = pytest.importorskip("onnxruntime")


def tensor_info(name: str) -> bytes:
    """Return the ValueInfoProto of a float32 matrix."""
    shape = b"".join(_message(1, _message(2, part)) for part in (b"rows", b"columns"))
    return _message(1, name.encode()) + _message(2, _message(1, _number(1, 1) + _message(2, shape)))


def model(operator: str) -> bytes:
    """Return a model with one node, from the matrix `x` to `y`, whose output is doubled."""
    nodes = [_node(operator, ["x"], "n"), _node("Add", ["n", "n"], "y")]
    graph = b"".join(_message(1, node) for node in nodes)
    graph += _message(2, b"graph") + _message(11, tensor_info("x")) + _message(12, tensor_info("y"))
    return _number(1, 8) + _message(7, graph) + _message(8, _number(2, 15))


def run(data: bytes, **inputs: object) -> np.ndarray:
    """Run a model."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def test_noise_comes_from_the_new_input() -> None:
    """The random node gives the first numbers of the input, in the shape that it had; the rest is as it was."""
    data, names = with_noise_inputs(model("RandomNormalLike"))
    assert len(names) == 1
    like, noise = np.zeros((3, 4), np.float32), np.arange(100, dtype=np.float32)
    found = run(data, x=like, **{names[0]: noise})
    assert np.array_equal(found, 2 * np.arange(12, dtype=np.float32).reshape(3, 4))


def test_a_model_without_noise_is_left_alone() -> None:
    """Nothing is changed where nothing is random; bytes that are no model are refused."""
    data = model("Identity")
    assert with_noise_inputs(data) == (data, [])
    assert np.array_equal(run(data, x=np.ones((1, 2), np.float32)), [[2.0, 2.0]])
    with pytest.raises(ValueError, match="end inside"):
        with_noise_inputs(model("RandomNormalLike")[:-3])
