"""The backend suite of the onnx package: its cases, run by rlx.onnx.Model and compared by the suite's own rule."""

import re
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from selection import SELECTION

import rlx
from rlx.device.names import info_of
from rlx.ir.extended import plain

EXCLUDED = Path(__file__).with_name("onnx_excluded.txt")


def _compared(array):
    """An array as the suite's own rule can compare it, which knows bfloat16 and no narrower types."""
    return array if array.dtype.name == "bfloat16" else plain(array)


class SuiteCase(NamedTuple):
    """A model, and pairs of inputs and expected outputs."""

    name: str
    model: object  # bytes or a path
    sets: object  # a function that gives the pairs
    rtol: float
    atol: float


def _array(item):
    if isinstance(item, onnx.TensorProto):
        item = numpy_helper.to_array(item)
    if item is None or isinstance(item, (list, tuple)):
        raise rlx.UnsupportedOpError("the case's data is a sequence or an optional")
    return np.asarray(item)


@cache
def node_cases():
    """The cases of kind "node", by name."""
    with warnings.catch_warnings():
        # Making the cases divides by zero here and there.
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    return {
        case.name: SuiteCase(
            case.name,
            case.model.SerializeToString(),
            lambda sets=case.data_sets: [tuple([list(i), list(o)]) for i, o in sets],
            case.rtol,
            case.atol,
        )
        for case in loaded
    }


def _read(path, model, names):
    folder = Path(path)
    results = []
    for index in range(len(names)):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{model}_{index}.pb").read_bytes())
        results.append(numpy_helper.to_array(tensor))
    return results


@cache
def file_cases():
    """The cases of the kinds that are files: simple, pytorch-operator, pytorch-converted, real."""
    results = {}
    for kind in ("simple", "pytorch-operator", "pytorch-converted", "real"):
        for case in load_model_tests(kind=kind):
            name = f"{kind}:{case.name}"
            if case.model_dir:
                path = Path(case.model_dir) / "model.onnx"
                sets = lambda path=path: _sets(path)  # noqa: E731
            else:
                path = Path(onnx.__file__).parents[1] / case.url
                sets = lambda path=path, case=case: _dummy(path, case)  # noqa: E731
            results[name] = SuiteCase(name, str(path), sets, case.rtol, case.atol)
    return results


def _sets(path):
    model = onnx.load(path)
    pairs = []
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    for folder in sorted(path.parent.glob("test_data_set_*")):
        if any(i.type.WhichOneof("value") != "tensor_type" for i in inputs):
            raise rlx.UnsupportedOpError("the case's data is a sequence or an optional")
        pairs.append((_read(folder, "input", inputs), _read(folder, "output", model.graph.output)))
    return pairs


def _dummy(path, case):
    """The real topologies have made-up inputs; the expected outputs lie beside them."""
    model = onnx.load(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(i, seed=0, name=case.model_name, random=False)
        for i in model.graph.input
        if i.name not in weights
    ]
    outputs = []
    for index in range(len(model.graph.output)):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.with_name(f"{path.stem}_output_{index}.pb").read_bytes())
        outputs.append(numpy_helper.to_array(tensor))
    return [(inputs, outputs)]


def run_with_values(model, device, inputs):
    """Runs a model. Inputs that decide axes and attributes, which are constants in real models, are fixed."""
    values, rest = {}, dict(inputs)
    while True:
        try:
            with rlx.onnx.Model(model, device, values=values) as opened:
                return opened.run(rest)
        except rlx.InputError as error:
            decide = re.search("decide axes or attributes: (.*)", str(error))
            if decide is None:
                raise
            values |= {name: rest.pop(name) for name in decide[1].split(", ")}


def run_case(case, device):
    """Runs a case and compares its results; raises where they differ."""
    with rlx.onnx.Model(case.model, device) as opened:
        names = [port.name for port in opened.inputs]
    for value, wanted in case.sets():
        feeds = dict(zip(names, map(_array, value), strict=False))
        expected, got = (
            [_array(item) for item in wanted],
            run_with_values(case.model, device, feeds),
        )
        assert [item.dtype for item in got] == [item.dtype for item in expected]
        got, expected = ([_compared(item) for item in each] for each in (got, expected))
        atol = case.atol
        if re.search("dft|stft", case.name):
            # The suite's 1e-7 fails on the rounding of f32 in sums of large terms.
            atol = max(atol, 1e-6 * max(float(np.abs(w).max()) for w in expected))
        Runner.assert_similar_outputs(expected, got, rtol=case.rtol, atol=atol)


@cache
def exclusions():
    """The committed list: (pattern of names, devices it holds for, reason)."""
    rows = []
    for line in EXCLUDED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, devices, reason = line.split(None, 2)
            rows.append((re.compile(pattern), devices, reason))
    return rows


@cache
def on_a_gpu(device):
    """Returns whether a device is webgpu on a GPU, and not on a software adapter."""
    return (
        device == "webgpu" and rlx.is_available(device) and not info_of(rlx.Device(device)).software
    )


def excluded(name, device):
    """Why a case is left out on a device, or None."""
    names = {"all", device, "gpu"} if on_a_gpu(device) else {"all", device}
    for pattern, devices, reason in exclusions():
        if pattern.fullmatch(name) and names & set(devices.split(",")):
            return reason
    return None


def failures(cases, device):
    """The cases that are not excluded and do not pass, with the reason; and how many pass."""
    failed, passed = {}, 0
    for name, case in cases.items():
        if excluded(name, device) is not None:
            continue
        try:
            with SELECTION.sample(name, case):
                run_case(case, device)
            passed += 1
        except (AssertionError, rlx.RlxError) as error:
            failed[name] = f"{type(error).__name__}: {str(error).strip()[:300]}"
    return failed, passed
