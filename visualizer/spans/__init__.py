"""`underglass spans`: the waterfall of each request, as OpenTelemetry spans for tracing tools."""
