"""Files with something changed at random: single bytes, fields of JSON values, fields of protobuf messages."""

import copy
import struct

TELLING = (0, 1, 2, 127, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip
PATHS = ("w.bin", "../secret.bin", "linked/secret.bin", "/etc/hostname", "..", ".", "", "w\0", "x" * 5000)  # fmt: skip
TEXTS = ("", "x", "\0", "%s", "é" * 300, "input", "ai.onnx.ml", *PATHS)
FLOATS = (0.0, -1.0, 1e38, 1e300, float("inf"), float("nan"))


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def bytes_changed(raw, rng, header=None):
    """A file with one to three places changed, cut out, repeated, copied elsewhere or made huge numbers.

    Args:
        raw: The file.
        rng: A NumPy generator.
        header: So many bytes at its beginning get most of the changes.
    """
    result, header = bytearray(raw), min(len(raw), header or len(raw))
    for _ in range(rng.integers(1, 4)):
        index = int(rng.integers((header if rng.random() < 0.9 else len(result)) or 1))
        size = int(rng.integers(1, 40))
        match rng.integers(8):
            case 0:
                result[index : index + 1] = rng.bytes(1)
            case 1:
                result[index : index + 1] = bytes(
                    b ^ 1 << int(rng.integers(8)) for b in result[index : index + 1]
                )
            case 2:
                del result[index : index + size]
            case 3:
                result[index:index] = result[index : index + size]
            case 4:
                result[index : index + 8] = struct.pack("<Q", pick(rng, TELLING))
            case 5:
                result[index : index + 4] = b"\xff\xff\xff\x7f"  # as a varint 2^28 - 1
            case 6:
                source = int(rng.integers(len(result) or 1))
                result[index : index + size] = result[source : source + size]
            case _:
                del result[index:]
    return bytes(result)


# --- JSON -------------------------------------------------------------------------------------------


def json_changed(value, rng):
    """JSON values with one to three of them replaced, left out, repeated or exchanged."""
    result = copy.deepcopy(value)
    for _ in range(1 + int(rng.integers(3)) * int(rng.integers(2))):
        places = [(result, key) for key in _keys(result)]
        for holder, key in places:
            places += [(holder[key], inner) for inner in _keys(holder[key])]
        if not places:
            break
        holder, key = pick(rng, places)
        other, where = pick(rng, places)
        match rng.integers(7):
            case 0:
                del holder[key]
            case 1:
                holder[key] = copy.deepcopy(other[where])
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3 | 4 if isinstance(holder[key], int):
                holder[key] += pick(rng, (-2, -1, 1, 2, 7))
            case _:
                any_ = (None, True, [], {}, [[]], {"$at": 0}, {"$graph": {}})
                holder[key] = pick(rng, (*TELLING, *TEXTS, *FLOATS, *any_, -1))
    return result


def _keys(value):
    return (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )


# --- protobuf ---------------------------------------------------------------------------------------


def message_changed(message, rng):
    """A protobuf message with one to three fields changed, by what their types allow.

    Names get those of other things (so that graphs become cyclic), numbers become huge, parts are left
    out, repeated, exchanged or replaced by others of their type, tensors move to other files.
    """
    result = type(message)()
    result.CopyFrom(message)
    for _ in range(rng.integers(1, 4)):
        places = list(_fields(result))
        if not places:
            break
        holder, field = pick(rng, places)
        if holder.DESCRIPTOR.name == "TensorProto" and rng.random() < 0.2:
            _move_outside(holder, rng)
        elif field.is_repeated:
            _change_list(holder, field, rng, places)
        else:
            _change_one(holder, field, rng, places)
    return result


def _fields(message):
    for field, value in message.ListFields():
        yield message, field
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for item in value if field.is_repeated else (value,):
                yield from _fields(item)


def _move_outside(tensor, rng):
    tensor.data_location = 1
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=pick(rng, PATHS))
    for key in ("offset", "length"):
        if rng.random() < 0.3:
            tensor.external_data.add(key=key, value=str(pick(rng, (*TELLING, -1, "x"))))


def _others(places, field):
    """The values of fields of one type anywhere in the message."""
    results = []
    for holder, other in places:
        if (other.type, other.message_type) == (field.type, field.message_type):
            value = getattr(holder, other.name)
            results += list(value)[:50] if other.is_repeated else [value]
    return results


def _new(field, rng, places):
    """A value for a field, or None where its type is a message of which there is no other."""
    others = _others(places, field)
    if field.cpp_type == field.CPPTYPE_MESSAGE or (others and rng.random() < 0.5):
        return pick(rng, others) if others else None
    if field.cpp_type == field.CPPTYPE_STRING:
        text = pick(rng, TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return pick(rng, FLOATS)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return pick(rng, [value.number for value in field.enum_type.values])
    bits = 64 if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
    low = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    number = pick(rng, (*TELLING, -1, -2, 3, 17, 22)) % (1 << bits)
    return number if low or number < 1 << (bits - 1) else number - (1 << bits)


def _change_one(holder, field, rng, places):
    new = _new(field, rng, places)
    if new is None or rng.random() < 0.2:
        holder.ClearField(field.name)
    elif field.cpp_type == field.CPPTYPE_MESSAGE:
        new = copy.deepcopy(new)
        getattr(holder, field.name).CopyFrom(new)
    else:
        setattr(holder, field.name, new)


def _change_list(holder, field, rng, places):
    items = getattr(holder, field.name)
    index = int(rng.integers(len(items)))
    message = field.cpp_type == field.CPPTYPE_MESSAGE
    kind, new = rng.integers(4), copy.deepcopy(_new(field, rng, places))
    if kind == 0:
        del items[index]
    elif kind == 1:  # the order is that of the computation
        stored = copy.deepcopy(list(items))
        rng.shuffle(stored)
        del items[:]
        items.extend(stored)
    elif kind == 2 and new is not None:
        items.extend([new] * pick(rng, (1, 2, 40)))
    elif new is not None:
        if message:
            items[index].CopyFrom(new)
        else:
            items[index] = new
