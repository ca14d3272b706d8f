"""Conversations as the text that a model was trained on, by the template in its file.

A template is a program of its author's, in Jinja. It runs in Jinja's sandbox: it changes nothing and reads nothing but
what it is given. Lists and texts that it repeats are bounded; its time is not.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx.errors import InputError, first_line, install_line

if TYPE_CHECKING:
    from jinja2 import Template

Message = Mapping[str, Any]
# What faults of templates raise, besides Jinja's own errors.
_FAULTS = (
    TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, SyntaxError, MemoryError,
)  # fmt: skip
# A template may repeat a text or list up to so many entries.
_LONGEST, _LARGEST = 1_000_000, 1e18


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    answer: bool = True,
    **values: Any,
) -> str:
    """Returns the text of a conversation.

    Args:
        template: The template, as transformers runs it.
        messages: Each with "role" and "content".
        tools: Functions that the model may call, as JSON schemas.
        answer: Whether the beginning of the model's answer follows.
        **values: More names of the template: "bos_token", "enable_thinking".

    Raises:
        InputError: The template is malformed, or refuses the conversation.
        ImportError: Jinja is not installed.

    Example:
        >>> render("{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}",
        ...        [{"role": "user", "content": "Hello"}])
        'user: Hello;'
    """
    compiled = _compiled(template)
    from jinja2 import TemplateError

    names = {"messages": list(messages), "tools": tools, "documents": None, **values}
    try:
        return compiled.render(add_generation_prompt=answer, **names)
    except (TemplateError, *_FAULTS) as error:
        raise InputError("the chat template refuses the messages", got=first_line(error)) from None


@functools.lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    try:
        from jinja2 import TemplateError
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        what = f"chats need the jinja2 library; {install_line('.[lm]')}"
        raise ImportError(what, name="jinja2") from None

    class GenerationTag(Extension):
        """Blocks that mark the model's own words for training: their text stands as it is."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    class BoundedSandbox(ImmutableSandboxedEnvironment):
        """Jinja's sandbox, with bounds for what repeats and raises to powers."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sizes = [len(x) if hasattr(x, "__len__") else x for x in (left, right)]
            plain = not any(hasattr(x, "__len__") for x in (left, right))
            bound = _LARGEST if operator == "*" and plain else _LONGEST
            if operator == "**":
                refuse("templates raise to no power")
            if abs(math.prod(sizes)) > bound:
                refuse("a product is too large")
            return super().call_binop(context, operator, left, right)

    environment = BoundedSandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
    )
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=refuse, strftime_now=now)
    try:
        return environment.from_string(template)
    except (TemplateError, *_FAULTS) as error:
        raise InputError("the chat template is malformed", got=first_line(error)) from None
