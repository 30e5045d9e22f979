"""What a release is made of, as CycloneDX 1.6 JSON on standard output: .ci/sbom.py MESSAGES TARGET BINARY

MESSAGES is what `cargo build --message-format json` said while it built BINARY for TARGET. A crate is listed because it was compiled, not because the lock file names
it. Crates of which something was compiled for TARGET are `required`; those that only ran during the build (build scripts, macros and what
these use) are `excluded`. The same build gives the same bytes: there is no time and no serial number in it.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path


def first_line(*command):
    # musl's ldd says its version on standard error, with a status.
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return (done.stdout or done.stderr).splitlines()[0]


def compiled(messages, target):
    """What was compiled: each package id with whether some of it was compiled for the target itself, and those that are macros."""
    found, macros = {}, set()
    with open(messages, encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line)
            if message["reason"] == "compiler-artifact":
                id = message["package_id"]
                inside = any(target in Path(file).parts for file in message["filenames"])
                found[id] = found.get(id, False) or inside
                if "proc-macro" in message["target"]["kind"]:
                    macros.add(id)
    return found, macros


def check_macros(names):
    """Macros run during the build, as build scripts do; `deny.toml` holds the list of those, `.ci/macros` of these."""
    listed = {line for line in Path(".ci/macros").read_text(encoding="utf-8").splitlines() if not line.startswith("#")}
    if names != listed:
        raise SystemExit(
            f"sbom: .ci/macros is not what was compiled: {sorted(names - listed)} are new, {sorted(listed - names)} are gone; "
            "read what a new one does while it runs, then list it"
        )


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums, required):
    if package["license"] is None:
        raise SystemExit(f"sbom: {package['name']} names no licence: give it one in deny.toml and here, or do without the crate")
    return {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if required else "excluded",
        # The checksum of the .crate file, as Cargo.lock holds it.
        "hashes": [{"alg": "SHA-256", "content": checksums[package["name"], package["version"]]}],
        # Old manifests write a slash for OR.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
        "purl": purl(package),
    }


def main(messages, target, binary):
    found, macros = compiled(messages, target)
    meta = metadata(target)
    packages = {package["id"]: package for package in meta["packages"]}
    check_macros({packages[id]["name"] for id in macros})
    lock = tomllib.loads(Path("Cargo.lock").read_text(encoding="utf-8"))
    checksums = {(entry["name"], entry["version"]): entry["checksum"] for entry in lock["package"] if "checksum" in entry}
    root = packages[meta["resolve"]["root"]]
    by_purl = sorted(found, key=lambda package: purl(packages[package]))
    uses = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if dep["pkg"] in found and any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        for node in meta["resolve"]["nodes"]
    }
    with open(binary, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tools = {"target": target, "rustc": first_line("rustc", "-V"), "cc": first_line("cc", "--version"), "libc": first_line("ldd", "--version")}
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "application",
                "bom-ref": purl(root),
                "name": root["name"],
                "version": root["version"],
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "licenses": [{"expression": root["license"]}],
                "purl": purl(root),
            },
            # What a second build needs to come to the same bytes.
            "properties": [{"name": f"leafgate:build:{name}", "value": value} for name, value in tools.items()],
        },
        "components": [component(packages[id], checksums, found[id]) for id in by_purl if id != root["id"]],
        "dependencies": [
            {"ref": purl(packages[id]), "dependsOn": sorted(purl(packages[used]) for used in uses[id])} for id in by_purl
        ],
    }
    json.dump(bom, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
