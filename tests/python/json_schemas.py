"""Checks objects of `sluice … --json` against the schemas of docs/reference/json.

    json_schemas.py SCHEMAS < CASES

CASES is a JSON list of {"schema": NAME, "case": TEXT, "object": OBJECT}. Each fault is printed as one line. The published schemas allow
members that they do not name, since later versions may add some; here, a member that a schema does not name is a fault.
"""

import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource


def closed(schema):
    """The schema without members that it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result.setdefault("additionalProperties", False)
    return result


def main():
    directory = Path(sys.argv[1])
    schemas = {path.name: closed(json.loads(path.read_text())) for path in directory.glob("*.json")}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    unused = set(schemas) - {"common.json"}
    for case in json.load(sys.stdin):
        name = case["schema"] + ".json"
        unused.discard(name)
        for fault in Draft202012Validator(schemas[name], registry=registry).iter_errors(case["object"]):
            print(f"{case['case']}: {fault.json_path}: {fault.message[:300]}")
    for name in sorted(unused):
        print(f"{name}: no case has this schema")


main()
