"""The findings of a probe as YAML, to be pasted under an endpoint of the configuration."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from router.probing.questions import Finding

__all__ = ["ProbedEndpoint", "ProbedModel", "block"]

_MAX_COMMENT: Final = 200
_FIELDS: Final = (
    "context_length",
    "tools",
    "tool_choice",
    "json_schema",
    "vision",
    "reasoning",
    "stream_usage",
)


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """What was found about one model, by field; ``problem`` is why it could not be asked."""

    model: str
    findings: dict[str, Finding] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ProbedEndpoint:
    """What was found about the models of an endpoint.

    ``problem`` is why it, or some of it, could not be asked; ``note`` what was left out on
    purpose.
    """

    name: str
    url: str
    models: tuple[ProbedModel, ...] = ()
    problem: str = ""
    note: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether everything that was to be asked could be asked."""
        return not self.problem and not any(model.problem for model in self.models)


def block(report: ProbedEndpoint) -> str:
    """The lines of ``capabilities``, indented as an entry of ``endpoints`` is, with a last line
    end. What is not known stands in comments; every comment is one line that no terminal obeys.
    """
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: ProbedEndpoint) -> Iterator[str]:
    yield f"    # {_printable(report.name)}  {_printable(report.url)}"
    for said in (report.problem, report.note):
        if said:
            yield f"    # {_printable(said)}"
    if any(map(_is_known, report.models)):
        yield "    capabilities:"
    for model in report.models:
        yield from _model_lines(model)


def _model_lines(report: ProbedModel) -> Iterator[str]:
    name = _quoted(glob.escape(report.model))
    known = _is_known(report)
    if report.problem or not known:
        yield f"      # {name}: {_printable(report.problem) or 'nothing is known'}"
    if known:
        yield f"      {name}:"
    for field_ in _FIELDS:
        finding = report.findings.get(field_)
        if finding is None:
            continue
        if finding.value is None:
            yield f"        # {field_}: {_printable(finding.why)}"
        else:
            comment = f"  # {_printable(finding.why)}" if finding.why else ""
            yield f"        {field_}: {_scalar(finding.value)}{comment}"


def _is_known(report: ProbedModel) -> bool:
    return any(finding.value is not None for finding in report.findings.values())


def _scalar(value: bool | int) -> str:
    return str(value).lower()


def _quoted(text: str) -> str:
    """A double-quoted scalar of YAML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _printable(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > _MAX_COMMENT:
        line = line[: _MAX_COMMENT - 1] + "…"
    return "".join(char if char.isprintable() else "?" for char in line)
