#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""release.py BUILD FOLDER: what is published of a version; `make release`.

    tlt-VERSION.tar.gz     the source of the commit
    tlt_rl-VERSION-….whl   the wheel of `make wheel`
    tlt-VERSION.spdx.json  the SBOM: all that is built or linked, with versions and SHA-256 (SPDX 2.3)
    SHA256SUMS             of these
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import stage
import wheel as wheels

VERSION = wheels.build_backend.project("version")


def git(*words):
    command = ["git", "-C", stage.ROOT, *words]
    utc = {**os.environ, "TZ": "UTC"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=utc).stdout.strip()


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def debian_versions(names):
    """Name to version of those that are installed."""
    form = "-f=${db:Status-Abbrev}${Package} ${Version}\n"
    output = subprocess.run(["dpkg-query", "-W", form, *names], capture_output=True, text=True, check=False).stdout
    return dict(re.findall(r"^ii *(\S+) (\S+)$", output, re.MULTILINE))


def debian_hashes(versions):
    """Name to SHA-256 of the package file, of those that apt's lists have."""
    words = [f"{name}={version}" for name, version in versions.items()]
    output = subprocess.run(["apt-cache", "show", *words], capture_output=True, text=True, check=False).stdout
    hashes = {}
    for entry in output.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", entry, re.MULTILINE))
        if versions.get(fields.get("Package")) == fields.get("Version") and "SHA256" in fields:
            hashes[fields["Package"]] = fields["SHA256"]
    return hashes


def package(kind, name, version, digest=None):
    """A package of the SBOM."""
    entry = {
        "SPDXID": f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{'debian/' if kind == 'deb' else ''}{name}@{version}",
            }
        ],
    }
    if digest:
        entry["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
    return entry


def relation(first, kind, second):
    return {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second}


def sbom(build, wheel):
    """The SPDX document: the wheel, what it contains and depends on, and what built it."""
    root = "SPDXRef-tlt"
    listed = (stage.ROOT / "setup/debian-packages.txt").read_text(encoding="utf-8").splitlines()
    inside = {wheels.debian_package(path) for path in wheels.bundled(build / "tlt").values()}
    versions = debian_versions(sorted(inside | {name for name in listed if not name.startswith("#")}))
    hashes = debian_hashes(versions)
    own = package("pypi", "tlt-rl", VERSION, sha256(wheel))
    own.update({"SPDXID": root, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0"})
    packages, relations = [own], [relation("SPDXRef-DOCUMENT", "DESCRIBES", root)]
    for name, (version, digest) in wheels.pins().items():
        packages.append(package("pypi", name, version, digest))
        relations.append(relation(root, "DEPENDS_ON", packages[-1]["SPDXID"]))
    for name, version in versions.items():
        packages.append(package("deb", name, version, hashes.get(name)))
        if name in inside:
            relations.append(relation(root, "CONTAINS", packages[-1]["SPDXID"]))
        else:
            relations.append(relation(packages[-1]["SPDXID"], "BUILD_DEPENDENCY_OF", root))
    digest = hashlib.sha256(json.dumps([packages, relations]).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tlt-{VERSION}",
        "documentNamespace": f"https://spdx.org/spdxdocs/tlt-{VERSION}-{digest}",
        "creationInfo": {
            "created": git("log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"),
            "creators": ["Tool: tlt-make-release"],
        },
        "packages": packages,
        "relationships": relations,
    }


def write_release(build, folder):
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"tlt-{VERSION}.tar.gz"
    git("archive", "--format=tar.gz", f"--prefix=tlt-{VERSION}/", f"--output={source.resolve()}", "HEAD")
    wheel = wheels.write_wheel(build, folder)
    bill = folder / f"tlt-{VERSION}.spdx.json"
    bill.write_text(json.dumps(sbom(build, wheel), indent=1) + "\n", encoding="utf-8")
    sums = [f"{sha256(path)}  {path.name}\n" for path in (source, wheel, bill)]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return [source, wheel, bill, folder / "SHA256SUMS"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    changed = git("status", "--porcelain", "--untracked-files=no")
    if changed:
        raise SystemExit("files differ from the commit, and the archive would lack that; commit first")
    for path in write_release(given.build, given.folder):
        print(f"{path} ({path.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
