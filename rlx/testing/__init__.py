"""The conformance kit: whether a device computes what the operations mean, and a backend keeps its promises.

Example:
    >>> import rlx.testing
    >>> report = rlx.testing.conformance("cpu", ops=["relu"], most=4)
    >>> report.counts()["right"], report.faults
    (4, ())
"""

from rlx.ops.conformance_cases import Case
from rlx.testing.backend_contract import PROMISES, Promise, check_backend
from rlx.testing.conformance import Report, Verdict, cases, conformance, verdict_of

__all__ = [
    "PROMISES", "Case", "Promise", "Report", "Verdict", "cases", "check_backend", "conformance", "verdict_of",
]  # fmt: skip
