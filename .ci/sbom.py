"""Writes a software bill of materials of the binary: CycloneDX 1.6 as JSON.

    sbom.py FILE

Lists every crate that `cargo build -p mainstay-cli` compiles on this machine's platform, and what is bundled inside of them:
SQLite's C source and the scripts of the console. Two runs over one lock file write the same bytes.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
BINARY = "mainstay-cli"
ASSETS = ROOT / "crates/mainstay-server/src/console/assets"


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def host():
    return re.search(r"^host: (\S+)$", output("rustc", "-vV"), re.M)[1]


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    found = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package.get("description"):
        found["description"] = " ".join(package["description"].split())
    if package.get("license"):
        # Before Rust 1.0 a slash meant a choice.
        found["licenses"] = [{"expression": re.sub(r" ?/ ?", " OR ", package["license"])}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if (package.get("repository") or "").startswith("https://"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def bundled(packages):
    """What is compiled or served, but is no crate: (the crate that holds it, component)."""
    crates = {package["name"]: package for package in packages}
    sqlite = crates["libsqlite3-sys"]
    header = pathlib.Path(sqlite["manifest_path"]).parent / "sqlite3/sqlite3.h"
    version = re.search(r'^#define SQLITE_VERSION\s+"([^"]+)"', header.read_text(), re.M)[1]
    yield sqlite, {
        "type": "library",
        "bom-ref": f"pkg:generic/sqlite@{version}",
        "name": "sqlite",
        "version": version,
        "purl": f"pkg:generic/sqlite@{version}",
        "cpe": f"cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*",
        "licenses": [{"expression": "blessing"}],
    }
    for script in sorted(ASSETS.glob("*-*.min.js")):
        name, version = re.fullmatch(r"(.+)-(\d+\.\d+\.\d+)\.min\.js", script.name).groups()
        yield crates["mainstay-server"], {
            "type": "library",
            "bom-ref": f"pkg:npm/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(script.read_bytes()).hexdigest()}],
        }


def bill():
    """The bill, and the names of the crates of this workspace."""
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host()))
    lock = (ROOT / "Cargo.lock").read_bytes()
    locked = tomllib.loads(lock.decode())["package"]
    checksums = {(one["name"], one["version"]): one.get("checksum") for one in locked}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(id for id, package in packages.items() if package["name"] == BINARY)

    # What tests alone need is not in the binary.
    def needs(id):
        return [d["pkg"] for d in nodes[id]["deps"] if any(kind["kind"] != "dev" for kind in d["dep_kinds"])]

    reached, ahead = {root}, [root]
    while ahead:
        found = [id for id in needs(ahead.pop()) if id not in reached]
        reached.update(found)
        ahead.extend(found)

    depends = {reference(packages[id]): {reference(packages[other]) for other in needs(id)} for id in reached}
    components = [component(packages[id], checksums) for id in reached if id != root]
    for holder, part in bundled([packages[id] for id in reached]):
        components.append(part)
        depends[reference(holder)].add(part["bom-ref"])
        depends[part["bom-ref"]] = set()
    main = component(packages[root], checksums) | {"type": "application", "name": "mainstay"}
    made = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # Made from the lock file and the platform, so that one build has one number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, host() + hashlib.sha256(lock).hexdigest())}",
        "version": 1,
        "metadata": {"component": main, "properties": [{"name": "mainstay:target", "value": host()}]},
        "components": sorted(components, key=lambda one: one["bom-ref"]),
        "dependencies": [{"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(depends.items())],
    }
    return made, {packages[id]["name"] for id in metadata["workspace_members"]}


def check(bill, ours):
    """The parts of the schema that readers rely on, and what the schema cannot say: that nothing is missing."""
    components = bill["components"]
    refs = [one["bom-ref"] for one in components] + [bill["metadata"]["component"]["bom-ref"]]
    assert len(refs) == len(set(refs)), "a component is listed twice"
    assert {one["ref"] for one in bill["dependencies"]} == set(refs), "a component has no line of dependencies"
    for one in bill["dependencies"]:
        unknown = set(one["dependsOn"]) - set(refs)
        assert not unknown, f"{one['ref']} depends on {unknown}, which is not listed"
    for one in components:
        is_bundled = one["purl"].startswith("pkg:generic/")
        assert one["version"] and one["purl"].startswith("pkg:"), one
        assert one["name"] in ours or is_bundled or one.get("hashes"), f"{one['bom-ref']} has no hash"
        assert one.get("licenses") or one["purl"].startswith("pkg:npm/"), f"{one['bom-ref']} has no licence"
    names = {one["name"] for one in components}
    for needed in ["mainstay-store", "libsqlite3-sys", "sqlite", "rustls", "tokio-postgres", "htmx"]:
        assert needed in names, f"{needed} is missing"
    assert "mainstay-testkit" not in names, "what tests need is no part of the binary"


if __name__ == "__main__":
    made, ours = bill()
    check(made, ours)
    file = pathlib.Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made, indent=2) + "\n")
    print(f"-- {len(made['components'])} components are in {file}")
