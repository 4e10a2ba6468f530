"""Decodes requests of OTLP over HTTP with the messages of opentelemetry-proto, and prints them as plain JSON.

usage: otlp.py < REQUESTS      (.cache/langfuse is on the path)

REQUESTS has one JSON object a line: path, type (Content-Type), encoding (Content-Encoding or null), body (hexadecimal
digits). The answer is {"spans": [...], "metrics": [...]}. A body that is not exactly a message is an error: a member that
OTLP does not have, a number where the JSON encoding of OTLP has a text, an id with the wrong number of digits.
"""

import base64
import gzip
import json
import re
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ID = {"traceId": 32, "spanId": 16, "parentSpanId": 16}
INTEGERS = ("startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "intValue", "asInt", "count")


def as_protobuf(value):
    """JSON of protobuf from JSON of OTLP: ids are base64 there, and hexadecimal digits here."""
    if isinstance(value, list):
        return [as_protobuf(item) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, member in value.items():
        if name in ID:
            assert re.fullmatch("[0-9a-f]{%d}" % ID[name], member) and int(member, 16), (name, member)
            member = base64.b64encode(bytes.fromhex(member)).decode()
        elif name in INTEGERS:
            assert isinstance(member, str) and member.lstrip("-").isdigit(), (name, member)
        changed[name] = as_protobuf(member)
    return changed


def message(request):
    body = bytes.fromhex(request["body"])
    if request["encoding"] == "gzip":
        body = gzip.decompress(body)
    empty = ExportMetricsServiceRequest() if request["path"].endswith("/metrics") else ExportTraceServiceRequest()
    if request["type"].startswith("application/json"):
        return json_format.ParseDict(as_protobuf(json.loads(body)), empty)
    empty.ParseFromString(body)
    return empty


def plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)


def attributes(pairs):
    found = {pair.key: plain(pair.value) for pair in pairs}
    assert len(found) == len(pairs), "an attribute is there twice"
    return found


def spans(request):
    for of_resource in request.resource_spans:
        resource = attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield {
                    "resource": resource,
                    "scope": of_scope.scope.name,
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex() or None,
                    "kind": span.kind,
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": span.status.code,
                    "attributes": attributes(span.attributes),
                }


def points(request):
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    found = {"name": metric.name, "kind": kind, "unit": metric.unit, "temporality": data.aggregation_temporality}
                    found["attributes"] = attributes(point.attributes)
                    if kind == "histogram":
                        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric.name
                        assert sum(point.bucket_counts) == point.count, metric.name
                        found.update(count=point.count, sum=point.sum)
                    else:
                        found["value"] = getattr(point, point.WhichOneof("value"))
                    yield found


def main():
    found = {"spans": [], "metrics": []}
    for line in sys.stdin:
        request = json.loads(line)
        decoded = message(request)
        if request["path"].endswith("/metrics"):
            found["metrics"] += points(decoded)
        else:
            found["spans"] += spans(decoded)
    print(json.dumps(found))


main()
