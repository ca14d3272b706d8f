"""A git checkout: names of commits, the commits between two of them, and their files in temporary worktrees."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlx.dataclasses import dataclass
from rlx.errors import InputError

# Set while git runs a hook; they would point the commands below at the hook's own repository.
_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


@dataclass(frozen=True)
class Commit:
    """A commit.

    Attributes:
        digest: Its full name, in hexadecimal digits.
        subject: The first line of its message.
    """

    digest: str
    subject: str

    def __str__(self) -> str:
        return f"{self.digest[:10]} {self.subject}"


class Checkout:
    """A git checkout. Nothing in it is changed: other commits are checked out elsewhere, for a while.

    Args:
        folder: The checkout or a folder in it.

    Raises:
        InputError: It is no git checkout, or there is no ``git``.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        if not folder.is_dir():
            raise InputError("no folder", got=folder)
        try:
            self.root = Path(self._git("rev-parse", "--show-toplevel"))
        except FileNotFoundError:
            raise InputError("git is not installed") from None
        except subprocess.CalledProcessError as error:
            raise InputError(
                "not a git checkout",
                got=folder,
                expected=error.stderr.strip(),
                hint="bisect builds commits: give the checkout of rlx by --repository",
            ) from None

    def commit(self, name: str) -> Commit:
        """The commit of a name: a digest or its beginning, a branch, a tag, ``HEAD~3``.

        Raises:
            InputError: There is none.
        """
        try:
            wanted = ("--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            digest = self._git("rev-parse", *wanted).splitlines()[-1]
        except (subprocess.CalledProcessError, ValueError):
            raise InputError("no such commit", where=self.root, got=repr(name)) from None
        return Commit(digest, self._git("show", "--no-patch", "--format=%s", digest))

    def precedes(self, first: Commit, other: Commit) -> bool:
        """Returns whether a commit is an ancestor of another one, or that commit itself."""
        command = self._command("merge-base", "--is-ancestor", first.digest, other.digest)
        return subprocess.run(command, env=_environment(), check=False).returncode == 0

    def suspects(self, bad: str, good: Collection[str]) -> list[str]:
        """The digests of the commits of which one turned a good state into a bad one.

        Args:
            bad: A commit that is bad.
            good: Commits that are good.

        Returns:
            The ancestors of ``bad`` and itself, without those of the good ones. First the one whose test halves
            the others best, ``bad`` among the last. Merges count: all branches between are looked through.
        """
        result = self._git("rev-list", "--bisect-all", bad, "--not", *sorted(good))
        return [line.split()[0] for line in result.splitlines()]

    @contextmanager
    def files(self, commit: Commit) -> Iterator[Path]:
        """The files of a commit in a temporary folder, which is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="rlx-bisect-") as folder:
            target = Path(folder) / "tree"
            hooks = ("-c", f"core.hooksPath={os.devnull}")
            try:
                add = ("worktree", "add", "--quiet", "--detach", str(target), commit.digest)
                self._git(*hooks, *add)
                yield target
            finally:
                # Twice forced: one that was interrupted while it was made is locked.
                remove = self._command("worktree", "remove", "--force", "--force", str(target))
                subprocess.run(remove, capture_output=True, env=_environment(), check=False)

    def _command(self, *args: str) -> list[str]:
        return ["git", "-C", str(self.root), *args]

    def _git(self, *args: str) -> str:
        command = self._command(*args)
        return subprocess.run(
            command, capture_output=True, text=True, env=_environment(), check=True
        ).stdout.strip()


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _OF_HOOKS}
