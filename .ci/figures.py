"""Asks a Prometheus that scrapes Mainstay whether the rules, the dashboard and an alert do there what they are for.

    figures.py PROMETHEUS targets                 every target is scraped
    figures.py PROMETHEUS rules                   every rule of deploy/prometheus is evaluated, without an error
    figures.py PROMETHEUS dashboard               every query of deploy/grafana is answered, with rows unless MAY_BE_EMPTY
    figures.py PROMETHEUS alert NAME STATE        an alert is pending or firing
"""

import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE_S = 120
DASHBOARD = "deploy/grafana/mainstay.json"

# Queries that may have no rows on a shop at work, by panel and legend.
MAY_BE_EMPTY = {
    ("Replays", "{{projection}}"): "a rebuild of so small a log is over between two scrapes",
    ("Retrier", "{{operation}} {{status}}"): "the shop hands its work to pools, and nothing to the retrier",
}

# What Grafana puts in the place of its own variables. Scrapes are a second apart.
GRAFANA = {"__rate_interval": "10s"}


def ask(path, **parameters):
    address = f"{sys.argv[1]}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{path} {parameters}: {error.read().decode()}")
        # A busy machine: nobody answers yet, or not in time. A timeout while reading is an OSError of its own.
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"{path} {parameters}: {error}")
            time.sleep(0.5)


def wait_until(is_done, what_lacks):
    """Until what is asked for is there; `what_lacks` says at the end what was not."""
    end = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE_S} s: {what_lacks()}")
        time.sleep(0.2)


def targets():
    def down():
        found = ask("targets")["activeTargets"]
        return [(one["scrapeUrl"], one["lastError"]) for one in found if one["health"] != "up"] if found else ["any"]

    wait_until(lambda: not down(), down)
    print(f"-- Prometheus scrapes {len(ask('targets')['activeTargets'])} nodes, with a token")


def rules():
    def found():
        return [rule for group in ask("rules")["groups"] for rule in group["rules"]]

    def amiss():
        return [(rule["name"], rule["health"], rule.get("lastError")) for rule in found() if rule["health"] != "ok"]

    wait_until(lambda: found() and not amiss(), amiss)
    print(f"-- Prometheus evaluates {len(found())} rules without an error")


def filled(text, values):
    for name, value in values.items():
        text = text.replace("${" + name + "}", value).replace("$" + name, value)
    if "$" in text:
        sys.exit(f"a variable that nobody sets: {text}")
    return text


def variables(board):
    """The values of the dashboard's variables, asked for as Grafana does: the first of those of which one is chosen."""
    values = dict(GRAFANA)
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
        options = ask(f"label/{label}/values", **{"match[]": filled(metric, values)})
        if not options:
            sys.exit(f"the variable {variable['name']} has nothing to choose from")
        values[variable["name"]] = "|".join(map(re.escape, options)) if variable["multi"] else options[0]
        # In a string of PromQL a backslash is written twice.
        values[variable["name"]] = values[variable["name"]].replace("\\", "\\\\")
    return values


def dashboard():
    with open(DASHBOARD) as file:
        board = json.load(file)
    values = variables(board)
    queries = {
        (panel["title"], target["legendFormat"], target["refId"]): filled(target["expr"], values)
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }

    def has_rows(query):
        # A quantile of nothing is not a number, which Grafana draws no line for.
        return any(row["value"][1] != "NaN" for row in ask("query", query=query)["result"])

    def empty():
        return [name for name, query in queries.items() if not has_rows(query) and name[:2] not in MAY_BE_EMPTY]

    unknown = set(MAY_BE_EMPTY) - {name[:2] for name in queries}
    if unknown:
        sys.exit(f"may be empty, but is not there: {unknown}")
    wait_until(lambda: not empty(), empty)
    print(f"-- {len(queries)} queries of the dashboard are answered; without rows may be:")
    for (panel, legend), reason in MAY_BE_EMPTY.items():
        print(f"   {panel} {legend}: {reason}")


def alert(name, state):
    def found():
        return [one for one in ask("alerts")["alerts"] if one["labels"]["alertname"] == name and one["state"] == state]

    wait_until(found, lambda: f"{name} {state}")
    summary = found()[0]["annotations"]["summary"]
    if "<" in summary:
        sys.exit(f"{name} cannot say what is wrong: {summary}")
    print(f"-- {name} is {state}: {summary}")


{"targets": targets, "rules": rules, "dashboard": dashboard, "alert": alert}[sys.argv[2]](*sys.argv[3:])
