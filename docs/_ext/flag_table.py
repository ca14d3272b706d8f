"""The directive ``rlx-flags``: a table of every environment variable, from ``rlx.flags``, for Markdown pages."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import rlx
from rlx.flags import TABLE


class FlagTable(SphinxDirective):
    """Writes the table that ``rlx env`` prints."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        lines = ["| variable | default | what it does |", "|---|---|---|"]
        for flag in sorted(TABLE.values(), key=lambda flag: flag.name):
            default = "" if flag.default in ("", None) else f"`{str(flag.default).lower()}`"
            lines.append(f"| `{flag.name}` | {default} | {flag.doc} |")
        box = nodes.container()
        self.state.nested_parse(StringList(lines, source="rlx.flags"), self.content_offset, box)
        return box.children


def setup(app: Any) -> dict[str, bool]:
    """Connects this extension to Sphinx."""
    assert rlx.ops  # every flag is declared once rlx is imported
    app.add_directive("rlx-flags", FlagTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
