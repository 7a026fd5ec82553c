# SPDX-License-Identifier: Apache-2.0
"""The guest's metadata: /mmds, /mmds/config and the options about them."""

import json
import os
import socket
import subprocess

from client import AFTER, BODY, ends, monitor, parked
from harness import Cases, PATIENCE

CASES = Cases()


def case(name, kvm=False):
    return CASES.case(name, kvm=kvm)


def interface(t, api, name="a"):
    api.ok("PUT", f"/network-interfaces/{name}", {
        "iface_id": name, "mote": {"socket": t.path("net")}})


@case("mmds_config_before_the_start")
def config(t):
    _, api = monitor(t)
    api.bad("PUT", "/mmds/config", {"network_interfaces": ["a"]},
            "no interface a")
    interface(t, api)
    interface(t, api, "b")
    r = api.ok("PUT", "/mmds/config", {"network_interfaces": ["a"]})
    t.eq(r.headers["Deprecation"], "true", "V1 by default")
    r = api.ok("PUT", "/mmds/config", {"network_interfaces": ["a"],
                                       "version": "V1"})
    t.eq(r.headers["Deprecation"], "true", "V1")
    last = {"network_interfaces": ["a", "b"], "version": "V2",
            "ipv4_address": "169.254.170.2", "imds_compat": True}
    r = api.ok("PUT", "/mmds/config", last)
    t.eq(r.headers["Deprecation"], None, "V2")
    ids = {"network_interfaces": ["a"]}
    for body, word in (
            ({}, "missing field `network_interfaces`"),
            ({"network_interfaces": []}, "network_interfaces"),
            ({"network_interfaces": "a"}, "network_interfaces"),
            ({"network_interfaces": [1]}, "network_interfaces"),
            ({"network_interfaces": ["a", "c"]}, "no interface c"),
            ({**ids, "version": "V3"}, "V1 or V2"),
            ({**ids, "version": 2}, "V1 or V2"),
            ({**ids, "ipv4_address": "10.0.0.1"}, "link-local"),
            ({**ids, "ipv4_address": "169.254.0.1"}, "link-local"),
            ({**ids, "ipv4_address": "169.254.255.1"}, "link-local"),
            ({**ids, "ipv4_address": "169.254.1"}, "IPv4 address"),
            ({**ids, "ipv4_address": 1}, "IPv4 address"),
            ({**ids, "imds_compat": "yes"}, "imds_compat"),
            ({**ids, "x": 1}, "x: unknown field")):
        api.bad("PUT", "/mmds/config", body, word)
    t.eq(api.get("/vm/config")["mmds-config"], last, "after refusals")
    for method in ("GET", "PATCH", "DELETE"):
        api.bad(method, "/mmds/config", {} if method == "PATCH" else None,
                "Invalid request method and/or path")


@case("mmds_data_before_the_start")
def data(t):
    vm, api = monitor(t)
    t.eq(api.get("/mmds"), {}, "nothing yet")
    api.bad("PATCH", "/mmds", {"a": 1}, "not initialized")
    doc = {"a": {"b": "c", "d": None, "e": [1, {"f": 2}]}, "ä": "ö"}
    api.ok("PUT", "/mmds", doc)
    t.eq(api.get("/mmds"), doc, "as it was put")
    api.ok("PATCH", "/mmds", {"a": {"b": None, "g": {"h": 1}, "e": [2]}})
    t.eq(api.get("/mmds"), {"a": {"d": None, "e": [2], "g": {"h": 1}},
                            "ä": "ö"}, "merged")
    api.ok("PATCH", "/mmds", {})
    api.ok("PUT", "/mmds", {"z": 1})
    t.eq(api.get("/mmds"), {"z": 1}, "PUT replaces")
    for body in ("[]", "1", '"a"', "null", "{", '{"a":1,"a":2}'):
        for method in ("PUT", "PATCH"):
            api.bad(method, "/mmds", body, BODY)
    api.bad("PUT", "/mmds", None, "Empty PUT request.")
    api.bad("GET", "/mmds", "{}", "GET request cannot have a body.")
    t.eq(api.get("/mmds"), {"z": 1}, "after refusals")
    t.eq(api.get("/vm/config")["mmds-config"], None, "no data in the config")
    ends(t, vm)


def too_big(t, api, method, body):
    r = api.call(method, "/mmds", body)
    t.eq(r.status, 413, f"{method} {body}")
    t.eq(list(r.json), ["fault_message"], "fields of an error")
    t.check("more than 100 bytes" in r.json["fault_message"], r.body)


@case("mmds_size_limit")
def limit(t):
    _, api = monitor(t, ["--mmds-size-limit", "100"])
    fits = {"a": "x" * 92}
    api.ok("PUT", "/mmds", json.dumps(fits, indent=20))
    too_big(t, api, "PUT", {"a": "x" * 93})
    too_big(t, api, "PATCH", {"b": 1})
    t.eq(api.get("/mmds"), fits, "after refusals")
    api.ok("PATCH", "/mmds", {"a": None, "b": 1})
    # Without it the limit is that of a body.
    vm, api = monitor(t, ["--http-api-max-payload-size", "200"])
    api.ok("PUT", "/mmds", {"a": "x" * 100})
    r = api.call("PATCH", "/mmds", {"b": "x" * 100})
    t.eq(r.status, 413, "two that are small")
    ends(t, vm)
    for bad in ("0", "-1", "x", "99999999999"):
        p = subprocess.run([t.host.vmm, "--api-sock", t.path("s"),
                            "--mmds-size-limit", bad], capture_output=True,
                           timeout=PATIENCE, check=False)
        t.eq(p.returncode, 153, f"exit code of a limit of {bad}")
        t.check(b"--mmds-size-limit" in p.stderr, f"{p.stderr}")


