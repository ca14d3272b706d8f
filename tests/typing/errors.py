"""Mistakes that type checkers have to find.

A line that is wrong says so: the code of mypy's error and the rule of pyright's. No other line may be wrong.
"""

import rlx
from rlx import Graph, Node, ops


def unknown_names(g: Graph, x: Node) -> None:
    g.geluu(x)  # error: attr-defined, reportAttributeAccessIssue
    ops.geluu(x)  # error: attr-defined, reportAttributeAccessIssue
    rlx.ops.soft_max(x)  # error: attr-defined, reportAttributeAccessIssue
    x.gelu()  # error: attr-defined, reportAttributeAccessIssue
    rlx.compyle(g)  # error: attr-defined, reportAttributeAccessIssue
    _ = rlx.DType.F8  # error: attr-defined, reportAttributeAccessIssue


def parameters_that_do_not_fit(g: Graph, x: Node) -> None:
    g.gelu(1.5, nope=3)  # error: call-arg, reportCallIssue
    ops.gelu(x, nope=3)  # error: call-arg, reportCallIssue
    g.softmax(x, -1, 2)  # error: call-arg, reportCallIssue
    g.matmul(x)  # error: call-arg, reportCallIssue
    g.argmax(x)  # error: call-arg, reportCallIssue
    g.while_(g, g, x, 10, max_trip=3)  # error: call-arg, reportCallIssue


def functions_of_signals(x: Node) -> None:
    rlx.signal.stft(x, 64, hopp=32)  # error: call-overload, reportCallIssue
    rlx.signal.stft(x, 64, 32, device="cpu")  # error: call-overload, reportArgumentType
    rlx.signal.mel_filter_bank(16000, 400)  # error: attr-defined, reportAttributeAccessIssue


def operands_of_other_types(g: Graph, x: Node) -> None:
    g.gelu("x")  # error: arg-type, reportArgumentType
    g.add(x, None)  # error: arg-type, reportArgumentType
    g.add(x, {"y": 1.0})  # error: arg-type, reportArgumentType
    g.concat(x, 0)  # error: arg-type, reportArgumentType
    g.set_outputs([g.gelu(x), 3])  # error: list-item, reportArgumentType
    _ = x + "one"  # error: operator, reportOperatorIssue
    x["rows"]  # error: index, reportArgumentType


def settings_of_other_types(g: Graph, x: Node) -> None:
    g.softmax(x, axis="last")  # error: arg-type, reportArgumentType
    g.reshape(x, "2, 3")  # error: arg-type, reportArgumentType
    g.layer_norm(x, eps="small")  # error: arg-type, reportArgumentType
    g.pad(x, [[1, 1]], mode="mirror")  # error: arg-type, reportArgumentType
    g.fused_matmul_bias_act(x, x, x, act="relu6")  # error: arg-type, reportArgumentType
    g.lstm(x, x, x, direction="both")  # error: arg-type, reportArgumentType
    g.conv2d(x, x, padding="same")  # error: arg-type, reportArgumentType
    g.if_(x > 0.0, x, x)  # error: arg-type, reportArgumentType
    g.input("x", 2.5)  # error: arg-type, reportArgumentType


def results_of_other_types(g: Graph, x: Node) -> None:
    g.gelu(g.topk(x, 2))  # error: arg-type, reportArgumentType
    _a, _b, _c = g.topk(x, 2)  # error: misc, reportAssignmentType
    _shape: list[int] = x.shape  # error: assignment, reportAssignmentType
    rlx.compile(x)  # error: arg-type, reportArgumentType
