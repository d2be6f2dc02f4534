"""Pin the images of Dockerfile and compose.yaml to what their tags mean today.

    python docker/pin_digests.py            # write NAME:TAG@sha256:... where a registry answers
    python docker/pin_digests.py --check    # change nothing; exit code 1 where a pin is not current

Needs Docker's client with buildx, which knows registries and log-ins. A tag can be moved, a digest
cannot: commit what this writes. To go to another version, change the tag and run it again. An image
whose registry does not answer is left as it is. Exit code 2 where none answered.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = ("Dockerfile", "compose.yaml")
IMAGE = re.compile(
    r"^(?P<before>FROM |\s+image: )(?P<name>[\w./-]+:[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?",
    re.MULTILINE,
)


def current_digest(name: str) -> str:
    """``sha256:...`` of a tag.

    Raises:
        LookupError: nobody knows; the message is the reason.
    """
    command = ["docker", "buildx", "imagetools", "inspect", name]
    try:
        done = subprocess.run(
            [*command, "--format", "{{.Manifest.Digest}}"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LookupError(str(error)) from error
    digest = done.stdout.strip()
    if done.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no digest"]
        raise LookupError(lines[-1])
    return digest


def main() -> int:
    """Pin or check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    texts = {file: (HERE / file).read_text("utf-8") for file in FILES}
    names = sorted({m["name"] for text in texts.values() for m in IMAGE.finditer(text)})
    digests, stale = {}, False
    for name in names:
        try:
            digests[name] = current_digest(name)
        except LookupError as reason:
            print(f"{name}: left as it is ({reason})", file=sys.stderr)

    def pinned(match: re.Match[str]) -> str:
        digest = digests.get(match["name"])
        return f"{match['before']}{match['name']}@{digest}" if digest else match[0]

    for file, text in texts.items():
        written = IMAGE.sub(pinned, text)
        stale |= written != text
        if not check:
            (HERE / file).write_text(written, "utf-8")
    for name, digest in digests.items():
        print(f"{name}@{digest}")
    if not digests:
        return 2
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