@case("mmds_metadata_file")
def metadata(t):
    t.file("m.json", b'{"a":{"b":"c"}}')
    _, api = monitor(t, ["--metadata", "m.json"])
    t.eq(api.get("/mmds"), {"a": {"b": "c"}}, "of the file")
    api.ok("PATCH", "/mmds", {"d": "e"})
    t.eq(api.get("/mmds"), {"a": {"b": "c"}, "d": "e"}, "patched")
    t.file("list.json", b"[]")
    t.file("bad.json", b"{")
    t.file("big.json", json.dumps({"a": "x" * 60000}).encode())
    for name, word in (("list.json", b"one JSON object"),
                       ("bad.json", b"bad.json: line 1"),
                       ("nope.json", b"nope.json: No such file"),
                       ("big.json", b"--mmds-size-limit")):
        p = subprocess.run([t.host.vmm, "--api-sock", t.path("s"),
                            "--metadata", name], cwd=t.dir,
                           capture_output=True, timeout=PATIENCE, check=False)
        t.eq(p.returncode, 152, f"exit code with {name}")
        t.check(word in p.stderr, f"{name}: {p.stderr}")
        t.check(not os.path.exists(t.path("s")), "a socket was made")


@case("mmds_config_in_a_file_and_fed_back")
def fed_back(t):
    _, api = monitor(t)
    interface(t, api)
    api.ok("PUT", "/mmds/config", {"network_interfaces": ["a"],
                                   "version": "V2"})
    api.boot_source("exit")
    view = api.get("/vm/config")

    def check(doc):
        t.file("again.json", json.dumps(doc).encode())
        p = subprocess.run([t.host.vmm, "--config-file", "again.json",
                            "--check"], cwd=t.dir, capture_output=True,
                           timeout=PATIENCE, check=False)
        return p.returncode, p.stderr
    t.eq(check(view), (0, b""), "--check of it")
    for section, word in (({}, b"network_interfaces is missing"),
                          ({"network_interfaces": ["b"]}, b"no interface b"),
                          ([], b"must be an object")):
        code, text = check({**view, "mmds-config": section})
        t.eq(code, 152, f"exit code of {section}")
        t.check(word in text, f"{section}: {text}")


def network(t):
    s = socket.socket(socket.AF_UNIX)
    s.bind(t.path("net"))
    s.listen()
    return s


@case("mmds_of_a_machine_that_runs", kvm=True)
def running(t):
    holder = network(t)

    def set_up(api):
        interface(t, api)
        api.ok("PUT", "/metrics", {"metrics_path": t.path("metrics")})
        api.ok("PUT", "/mmds/config", {"network_interfaces": ["a"]})
    vm, api = parked(t, set_up=set_up)
    t.eq(api.get("/mmds"), {}, "nothing yet")
    api.bad("PATCH", "/mmds", {"a": 1}, "not initialized")
    api.ok("PUT", "/mmds", {"a": 1})
    api.ok("PATCH", "/mmds", {"b": 2})
    t.eq(api.get("/mmds"), {"a": 1, "b": 2}, "changed while it runs")
    t.eq(api.bad("PUT", "/mmds/config", {"network_interfaces": ["a"]}), AFTER,
         "config")
    api.pause()
    t.eq(api.get("/mmds"), {"a": 1, "b": 2}, "while it is paused")
    api.ok("PATCH", "/mmds", {"b": None})
    api.resume()
    api.ok("PUT", "/actions", {"action_type": "FlushMetrics"})
    line = json.loads(t.read("metrics").splitlines()[-1])
    t.eq(set(line["mmds"].values()), {0}, "counts without a request")
    for name in ("rx_accepted", "rx_no_token", "rx_invalid_token", "tx_bytes",
                 "connections_created", "connections_destroyed"):
        t.check(name in line["mmds"], f"no {name} in {line['mmds']}")
    t.eq(line["put_api_requests"]["mmds_count"], 3, "PUTs")
    holder.close()
    ends(t, vm)


@case("mmds_config_travels_with_a_snapshot_and_data_do_not", kvm=True)
def snapshot(t):
    holder = network(t)
    config = {"network_interfaces": ["a"], "version": "V2"}

    def set_up(api):
        interface(t, api)
        api.ok("PUT", "/mmds/config", config)
        api.ok("PUT", "/mmds", {"secret": 1})
    vm, api = parked(t, set_up=set_up)
    api.pause()
    files = {"snapshot_path": t.path("state"), "mem_file_path": t.path("mem")}
    api.ok("PUT", "/snapshot/create", files)
    ends(t, vm)
    t.check(b"secret" not in t.read("state"), "the data were saved")
    vm, api = monitor(t)
    interface(t, api)
    api.ok("PUT", "/mmds/config", config)
    api.bad("PUT", "/snapshot/load", files, "network-interfaces")
    ends(t, vm)
    vm, api = monitor(t)
    api.ok("PUT", "/mmds", {"b": 2})  # that is allowed before a load
    api.ok("PUT", "/snapshot/load", files)
    t.eq(api.get("/vm/config")["mmds-config"], config, "configuration")
    t.eq(api.get("/mmds"), {"b": 2}, "data")
    api.ok("PATCH", "/mmds", {"c": 3})
    holder.close()
    ends(t, vm)


@case("mmds_that_was_not_set_up_cannot_be_later", kvm=True)
def not_set_up(t):
    vm, api = parked(t)
    for method, body in (("GET", None), ("PUT", {}), ("PATCH", {})):
        api.bad(method, "/mmds", body, "not set up")
    ends(t, vm)
    vm, api = parked(t, set_up=lambda a: a.ok("PUT", "/mmds", {"a": 1}))
    t.eq(api.get("/mmds"), {"a": 1}, "data alone are enough")
    ends(t, vm)
