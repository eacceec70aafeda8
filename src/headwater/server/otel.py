"""Traces by OpenTelemetry, if asked for (``--otel``): the extra ``headwater[otel]``.

Where they go is said by OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_ENDPOINT``, …); the
service is called ``headwater`` unless ``OTEL_SERVICE_NAME`` says otherwise. An exception that ends
a span is told by its class alone: messages may have values of somebody's rows in them.

Kept by: this module, the only one that imports OpenTelemetry. Relied on by: ``compose.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from headwater.base.tracing import Attribute
from headwater.server.preflight import CannotStart

SERVICE = "headwater"


class OpenTelemetry:
    """Sends spans by a provider of OpenTelemetry's."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE)

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, Attribute]) -> Iterator[None]:
        """Open a span until the block ends."""
        with self._tracer.start_as_current_span(
            name, attributes=dict(attributes), record_exception=False, set_status_on_exception=False
        ) as opened:
            try:
                yield
            except BaseException as error:
                opened.set_attribute("error.type", type(error).__name__)
                raise

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


def opened() -> OpenTelemetry:
    """Return what sends spans to where OpenTelemetry's variables say."""
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise CannotStart(
            "traces need OpenTelemetry, which is not installed; pip install 'headwater[otel]', or "
            "leave --otel out"
        ) from None
    resource = resources.Resource.create({"service.name": SERVICE})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return OpenTelemetry(provider)
