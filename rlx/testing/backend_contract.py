"""The contract of every backend besides right results: handles, params, clones, extents, errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.backends.registry import absent, devices_of
from rlx.device.names import Device, DeviceLike
from rlx.errors import CompileError, DeviceError, DeviceMemoryError, InputError, first_line
from rlx.ir.graph import Graph
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session

_X = np.arange(12, dtype=np.float32).reshape(4, 3)
_W = np.array([[1, 0], [0, 1], [1, 1]], np.float32)


class Promise(NamedTuple):
    """One promise.

    Attributes:
        name: Its name in reports.
        check: Takes the device; raises AssertionError where it is not kept.
        runs: Whether it runs graphs; a backend without ``capabilities.run_slots`` promises the others alone.
    """

    name: str
    check: Callable[[DeviceLike], None]
    runs: bool = True


def _graph() -> Graph:
    g = Graph("promises")
    x, w = g.input("x", (4, 3)), g.param("w", (3, 2))
    g.set_outputs([x @ w, g.relu(x - 5.0)])
    return g


def _compiled(device: DeviceLike, **options: Any) -> CompiledGraph:
    return Session(device, options=CompileOptions(**options)).compile(_graph(), {"w": _W})


def _expected(x: Any, w: Any = _W) -> list[Any]:
    return [x @ w, np.maximum(x - 5, 0)]


def _same(got: Any, expected: Any, what: str) -> None:
    for i, (first, other) in enumerate(zip(got, expected, strict=True)):
        if not np.allclose(first, other, rtol=1e-5, atol=1e-5):
            raise AssertionError(
                f"{what}: output {i} is {np.asarray(first).tolist()}, not {np.asarray(other).tolist()}"
            )


def _listed(device: DeviceLike) -> None:
    name = Device.parse(device).backend
    result = devices_of(name)
    if not result:
        raise AssertionError(f"no device of {name}: {absent(name)}")
    if [info.index for info in result] != list(range(len(result))):
        raise AssertionError("the indices of devices count from 0")


def _runs(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        _same(cg.run({"x": _X}), _expected(_X), "run")
        views = cg.run_slots(_X + 1)
        _same(views, _expected(_X + 1), "run_slots")
        again = cg.run_slots(_X)
        if any(first is not other for first, other in zip(views, again, strict=True)):
            raise AssertionError("run_slots gives the same views at every call")
        if any(view.flags.writeable for view in again):
            raise AssertionError("output views are read-only")


def _views(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        cg.input_views[0][...] = _X
        cg.run_slots(_X + 7)
        _same(cg.input_views, [_X], "arguments leave the input views as they are")
        _same(cg.run_slots(), _expected(_X), "a run on the input views")


def _strided(device: DeviceLike) -> None:
    wide = np.repeat(_X, 2, axis=1)
    with _compiled(device) as cg:
        _same(cg.run_slots(wide[:, ::2]), _expected(_X), "an argument with strides")


def _chosen_outputs(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        _same(cg.run_read_outputs({"x": _X}, [1]), _expected(_X)[1:], "one output")
        _same([cg.read_output_row(0, 2)], [_expected(_X)[0][2]], "a row of an output")


def _params(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        args = _W.copy()
        cg.set_param("w", args)
        args[...] = 99
        _same(cg.run_slots(_X), _expected(_X), "a param is copied when it is set")
        cg.set_param("w", 2 * _W)
        _same(cg.run_slots(_X), _expected(_X, 2 * _W), "a param that is set again")


def _unread_params(device: DeviceLike) -> None:
    g = Graph("unread")
    g.param("unread", (3,), value=_X[0])
    g.set_outputs([g.input("x", (4, 3)) @ (g.param("w", (3, 2), value=_W) * 2.0)])
    with Session(device).compile(g) as cg, pickle.loads(pickle.dumps(cg)) as copied:
        for item in (cg, copied):
            _same(item.run({"x": _X}), [_X @ (2 * _W)], "params that no kernel reads")


def _clones(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        other = cg.clone()
        views = cg.run_slots(_X)
        other.run_slots(_X + 3)
        _same(views, _expected(_X), "a clone has memory of its own")
        cg.set_param("w", 3 * _W)
        _same(other.run_slots(_X), _expected(_X, 3 * _W), "a clone shares the params")
        other.close()
        _same(cg.run_slots(_X), _expected(_X, 3 * _W), "closing a clone leaves the other working")


def _handles(device: DeviceLike) -> None:
    g = Graph("counter")
    total, step = g.input("total", (3,)), g.input("step", (3,))
    g.set_outputs([total + step])
    with Session(device).compile(g) as cg:
        cg.bind_gpu_handle("total", np.array([1, 2, 3], np.float32))
        cg.set_gpu_handle_feed("total", 0)
        for _ in range(3):
            cg.run_slots(np.ones(3, np.float32))
        _same(
            [cg.read_gpu_handle("total")], [np.array([4, 5, 6], np.float32)], "a handle that is fed"
        )


def _pipelined(device: DeviceLike) -> None:
    sets = [{"x": _X + i} for i in range(3)]
    with _compiled(device) as cg:
        for index, item in enumerate(cg.run_pipelined(sets)):
            _same(item, _expected(_X + index), f"set {index} of run_pipelined")
        cg.commit_no_wait({"x": _X})
        cg.sync_pending()
        _same(cg.run_slots(_X), _expected(_X), "a run after commit_no_wait")


def _extent(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        cg.set_active_extent((3, 4))
        results = [view[:3] for view in cg.run_slots(_X)]
        _same(results, [item[:3] for item in _expected(_X)], "three of four rows")
        cg.set_active_extent(None)
        _same(cg.run_slots(_X), _expected(_X), "all rows again")


def _wrong_arguments(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        for wrong in ((_X[:2],), (), (_X, _X)):
            try:
                cg.run_slots(*wrong) if wrong else cg.run({})
            except InputError:
                continue
            raise AssertionError(f"arguments of shapes {[item.shape for item in wrong]} are taken")


def _memory_limit(device: DeviceLike) -> None:
    try:
        _compiled(device, memory_limit=8).close()
    except DeviceMemoryError:
        return
    raise AssertionError("memory_limit is not honoured")


def _precision(device: DeviceLike) -> None:
    for precision in ("f32", "tf32", "bf16", "f16"):
        try:
            _compiled(device, precision=precision).close()
        except CompileError as error:
            if precision == "f32" or (precision not in str(error) and "half" not in str(error)):
                raise AssertionError(
                    f"precision {precision!r} is refused without its name"
                ) from error


def _empty(device: DeviceLike) -> None:
    g = Graph("empty")
    x = g.input("x", (0, 3))
    g.set_outputs([g.sum(x, axes=(0,)), x * 2.0])
    with Session(device).compile(g) as cg:
        _same(
            cg.run_slots(np.zeros((0, 3), np.float32)), [np.zeros(3), np.zeros((0, 3))], "no rows"
        )


def _runs_or_refuses(device: DeviceLike) -> None:
    with _compiled(device) as cg:
        if cg.capabilities.run_slots:
            return
        for run in (lambda: cg.run({"x": _X}), lambda: cg.run_slots(_X), cg.run_slots):
            try:
                run()
            except DeviceError:
                continue
            raise AssertionError("a device that runs nothing raises DeviceError in every run")


PROMISES = (
    Promise("devices are listed", _listed, runs=False),
    Promise("a device that runs nothing says so", _runs_or_refuses, runs=False),
    Promise("runs, and the same views at every call", _runs),
    Promise("input views", _views),
    Promise("arguments with strides", _strided),
    Promise("chosen outputs and rows", _chosen_outputs),
    Promise("params are copied and can be set again", _params),
    Promise("params that no kernel reads", _unread_params),
    Promise("clones", _clones),
    Promise("handles and feeds", _handles),
    Promise("runs that do not wait", _pipelined),
    Promise("the active extent", _extent),
    Promise("wrong arguments are refused", _wrong_arguments, runs=False),
    Promise("memory_limit", _memory_limit, runs=False),
    Promise("precision", _precision, runs=False),
    Promise("empty tensors", _empty),
)


def check_backend(device: DeviceLike) -> None:
    """Checks every promise on a device.

    Args:
        device: The device.

    Raises:
        AssertionError: Lists the promises that are not kept.

    Example:
        >>> check_backend("cpu")
    """
    broken = []
    try:
        with _compiled(device) as compiled:
            runs = compiled.capabilities.run_slots
    except Exception:
        runs = True  # the promises name the error
    for promise in PROMISES:
        if promise.runs and not runs:
            continue
        try:
            promise.check(device)
        except Exception as error:
            broken.append(f"- {promise.name}: {type(error).__name__}: {first_line(error)}")
    if broken:
        lines = "\n".join(broken)
        raise AssertionError(
            f"{len(broken)} of {len(PROMISES)} promises are not kept on {device}:\n{lines}"
        )
