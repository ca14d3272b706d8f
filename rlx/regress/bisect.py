"""The first commit that made a case slower or changed its results, found by halving."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.regress.commits import Checkout, Commit
from rlx.regress.installs import BuildError


@dataclass(frozen=True)
class Opinion:
    """The verdict on a commit.

    Attributes:
        bad: Whether it shows the regression; None where that can't be told, and the commit is skipped.
        reason: Why, in a few words.
    """

    bad: bool | None
    reason: str


# Compares a candidate with the good commit; both are Pythons of environments that have one of them each.
Judge = Callable[[Path, Path], Opinion]


@dataclass(frozen=True)
class BisectStep:
    """One commit that was looked at.

    Attributes:
        commit: The commit.
        opinion: The opinion on the commit.
        left: Commits of which one is the first bad one, after this step.
    """

    commit: Commit
    opinion: Opinion
    left: int

    def __str__(self) -> str:
        verdict = {True: "bad", False: "good", None: "skipped"}[self.opinion.bad]
        trials = math.ceil(math.log2(self.left)) if self.left else 0
        left = f"{self.left} left, about {trials} steps" if self.left > 1 else "found"
        return f"{verdict}: {self.commit} ({self.opinion.reason}; {left})"


@dataclass(frozen=True)
class BisectResult:
    """The end of a search.

    Attributes:
        commits: The first bad commit; several where skipped ones leave open which of them it is.
        steps: The steps in order.
    """

    commits: tuple[Commit, ...]
    steps: tuple[BisectStep, ...]


def first_bad(
    checkout: Checkout,
    good: Commit,
    bad: Commit,
    opinion_of: Callable[[Commit], Opinion],
    say: Callable[[str], None],
) -> BisectResult:
    """Finds the commit that turned good into bad.

    Args:
        checkout: Where the commits are.
        good: A commit without the regression, an ancestor of ``bad``.
        bad: A commit that has it.
        opinion_of: Looks at one commit.
        say: Is told each step.

    Raises:
        InputError: ``good`` is no ancestor of ``bad`` or ``bad`` itself, or ``bad`` is not bad.
    """
    if good == bad or not checkout.precedes(good, bad):
        raise InputError(
            "the good commit is no ancestor of the bad one",
            got=f"good {good}, bad {bad}",
            hint="to find an improvement, swap --good and --bad",
        )
    opinion = opinion_of(bad)
    if opinion.bad is None:
        raise InputError("the bad commit can't be judged", where=bad, got=opinion.reason)
    if not opinion.bad:
        raise InputError(
            "the bad commit does not differ from the good one",
            got=opinion.reason,
            expected=f"{bad.digest[:10]} to be worse than {good.digest[:10]}",
            hint="the good commit may show it already; else ask for more processes or a smaller effect",
        )
    # ``bad`` and the good commits close in on the suspects.
    goods, skipped = {good.digest}, set[str]()
    steps: list[BisectStep] = []
    commit = bad
    while True:
        suspects = checkout.suspects(bad.digest, goods)
        steps.append(BisectStep(commit, opinion, len(suspects)))
        say(str(steps[-1]))
        untried = [
            suspect for suspect in suspects if suspect != bad.digest and suspect not in skipped
        ]
        if not untried:
            first = [checkout.commit(suspect) for suspect in suspects if suspect in skipped]
            return BisectResult((*first, bad), tuple(steps))
        commit = checkout.commit(untried[0])
        opinion = opinion_of(commit)
        if opinion.bad is None:
            skipped.add(commit.digest)
        elif opinion.bad:
            bad = commit
        else:
            goods.add(commit.digest)


def built(
    good: Commit, python: Callable[[Commit], Path], judge: Judge
) -> Callable[[Commit], Opinion]:
    """Looks at commits by building them and judging them beside the good one.

    Args:
        good: The good commit.
        python: The Python that has a commit, as ``Installs.python``.
        judge: Compares two of them.

    Returns:
        A function of a commit; it raises ``InputError`` where the good commit does not build.
    """

    def opinion_of(commit: Commit) -> Opinion:
        try:
            before = python(good)
        except BuildError as error:
            raise InputError("the good commit can't be built", where=good, got=error) from error
        try:
            candidate = python(commit)
        except BuildError as error:
            return Opinion(None, f"can't be built: {error}")
        return judge(before, candidate)

    return opinion_of
