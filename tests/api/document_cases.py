# SPDX-License-Identifier: Apache-2.0
"""vmm/api.yaml and the server agree: paths, methods, phases and fields."""

import glob
import os
import re
import socket

from client import AFTER, BEFORE, BODY, ends, monitor
from harness import Cases, Failure, Skip

CASES = Cases()
VMM = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "vmm")
METHODS = ("get", "put", "patch", "delete", "post", "head", "options")
NOT_SUPPORTED = "not supported by this version"
UNKNOWN = "unknown field"
NO_ROUTE = "Invalid request method and/or path"


class Document:
    def __init__(self):
        try:
            import yaml
        except ImportError as e:
            raise Skip("python3-yaml is not installed") from e
        with open(os.path.join(VMM, "api.yaml"), encoding="utf-8") as f:
            self.doc = yaml.safe_load(f)

    def operations(self):
        """(path with an id, method, operation)"""
        for path, item in self.doc["paths"].items():
            for method, operation in item.items():
                if method != "parameters":
                    yield path.replace("{id}", "a"), method, operation

    def resolve(self, node):
        while "$ref" in node:
            target = self.doc
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def schema(self, operation):
        """Of the request's body, or None."""
        body = operation.get("requestBody")
        return body and self.resolve(
            body["content"]["application/json"]["schema"])

    def names(self, node=None):
        """Every property of every schema."""
        node = node or {"properties": self.doc["components"]["schemas"]}
        found = set()
        for name, inner in node.get("properties", {}).items():
            found |= {name} | self.names({"properties": {}} | inner)
        return found


def sample(t, document, schema):
    """A value that the server takes."""
    schema = document.resolve(schema)
    if "example" in schema:
        made = {"KERNEL": t.host.payload("park"), "DISK": t.path("disk"),
                "FILE": t.path("disk"), "OUT": t.path("out")}
        return made.get(str(schema["example"]), schema["example"])
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: sample(t, document, inner)
                for name, inner in schema.get("properties", {}).items()}
    return {"boolean": True, "integer": 1, "string": "a",
            "array": []}[schema["type"]]


def body_of(t, document, schema, *more):
    return {name: sample(t, document, schema["properties"][name])
            for name in (*schema.get("required", []), *more)}


def fault(api, method, path, body=None):
    """'' for a success, else the message."""
    r = api.call(method.upper(), path, body)
    if r.status in (200, 204):
        return ""
    if r.status != 400:
        raise Failure(f"{method} {path}: {r.status} {r.body}")
    return r.json["fault_message"]


@CASES.case("document_lists_the_routes_of_the_server", kvm=False)
def routes(t):
    document = Document()
    with open(os.path.join(VMM, "api_table.c"), encoding="utf-8") as f:
        table = set(re.findall(r'\{"([A-Z]+)",\s+"(/[^"]*)"', f.read()))
    listed = {(method.upper(), path.replace("{id}", "{}"))
              for path, item in document.doc["paths"].items()
              for method in item if method != "parameters"}
    t.eq(sorted(table ^ listed), [], "routes of one side alone")


@CASES.case("document_methods_and_phases_before_the_start", kvm=False)
def before(t):
    document = Document()
    t.file("disk", size=1 << 20)
    vm, api = monitor(t)
    known = {(p, m) for p, m, _ in document.operations()}
    for path in {p for p, _ in known}:
        for method in METHODS:
            if (path, method) not in known and method != "head":
                t.check(NO_ROUTE in fault(api, method, path,
                                          None if method == "get" else "{}"),
                        f"{method} {path} is not in the document")
    for path, method, operation in document.operations():
        schema = document.schema(operation)
        body = None
        if method in ("put", "patch"):
            body = body_of(t, document, schema) if schema else {}
        if path in ("/actions", "/logger"):
            continue  # it would start; the log is wanted
        said = fault(api, method, path, body)
        where = f"{method} {path}: {said}"
        t.check(NO_ROUTE not in said, where)
        t.eq(said == BEFORE, operation["x-phase"] == "post", where)
        if operation.get("x-not-supported") and said != BEFORE:
            t.check(NOT_SUPPORTED in said, where)
    ends(t, vm)


