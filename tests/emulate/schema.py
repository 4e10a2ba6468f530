#!/usr/bin/env python3
"""Makes controller/git/src/forge/github/schema.json again: the part of GitHub's own schema that Sluice uses.

usage: npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
       tests/emulate/schema.py package/generated/api.github.com.deref.json > controller/git/src/forge/github/schema.json
"""

import json
import sys

SOURCE = (
    "@octokit/openapi 23.0.2 (MIT), generated/api.github.com.deref.json: request bodies as they are, and of the answers "
    "the members that Sluice reads"
)
SIDE = {"ref": {}, "sha": {}, "repo": {"full_name": {}}}
PULL = {
    **{name: {} for name in ("number", "node_id", "state", "draft", "title", "merged_at", "merge_commit_sha")},
    "head": SIDE,
    "base": SIDE,
}
REQUESTS = ("pulls/create", "pulls/merge", "apps/create-installation-access-token")
# Of many permissions, those that Sluice asks for, and the one that it must not have.
PERMISSIONS = ("contents", "pull_requests", "workflows")
ANSWERS = {
    "pulls/get": ("200", {**PULL, "mergeable": {}}),
    "pulls/create": ("201", {**PULL, "mergeable": {}}),
    "pulls/list": ("200", PULL),
    "pulls/merge": ("200", {"sha": {}, "merged": {}}),
    "git/get-ref": ("200", {"object": {"sha": {}}}),
    "repos/get": ("200", {"default_branch": {}}),
    "apps/create-installation-access-token": ("201", {"token": {}}),
}


def pruned(schema):
    """A schema without texts and examples."""
    kept = {key: schema[key] for key in ("type", "enum", "required", "nullable") if key in schema}
    if "properties" in schema:
        kept["properties"] = {name: pruned(member) for name, member in schema["properties"].items()}
    if "items" in schema:
        kept["items"] = pruned(schema["items"])
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            kept[key] = [pruned(member) for member in schema[key]]
    return kept


def only(schema, names):
    """A schema with these members alone."""
    if schema.get("type") == "array":
        return {"type": "array", "items": only(schema["items"], names)}
    kept = {key: schema[key] for key in ("type", "nullable") if key in schema}
    kept["required"] = [name for name in names if name in schema.get("required", [])]
    leaf = lambda member: pruned({key: value for key, value in member.items() if key not in ("properties", "items")})
    members = schema["properties"]
    kept["properties"] = {name: only(members[name], sub) if sub else leaf(members[name]) for name, sub in names.items()}
    return kept


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        paths = json.load(file)["paths"]
    operations = {
        operation["operationId"]: (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    requests, answers = {}, {}
    for name in REQUESTS:
        method, path, operation = operations[name]
        schema = pruned(operation["requestBody"]["content"]["application/json"]["schema"])
        permissions = schema["properties"].get("permissions")
        if permissions:
            permissions["properties"] = {one: permissions["properties"][one] for one in PERMISSIONS}
        requests[name] = {"method": method, "path": path, "schema": schema}
    for name, (status, members) in ANSWERS.items():
        method, path, operation = operations[name]
        schema = operation["responses"][status]["content"]["application/json"]["schema"]
        answers[name] = {"method": method, "path": path, "schema": only(schema, members)}
    answers["pulls/merge"]["statuses"] = list(operations["pulls/merge"][2]["responses"])
    method, path, operation = operations["git/delete-ref"]
    answers["git/delete-ref"] = {"method": method, "path": path, "statuses": list(operation["responses"])}
    print("{")
    print(f' "source": {json.dumps(SOURCE)},')
    for key, table, end in (("requests", requests, ","), ("responses", answers, "")):
        rows = [f'  "{name}": {json.dumps(row)}' for name, row in table.items()]
        print(f' "{key}": {{\n' + ",\n".join(rows) + f"\n }}{end}")
    print("}")


main()
