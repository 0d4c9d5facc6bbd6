"""Reads the dashboard with the models that Grafana publishes, and fails for whatever they do not know.

What a model does not know is not in what it writes again: a field of another panel, a word that is misspelt.
"""

import json
import sys

from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard

# Written by Grafana itself when it exports, though its models do not have it: how a variable is shown in its settings.
UNKNOWN = {"definition"}

# The models take any text where these are meant.
WORDS = {
    "drawStyle": common.GraphDrawStyle,
    "showPoints": common.VisibilityMode,
    "axisPlacement": common.AxisPlacement,
    "displayMode": common.LegendDisplayMode,
    "placement": common.LegendPlacement,
    "sort": common.SortOrder,
    "colorMode": common.BigValueColorMode,
    "graphMode": common.BigValueGraphMode,
    "textMode": common.BigValueTextMode,
    "showValue": common.VisibilityMode,
    "alignValue": common.TimelineValueAlignment,
}


def differences(ours, theirs, place):
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name not in theirs:
                if name not in UNKNOWN:
                    yield f"{place}.{name} is known to no model of Grafana"
            else:
                yield from differences(value, theirs[name], f"{place}.{name}")
            word = WORDS.get(name)
            if word and isinstance(value, str) and value not in [one.value for one in word]:
                yield f"{place}.{name} is {value}, which is none of {[one.value for one in word]}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs)):
            yield from differences(one, other, f"{place}[{index}]")
    elif ours != theirs:
        yield f"{place} is {ours!r}, and {theirs!r} when Grafana's models have read it"


plugins.register_default_plugins()
with open(sys.argv[1]) as file:
    ours = json.load(file)
theirs = json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(ours)))
wrong = list(differences(ours, theirs, "dashboard"))
ids = [panel["id"] for panel in ours["panels"]]
wrong += [f"two panels have the id {one}" for one in sorted(set(ids)) if ids.count(one) > 1]
known = {"row", *runtime.Runtime().panelcfg_variants}
wrong += [f"there are no panels of the type {panel['type']}" for panel in ours["panels"] if panel["type"] not in known]
if wrong:
    sys.exit("\n".join(wrong))
print(f"-- {len(ids)} panels and rows are as Grafana's models know them")