def check_fields(t, document, api, path, method, operation):
    """Each listed field is known, each needed one needed, no other taken."""
    schema = document.schema(operation)
    where = f"{method} {path}"
    good = body_of(t, document, schema)
    for name, inner in schema["properties"].items():
        inner = document.resolve(inner)
        body = body_of(t, document, schema, name)
        said = fault(api, method, path, body)
        t.check(UNKNOWN not in said, f"{where} {name}: {said}")
        if inner.get("x-not-supported"):
            t.check(NOT_SUPPORTED in said, f"{where} {name}: {said}")
        if inner.get("nullable"):
            said = fault(api, method, path, {**good, name: None})
            t.check(f".{name}" not in said, f"{where} {name}=null: {said}")
        wrong = 1 if inner["type"] == "array" else []
        said = fault(api, method, path, {**good, name: wrong})
        t.check(said != "", f"{where} {name}={wrong}: taken")
    for name in schema.get("required", []):
        rest = {k: v for k, v in good.items() if k != name}
        said = fault(api, method, path, rest)
        t.check(f"missing field `{name}`" in said,
                f"{where} without {name}: {said}")
    said = fault(api, method, path, {**good, "no_such_field": 1})
    t.check(UNKNOWN in said or NOT_SUPPORTED in said,
            f"{where} no_such_field: {said}")


@CASES.case("document_fields_before_the_start", kvm=False)
def fields_before(t):
    document = Document()
    t.file("disk", size=1 << 20)
    for path, method, operation in document.operations():
        if document.schema(operation) and operation["x-phase"] == "pre":
            _, api = monitor(t)
            check_fields(t, document, api, path, method, operation)


@CASES.case("document_phases_and_fields_after_the_start")
def after(t):
    document = Document()
    t.file("disk", size=1 << 20)
    vm, api = monitor(t)
    network = socket.socket(socket.AF_UNIX)
    network.bind(t.path("net"))
    network.listen()
    api.ok("PUT", "/network-interfaces/a", {
        "iface_id": "a", "mote": {"socket": t.path("net")}})
    api.drive("a", t.path("disk"))
    api.ok("PUT", "/balloon", {
        "amount_mib": 1, "deflate_on_oom": True,
        "stats_polling_interval_s": 1, "free_page_hinting": True})
    api.boot_source("park")
    api.start()
    vm.wait_output(b"parked\n")
    for path, method, operation in document.operations():
        schema = document.schema(operation)
        if operation["x-phase"] == "pre":
            t.eq(fault(api, method, path, body_of(t, document, schema)),
                 AFTER, f"{method} {path}")
        elif schema and not operation.get("x-any-fields"):
            check_fields(t, document, api, path, method, operation)
        elif method == "get":
            said = fault(api, method, path)
            t.check(said != BEFORE and said != AFTER, f"{path}: {said}")
    ends(t, vm)


@CASES.case("document_has_every_field_that_the_parser_knows", kvm=False)
def parser(t):
    document = Document()
    names = document.names()
    for path in glob.glob(os.path.join(VMM, "config*.c")):
        with open(path, encoding="utf-8") as f:
            known = set(re.findall(r'!strcmp\(f, "([a-z_]+)"\)', f.read()))
        t.eq(sorted(known - names), [], f"fields of {path} alone")


@CASES.case("document_answers_are_as_described", kvm=False)
def answers(t):
    document = Document()
    _, api = monitor(t)
    for path in ("/", "/version", "/machine-config"):
        schema = document.resolve(document.doc["paths"][path]["get"][
            "responses"]["200"]["content"]["application/json"]["schema"])
        for name, value in api.get(path).items():
            t.check(name in schema["properties"], f"{path}: {name}")
            kind = schema["properties"][name]["type"]
            t.check(isinstance(value, {"string": str, "integer": int,
                                       "boolean": bool}[kind]),
                    f"{path}: {name} is {value!r}")
    t.check(api.bad("PUT", "/actions", "{").startswith(BODY), "an error")
