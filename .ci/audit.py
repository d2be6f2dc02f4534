"""Known vulnerabilities of the locked packages: `make audit`.

    python .ci/audit.py PIP_AUDIT LOCK [ALLOWED]

Exit code 1 where a package has one that the list of allowed ones (next to this file) does not
name. Where no vulnerability service answers nothing is known: a sentence says so, and that is no
failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMEOUT_S = 300


class NoAnswer(Exception):
    """No service answered; the message is the reason."""


def audited(program: str, requirements: str) -> list[dict[str, Any]]:
    """What pip-audit reports of ``requirements``, package by package.

    Raises:
        NoAnswer: it reported nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(requirements, "utf-8")
        options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "15")
        try:
            done = subprocess.run(
                [program, "--requirement", file, "--format", "json", *options],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoAnswer(str(error)) from error
        except (ValueError, KeyError, TypeError) as error:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise NoAnswer(lines[-1]) from error
    return packages


def main(program: str, lock: str, allowed: str) -> int:
    """Audit ``lock``; the exit code."""
    pins = re.findall(r"^[\w.-]+==[^\\\n]+", Path(lock).read_text("utf-8"), re.MULTILINE)
    lines = Path(allowed).read_text("utf-8").splitlines()
    known = {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}
    try:
        # One first: a service that does not know it is not asked for all the others.
        (first, *_) = audited(program, pins[0])
        if "skip_reason" in first:
            raise NoAnswer(first["skip_reason"])
        packages = audited(program, "\n".join(pins))
    except NoAnswer as reason:
        print(f"Audit skipped: no vulnerability service answered ({reason}).")
        return 0
    found = 0
    for package in packages:
        if "skip_reason" in package:
            print(f"Not audited: {package['skip_reason']}")
        for vulnerability in package.get("vulns", []):
            if known & {vulnerability["id"], *vulnerability.get("aliases", [])}:
                continue
            found += 1
            fixed = ", ".join(vulnerability.get("fix_versions", [])) or "no version yet"
            print(
                f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}; "
                f"`make lock ARGS=--upgrade`, or name it in {allowed} with the reason."
            )
    print(f"Audited {len(packages)} packages: {found} known vulnerabilities that are not allowed.")
    return 1 if found else 0


if __name__ == "__main__":
    own_list = str(Path(__file__).with_name("audit-allowed.txt"))
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else own_list))
