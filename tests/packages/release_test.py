#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files of `make release`: sums, source archive, SBOM."""
import json
import re
import subprocess
import tarfile
import unittest

import support
from support import BUILD, ROOT, ScratchCase, run

import release


class ReleaseTest(ScratchCase):
    def test_files_of_a_release(self):
        asked = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, check=False)
        if asked.returncode != 0:
            self.skipTest("no git checkout, or one of another user")
        files = release.write_release(BUILD, self.scratch)
        self.assertEqual(len(files), 4)
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.scratch)
        with tarfile.open(files[0]) as archive:
            names = archive.getnames()
        self.assertTrue(all(name.startswith(f"tlt-{release.VERSION}") for name in names))
        self.assertIn(f"tlt-{release.VERSION}/Makefile", names)
        self.check_sbom(json.loads(files[2].read_text()))

    def check_sbom(self, bill):
        for key in ("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo"):
            self.assertTrue(bill[key])
        self.assertRegex(bill["creationInfo"]["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        ids = [package["SPDXID"] for package in bill["packages"]]
        self.assertEqual(len(ids), len(set(ids)))
        for relation in bill["relationships"]:
            self.assertIn(relation["spdxElementId"], [*ids, "SPDXRef-DOCUMENT"])
            self.assertIn(relation["relatedSpdxElement"], ids)
        packages = {package["name"]: package for package in bill["packages"]}
        for line in (ROOT / "setup/wheels.txt").read_text().splitlines():
            if not line.startswith("#"):
                name, version, digest = re.match(r"(\S+)==(\S+) --hash=sha256:(\S+)", line).groups()
                self.assertEqual(packages[name]["versionInfo"], version)
                self.assertEqual(packages[name]["checksums"], [{"algorithm": "SHA256", "checksumValue": digest}])
        for name in (ROOT / "setup/debian-packages.txt").read_text().splitlines():
            if not name.startswith("#"):
                self.assertEqual(packages[name]["versionInfo"], release.debian_versions([name])[name])
        self.assertIn("libflint17", packages)  # inside the wheel


if __name__ == "__main__":
    support.main()
