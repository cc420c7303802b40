"""Traces by OpenTelemetry. Imported only where tracing is on: it needs the extra ``otel``.

plugin      the observer, and the spans
names       what spans and metrics carry: the conventions for generative AI
metrics     tokens and durations by those conventions
sending     to the collector, in the background
"""

from plugins.tracing.plugin import TracingPlugin

__all__ = ["TracingPlugin"]
