"""The Jinja environment of chat templates. Imported when a model's template is first used."""

import json
from datetime import datetime
from functools import partial

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["TemplateError", "compiled", "variables"]


def compiled(source: str) -> jinja2.Template:
    """Return a template. Raises TemplateError for invalid Jinja."""
    return _environment().from_string(source)


def variables(source: str) -> set[str]:
    """Return the names that a template reads. Raises TemplateError for invalid Jinja."""
    return jinja2.meta.find_undeclared_variables(_environment().parse(source))


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`, which marks the assistant's words for training."""

    tags = {"generation"}  # noqa: RUF012 (declared by Jinja)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Replace the block with its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _GenerationBlock]
    )
    # Jinja's own filter escapes `<`, `>` and `&` for HTML, which is wrong in a prompt.
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _raise_exception(message: str) -> None:
    """Let a template reject a conversation."""
    raise TemplateError(message)
