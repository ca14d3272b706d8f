"""Runs models made from the operators' schemas on rlx and ONNX Runtime, in a process of its own, and compares.

``onnx_schemas.py FIRST COUNT FOLDER`` prints what came of each seed from FIRST on; ``onnx_schemas.py sweep`` the same
as one sum, and goes on where ONNX Runtime ends the process, as it does now and then: what seed it was, and on whose
side, stands in FOLDER/seed, and rlx runs first. ``onnx_schemas.py show SEED`` prints a model and both outcomes.
"""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnx_differences import accepted
from schema_graphs import SchemaModel

import rlx

ADDRESSES = 4 << 30  # bytes; what the libraries map at start counts
SECONDS = 5.0
JUDGED = ("differ", "only rlx runs")
ENVIRONMENT = os.environ | {
    "RLX_CALIBRATION": "off",
    "RLX_CACHE_BYTES": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
LIMITS = {"elements": 1 << 21, "nodes": 4000, "seconds": SECONDS}
OPTIONS = rlx.CompileOptions(memory_limit=64 << 20)
# Of the largest number compared: rounding of sums in another order and of other approximations.
TOLERANCE = {"f2": 4e-3, "f4": 2e-5, "f8": 1e-11}


class OrtRefusal(Exception):
    """ONNX Runtime did not take or run a model; its text."""


def run_rlx(case):
    with (
        rlx.limits(**LIMITS),
        rlx.onnx.Model(case.proto.SerializeToString(), "cpu", options=OPTIONS) as model,
    ):
        return [np.array(item) for item in model.run(case.feeds)]


def run_onnxruntime(case):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            case.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        result = session.run(None, case.feeds)
    except Exception as error:  # its own classes, and those of its Python part
        raise OrtRefusal(" ".join(str(error).split())) from None
    if not all(isinstance(item, np.ndarray) for item in result):
        raise OrtRefusal("results that are no tensors")
    return result


def difference(result, expected):
    """Describes the difference between two lists of results, or None."""
    if len(result) != len(expected):
        return f"{len(result)} results, not {len(expected)}"
    for index, (first, other) in enumerate(zip(result, expected, strict=True)):
        if first.dtype != other.dtype:
            return f"dtype of result {index}: {first.dtype}, not {other.dtype}"
        if first.shape != other.shape:
            return f"shape of result {index}: {first.shape}, not {other.shape}"
        said = _values(first, other)
        if said:
            return f"{said} of result {index}, {first.dtype}{list(first.shape)}"
    return None


def _values(first, other):
    if first.dtype.kind != "f":
        wrong = first != other
        kind = "values"
    else:
        with np.errstate(all="ignore"):
            a, b = first.astype("f8"), other.astype("f8")
            scale = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
            near = np.abs(a - b) <= TOLERANCE[first.dtype.str[1:]] * (scale + np.abs(b))
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
        kind = (
            "values"
            if np.isfinite(a[wrong]).all() and np.isfinite(b[wrong]).all()
            else "NaN or infinity"
        )
        if not wrong.any():
            wrong = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
            kind = "sign of zero"
    if not wrong.any():
        return None
    indices = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{kind}: {first[indices]}, not {other[indices]} at {list(indices)} ({int(wrong.sum())} of {wrong.size})"


def pairs_saturate(case):
    """Returns whether ONNX Runtime may saturate sums of two products at 16 bits, as for u8 times i8 without VNNI."""
    if {"MatMulInteger", "ConvInteger"}.isdisjoint(case.ops):
        return False
    sizes = {
        kind: max(
            (int(abs(a.astype(int)).max()) for a in case.operands() if a.dtype == kind and a.size),
            default=0,
        )
        for kind in ("u1", "i1")
    }
    return 2 * sizes["u1"] * sizes["i1"] > 32767


def outcome(case, note=lambda phase: None):
    """Returns the outcome of a model: a name, and a text for a fault or a difference.

    Args:
        case: The model.
        note: Told which of the two runs next.
    """
    note("rlx")
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    refused, result = None, None
    try:
        result = run_rlx(case)
    except rlx.RlxError as error:
        refused = error
    except Exception as error:
        return "fault", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    note("onnxruntime")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also inside of C++
    signal.setitimer(signal.ITIMER_PROF, 4 * SECONDS)
    try:
        expected = run_onnxruntime(case)
    except OrtRefusal as error:
        if refused is not None:
            return "both refuse", ""
        if re.search(
            "NOT_IMPLEMENTED|is not a registered function|not support(ed)? |data type is not supported|not supported\\.",
            str(error),
        ):
            return "not in ONNX Runtime", ""
        return "only rlx runs", str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if refused is not None:
        text = " ".join(str(refused).split())
        return "only ONNX Runtime runs", f"{type(refused).__name__}: {text}"
    said = difference(result, expected)
    if said and pairs_saturate(case):
        said = difference(result, ReferenceEvaluator(case.proto).run(None, case.feeds))
    return ("differ", said) if said else ("equal", "")


def _too_slow(*_):
    raise InterruptedError(f"not done after {SECONDS} s of the processor's time")


def main(first, count, folder):
    """Prints a line for each seed."""
    import resource  # there is none on Windows

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seen = os.open(Path(folder) / "seed", os.O_CREAT | os.O_WRONLY)
    for seed in range(first, first + count):
        os.pwrite(seen, f"{seed:<20} {'making it':<12}".encode(), 0)
        case = SchemaModel(np.random.default_rng(seed))
        name, text = outcome(
            case, lambda phase, seed=seed: os.pwrite(seen, f"{seed:<20} {phase:<12}".encode(), 0)
        )
        row = accepted(case, name, text) if name in JUDGED else None
        print(json.dumps([seed, name, case.ops, case.opset, text, row and row.why]), flush=True)


class SweepResult:
    """The outcomes of many models, from ``sweep``.

    Attributes:
        counts: How many had each outcome.
        wrong: A line for each that is a fault.
        accepted: How many were accepted for each reason.
        refused: How often rlx refused what ONNX Runtime runs, by operator and message.
        equal: How often an operator was in a model whose results are equal.
    """

    def __init__(self):
        self.counts, self.accepted = Counter(), Counter()
        self.refused, self.equal, self.wrong = Counter(), Counter(), []

    def add(self, seed, name, ops, opset, text, why):
        self.counts[name] += 1
        if name == "only ONNX Runtime runs":
            self.refused[f"{'+'.join(ops)}: {text.split(' node: ')[0][:150]}"] += 1
        elif name == "equal":
            self.equal.update(ops)
        elif why is not None:
            self.accepted[why] += 1
        elif name in ("fault", *JUDGED):
            self.wrong.append(f"seed {seed}: {'+'.join(ops)} {opset}: {name}: {text[:400]}")


def sweep(first, count, folder, program=__file__):
    """Runs ``count`` seeds in processes that are started anew when ONNX Runtime ends one."""
    result, last = SweepResult(), first + count
    while first < last:
        command = [
            sys.executable,
            "-W",
            "ignore",
            str(program),
            str(first),
            str(last - first),
            str(folder),
        ]
        done = subprocess.run(
            command,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120 + count,
            check=False,
        )
        for line in done.stdout.splitlines():
            result.add(*json.loads(line))
        if done.returncode == 0:
            break
        seed, phase = (Path(folder) / "seed").read_text().split(maxsplit=1)
        if phase.strip() == "onnxruntime":
            result.counts["ONNX Runtime ends"] += 1
        else:
            said = f"{phase.strip()} ended with {done.returncode}: {done.stderr[-600:]}"
            result.wrong.append(f"seed {seed}: {said}")
        first = int(seed) + 1
    return result


def show(seed):
    case = SchemaModel(np.random.default_rng(seed))
    print(case.proto)
    print(case.feeds)
    for run in (run_rlx, run_onnxruntime):
        try:
            print(run.__name__, run(case))
        except (rlx.RlxError, OrtRefusal) as error:
            print(run.__name__, f"{type(error).__name__}: {error}")
    print(outcome(case))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "show":
        show(int(sys.argv[2]))
    elif sys.argv[1] == "sweep":
        print(json.dumps(vars(sweep(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
