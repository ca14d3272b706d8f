"""One ONNX node run by onnxruntime: what rlx's ops of the same meaning are compared with."""

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    NotImplemented as NotImplementedInOnnxRuntime,
)

# Versions of domains, and of those of their operators that came later.
VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 4, "TreeEnsemble": 5}


def node_model(kind, inputs, attrs, outputs=1, opset=22, domain="", weights=()):
    """A model of one node.

    Args:
        kind: Its operator.
        inputs: Arrays; None for an absent one.
        attrs: Its attributes; None for an absent one.
        outputs: Number of results; or for each its dtype where that can't be inferred, or whether it has
            a name.
        opset: Version of ONNX's operator set.
        domain: The operator's domain, and with a colon its version.
        weights: Places of operands that are weights.

    Returns:
        The model's bytes, and arrays by the names of its inputs.
    """
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    results = [f"y{index}" if want else "" for index, want in enumerate(wanted)]
    arguments = {n: np.asarray(a) for n, a in zip(names, inputs, strict=True) if n}
    retained = {f"x{weight}" for weight in weights}
    feeds = {name: array for name, array in arguments.items() if name not in retained}
    attrs = {name: value for name, value in attrs.items() if value is not None}
    graph = helper.make_graph(
        [helper.make_node(kind, names, results, domain=domain or None, **attrs)],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [_result(name, want) for name, want in zip(results, wanted, strict=True) if name],
        [numpy_helper.from_array(arguments[name], name) for name in sorted(retained)],
    )
    sets = [helper.make_opsetid("", opset)]
    if domain:
        sets.append(helper.make_opsetid(domain, VERSIONS.get(kind, VERSIONS[domain])))
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return model.SerializeToString(), feeds


def _result(name, want):
    if not isinstance(want, str):
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(want)), None
    )


def run_model(data, feeds, optimized=True):
    """The results of a model by onnxruntime, on one thread; not optimized, its nodes as they are."""
    try:
        session = _session(data, optimized, precise=True)
    except NotImplementedInOnnxRuntime:
        # Its precise mode turns weights of i8 into u8, also beside operands for which it has no kernel then.
        session = _session(data, optimized, precise=False)
    return [np.asarray(a) for a in session.run(None, feeds)]


def _session(data, optimized, precise):
    options = onnxruntime.SessionOptions()
    if precise:
        # Without it processors that lack VNNI saturate sums of u8 times i8.
        options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run_node(kind, inputs, outputs=1, opset=22, **attrs):
    """The results of a node of ONNX's own domain by onnxruntime; see ``node_model``."""
    return run_model(*node_model(kind, inputs, attrs, outputs, opset))
