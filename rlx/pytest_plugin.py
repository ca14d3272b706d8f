"""The pytest plug-in of rlx: an application tests that its own graphs keep their results and their speed.

pytest imports this module in every project of an environment that has rlx. It therefore imports nothing else of rlx
until a test asks for the fixture or the command line for a recording.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rlx.regress.application import Application

_APPLICATION: pytest.StashKey[Application] = pytest.StashKey()
_HEADER = "rlx_header"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options; without one of the first two, tests check results and measure nothing."""
    # pytest rewrites the assertions of every package that is installed with a plug-in. Those of rlx gain nothing by it,
    # and its first import would take a second longer. There is no public way to say so; without this one it is slower.
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("rlx")
    group = parser.getgroup("rlx", "regressions of rlx graphs (fixture rlx_regress)")
    group.addoption(
        "--rlx-baseline", metavar="FILE", help="compare graphs with their newest recording in FILE"
    )
    group.addoption("--rlx-record", metavar="FILE", help="append a recording of graphs to FILE")
    group.addoption(
        "--rlx-processes",
        metavar="N",
        type=int,
        default=5,
        help="fresh processes that time each graph; 0 compares results alone (5)",
    )
    group.addoption(
        "--rlx-min-effect",
        metavar="PART",
        type=float,
        default=0.05,
        help="the least change of a time that counts, as a part of it (0.05)",
    )
    group.addoption(
        "--rlx-fail-on",
        metavar="WHAT",
        default="changed,slower",
        help="what fails a test, as --fail-on of rlx regress compare (changed,slower)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reads the baseline and begins the recording, where the command line asks for one."""
    if config.option.rlx_baseline or config.option.rlx_record:
        _application(config)


def _application(config: pytest.Config) -> Application:
    if _APPLICATION not in config.stash:
        from rlx.errors import RlxError, install_line

        try:
            from rlx.regress.application import Application, MeasureSettings
        except ModuleNotFoundError as error:
            hint = install_line(".[regress]")
            raise pytest.UsageError(f"rlx_regress: {error}; {hint}") from error

        option = config.option
        baseline, record = (
            Path(name) if name else None for name in (option.rlx_baseline, option.rlx_record)
        )
        worker = getattr(config, "workerinput", None)
        try:
            settings = MeasureSettings.of(
                baseline, record, option.rlx_processes, option.rlx_min_effect, option.rlx_fail_on
            )
            header = None if worker is None else worker.get(_HEADER)
            config.stash[_APPLICATION] = Application(settings, header)
        except (RlxError, OSError) as error:
            raise pytest.UsageError(f"rlx_regress: {error}") from error
    return config.stash[_APPLICATION]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist which recording its lines belong to."""
    application = node.config.stash.get(_APPLICATION, None)
    if application is not None:
        node.workerinput[_HEADER] = application.header


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Ends the recording; a worker leaves that to the process that began it."""
    application = session.config.stash.get(_APPLICATION, None)
    if application is not None and not hasattr(session.config, "workerinput"):
        application.close()


@pytest.fixture
def rlx_regress(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Checks a compiled graph: ``rlx_regress(compiled, *inputs, tolerance=None)`` gives its outputs.

    The graph runs once, and its outputs are compared with the reference in float64. With ``--rlx-record`` it is also
    measured and recorded, with ``--rlx-baseline`` compared with a recording: the test fails if results changed or the
    graph became slower, and warns if that is uncertain. In a test that uses the fixture ``benchmark`` of
    pytest-benchmark, the findings are in ``benchmark.extra_info["rlx"]``.
    """
    application = _application(request.config)
    from rlx.regress.application import RegressWarning

    benchmark = (
        request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    )
    calls = 0

    def check(compiled: Any, *inputs: Any, tolerance: float | None = None) -> list[Any]:
        nonlocal calls
        calls += 1
        name = request.node.nodeid.rpartition("/")[2]
        single = application.look(
            name if calls == 1 else f"{name} call {calls}", compiled, inputs, tolerance
        )
        if benchmark is not None:
            benchmark.extra_info.setdefault("rlx", []).append(single.figures)
        for text in single.warnings:
            warnings.warn(text, RegressWarning, stacklevel=2)
        if single.failures:
            pytest.fail("\n".join(single.failures), pytrace=False)
        return single.outputs

    return check
