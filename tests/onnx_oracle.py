"""One ONNX node run by onnxruntime: what rlx's ops of the same meaning are compared with."""

import numpy as np
import onnx
import onnxruntime


def run_node(kind, inputs, outputs=1, opset=22, **attrs):
    """The results of a node.

    Args:
        kind: Its operator.
        inputs: Arrays; None for an absent one.
        outputs: Number of results.
        opset: Version of the operator set.
        **attrs: Its attributes.
    """
    helper = onnx.helper
    names = [f"x{at}" if array is not None else "" for at, array in enumerate(inputs)]
    results = [f"y{at}" for at in range(outputs)]
    feeds = {n: a for n, a in zip(names, inputs, strict=True) if n}
    graph = helper.make_graph(
        [helper.make_node(kind, names, results, **attrs)],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(a) for a in session.run(None, feeds)]
