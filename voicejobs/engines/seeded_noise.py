"""Give an ONNX model its noise from outside, so that its output is a function of its inputs.

`RandomNormalLike` draws from a generator that onnxruntime seeds when it opens a model and never again: what a text
sounds like would depend on what was said before it. Each such node is replaced by one that cuts the numbers it needs
from an input of the model. Only the bytes in memory change; the file stays as it was verified.
"""

from collections.abc import Iterator

_GRAPH = 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP = 1, 2, 4
_BYTES = 2
_WIDTHS = {1: 8, 5: 4}
_FLOAT, _INT64 = 1, 7
_LOW_BITS = 0x7F
_STARTS = "voicejobs.starts"


def with_noise_inputs(model: bytes) -> tuple[bytes, list[str]]:
    """Return the model with its random nodes replaced, and the names of the inputs that now take normal numbers.

    An input takes a float32 vector of any length that is enough; a model without such nodes comes back as it is.

    Args:
        model: an ONNX ModelProto, opset 10 or later.

    Raises:
        ValueError: these are no such bytes.
    """
    view = memoryview(model)
    parts: list[bytes | memoryview] = []
    names: list[str] = []
    for field, value, raw in _fields(view):
        if field == _GRAPH and isinstance(value, memoryview):
            graph, names = _replace_in_graph(value)
            parts.append(_message(_GRAPH, graph))
        else:
            parts.append(raw)
    return (b"".join(parts), names) if names else (model, [])


def _replace_in_graph(graph: memoryview) -> tuple[bytes, list[str]]:
    """Return the graph with other nodes for the random ones, and the names of its new inputs."""
    parts: list[bytes | memoryview] = []
    names: list[str] = []
    for field, value, raw in _fields(graph):
        node = _random_node(value) if field == _NODE and isinstance(value, memoryview) else None
        if node is None:
            parts.append(raw)
            continue
        names.append(f"voicejobs.noise{len(names)}")
        parts += [_message(_NODE, one) for one in _cut(names[-1], *node)]
    if names:
        parts.append(_message(_INITIALIZER, _zero(_STARTS)))
        parts += [_message(_INPUT, _vector(name)) for name in names]
    return b"".join(parts), names


def _random_node(node: memoryview) -> tuple[str, str] | None:
    """Return the input and the output of a node that draws normal numbers; None for any other."""
    found = {field: bytes(value).decode() for field, value, _ in _fields(node) if isinstance(value, memoryview)
             and field in {_NODE_INPUT, _NODE_OUTPUT, _NODE_OP}}  # fmt: skip
    if found.get(_NODE_OP) != "RandomNormalLike":
        return None
    return found[_NODE_INPUT], found[_NODE_OUTPUT]


def _cut(noise: str, like: str, output: str) -> list[bytes]:
    """Return the nodes that give `output` the shape of `like` and the first numbers of `noise`."""
    shape, count, flat = (f"{noise}.{part}" for part in ("shape", "count", "flat"))
    return [
        _node("Shape", [like], shape),
        _node("ReduceProd", [shape], count),
        _node("Slice", [noise, _STARTS, count], flat),
        _node("Reshape", [flat, shape], output),
    ]


def _node(operator: str, inputs: list[str], output: str) -> bytes:
    """Return a NodeProto without attributes; what it leaves out has the default of the operator."""
    return b"".join(
        [
            *(_message(_NODE_INPUT, name.encode()) for name in inputs),
            _message(_NODE_OUTPUT, output.encode()),
            _message(_NODE_OP, operator.encode()),
        ]
    )


def _zero(name: str) -> bytes:
    """Return the TensorProto of the vector [0] of int64."""
    return _number(1, 1) + _number(2, _INT64) + _message(8, name.encode()) + _message(9, bytes(8))


def _vector(name: str) -> bytes:
    """Return the ValueInfoProto of a float32 vector of any length."""
    shape = _message(1, _message(2, f"{name}.length".encode()))
    tensor = _number(1, _FLOAT) + _message(2, shape)
    return _message(1, name.encode()) + _message(2, _message(1, tensor))


def _number(field: int, value: int) -> bytes:
    """Return a number field of a protobuf message."""
    return _varint(field << 3) + _varint(value)


def _message(field: int, value: bytes) -> bytes:
    """Return a field of bytes of a protobuf message."""
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Return a number as protobuf writes it, seven bits a byte."""
    out = bytearray()
    while value > _LOW_BITS:
        out.append(value & _LOW_BITS | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(message: memoryview) -> Iterator[tuple[int, "int | memoryview", memoryview]]:
    """Yield number, value and raw bytes of each field of a protobuf message."""
    place = 0
    while place < len(message):
        start = place
        key, place = _read_varint(message, place)
        kind = key & 7
        value: int | memoryview
        if kind == 0:
            value, place = _read_varint(message, place)
        elif kind in _WIDTHS or kind == _BYTES:
            if kind == _BYTES:
                size, place = _read_varint(message, place)
            else:
                size = _WIDTHS[kind]
            value = message[place : place + size]
            place += size
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if place > len(message):
            raise ValueError("the bytes end inside a field")
        yield key >> 3, value, message[start:place]


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number at `place`, and the place behind it."""
    value = shift = 0
    while True:
        if place >= len(message):
            raise ValueError("the bytes end inside a number")
        byte = message[place]
        place += 1
        value |= (byte & _LOW_BITS) << shift
        shift += 7
        if byte <= _LOW_BITS:
            return value, place
