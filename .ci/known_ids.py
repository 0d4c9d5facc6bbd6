"""Hooks of schemathesis: half of the paths that it makes name something that is there.

Made-up ids only ever meet "not found". MAINSTAY_URL and MAINSTAY_TOKEN say whom to ask what there is.
"""

import json
import os
import urllib.request
import zlib

import schemathesis


def ask(path):
    request = urllib.request.Request(
        os.environ["MAINSTAY_URL"] + path,
        headers={"Authorization": "Bearer " + os.environ["MAINSTAY_TOKEN"]},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def some(path, member, *names):
    """What the rows of a list are called, by the first of these names that they have."""
    rows = ask(path)[member]
    return [next(row[name] for name in names if row.get(name)) for row in rows]


WORK = some("/admin/work?limit=20", "work", "workId") + some("/admin/work?state=failed&limit=20", "work", "workId")
EVENTS = some("/v1/events?limit=20&order=backward", "events", "eventId")
POISON = some("/admin/poison-events", "poisonEvents", "eventId")
PUBLISHED = some("/admin/publications?limit=20", "publications", "eventId")
PROJECTIONS = some("/admin/projections", "projections", "projection")
TRACES = [row["correlationId"] for row in ask("/v1/events?limit=20")["events"] if row.get("correlationId")]

# By the beginning of a path, the longest first, then by the parameter.
KNOWN = {
    "/admin/dead-letter-operations/": {"id": some("/admin/dead-letter-operations", "operations", "operationId")},
    "/admin/dead-letters/": {"id": some("/admin/dead-letters?limit=50", "letters", "letterId")},
    "/admin/circuits/": {"name": some("/admin/circuits", "circuits", "name")},
    "/admin/limits/": {"name": ["commandDispatch"]},
    "/admin/poison-events/": {"eventId": POISON, "projection": PROJECTIONS},
    "/admin/projection-letters/": {"eventId": POISON, "projection": PROJECTIONS},
    "/admin/projections/": {"name": PROJECTIONS},
    "/admin/publications/": {"eventId": PUBLISHED, "target": ["inventory", "notifications"]},
    "/v1/circuits/": {"name": some("/admin/circuits", "circuits", "name")},
    "/v1/limits/": {"name": ["commandDispatch"]},
    "/v1/publications/": {"eventId": PUBLISHED},
    "": {
        "id": WORK,
        "eventId": EVENTS,
        "pool": some("/admin/pools", "pools", "name"),
        "projection": PROJECTIONS,
        "replayId": some("/admin/replays", "replays", "replayId"),
        "correlationId": TRACES,
        "target": ["inventory", "notifications"],
    },
}


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    if path_parameters is None:
        return None
    path = context.operation.path
    beginning = max((known for known in KNOWN if path.startswith(known)), key=len)
    # The same case comes to the same: what fails is tried again.
    chance = zlib.crc32(repr(sorted(path_parameters.items())).encode())
    if chance % 2:
        return path_parameters
    for name in path_parameters:
        known = KNOWN[beginning].get(name) or KNOWN[""].get(name)
        if known:
            path_parameters[name] = known[chance // 2 % len(known)]
    return path_parameters


@schemathesis.hook
def before_call(context, case, kwargs):
    # Whoever sets this one to something else is refused from then on, and tries nothing any more.
    named = case.path_parameters or {}
    if case.method.upper() == "PUT" and named.get("name") == "adminOperations":
        named["name"] = "mail"
