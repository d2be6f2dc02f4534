"""Fetch public-domain prose, six novels of Jane Austen: ``make prose``.

Debian's package r-cran-janeaustenr (MIT) contains them as R data. apt-get downloads it from its
configured sources, dpkg unpacks it, and rdata reads the texts without R; nothing is installed. The
result is 717,000 words in six files in ``data/prose``.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

from contextcliff_dagster.contracts import ContextCliffError, CorpusError, install_command
from contextcliff_dagster.store import PACKAGE, atomic_path, checkout_root, store_root

DEBIAN_PACKAGE = "r-cran-janeaustenr"
SHA256 = {
    "emma": "7c67b5985c6d0de1efaeb5d342d52cb82c38083c40e2295129e30e87ee690ebe",
    "mansfieldpark": "98bc90519cdf4ef663ad7de2734bb529435ef24f7abbde6bb1a50898871dafe9",
    "northangerabbey": "51f91bbe0517db8e65cff009b097ce0a1836124c4e0532ac19e6c0cad982abed",
    "persuasion": "8061549557aebd2fd6e353d18d9197cb707029112bd52d4d8b174583a925848a",
    "prideprejudice": "dfc684d4f857fa938268f9ab9c5567b64bd0691251eca959644adeabe6287a4d",
    "sensesensibility": "105e1651fe93bed7130078578efd31e0c557d68667ba672ddc876f735b30fe09",
}
"""R's name of each novel -> SHA-256 of its text in UTF-8 with LF line ends."""
_INSIDE = "usr/lib/R/site-library/janeaustenr/data"
_FETCH_SECONDS = 300


def prose_folder() -> Path:
    """Return the folder for prose: ``data/prose`` of a checkout, else ``prose`` in the store."""
    checkout = checkout_root() or checkout_root(PACKAGE)
    return checkout / "data" / "prose" if checkout else store_root() / "prose"


def fetch_prose(folder: Path | None = None, say: Callable[[str], None] = print) -> list[Path]:
    """Return the six novels' files in ``folder`` (default: `prose_folder`), fetching missing ones.

    Raises:
        CorpusError: apt-get or dpkg failed, rdata is not installed, or a text has changed.
        StoreError: the folder cannot be written.
    """
    target = folder or prose_folder()
    paths = {name: target / f"{name}.txt" for name in SHA256}
    if all(path.is_file() and _digest(path.read_bytes()) == SHA256[n] for n, path in paths.items()):
        say(f"{target} has the novels.")
        return list(paths.values())
    with tempfile.TemporaryDirectory(prefix="contextcliff-") as temporary:
        say(f"Fetching {DEBIAN_PACKAGE} (1.6 MB) ...")
        novels = read_novels(_unpacked(Path(temporary)) / _INSIDE)
    for name, path in paths.items():
        data = novels.get(name, b"")
        if _digest(data) != SHA256[name]:
            raise CorpusError(
                f"{name} of {DEBIAN_PACKAGE} is not the expected text (by its SHA-256), so it was "
                "not kept; the package has changed, please report this."
            )
        with atomic_path(path) as partial:
            partial.write_bytes(data)
    say(f"{target} has the novels.")
    return list(paths.values())


def read_novels(folder: Path) -> dict[str, bytes]:
    """Return name -> text of each vector of lines in an R package's lazily loaded data.

    ``Rdata.rdx`` lists the offset and size of each object in ``Rdata.rdb``. An object is its size
    (four bytes, big endian), followed by its deflated serialisation.

    Raises:
        CorpusError: rdata is not installed, or the files are missing or damaged.
    """
    try:
        from rdata.conversion import convert
        from rdata.parser import parse_data
    except ImportError as error:
        raise CorpusError(f"Reading R data needs rdata: {install_command('prose')}.") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that serialised values are no file of a known suffix
            index = convert(parse_data((folder / "Rdata.rdx").read_bytes()))["variables"]
            objects = (folder / "Rdata.rdb").read_bytes()
            novels = {}
            for name, (start, size) in index.items():
                lines = convert(parse_data(zlib.decompress(objects[start + 4 : start + size])))
                novels[str(name)] = ("\n".join(map(str, lines)) + "\n").encode()
    except (OSError, ValueError, KeyError, TypeError, zlib.error, NotImplementedError) as error:
        raise CorpusError(
            f"{folder} does not hold R data that can be read ({error}); fetch it again."
        ) from error
    return novels


def _unpacked(folder: Path) -> Path:
    _run(["apt-get", "download", "--quiet", "--quiet", DEBIAN_PACKAGE], folder)
    files = list(folder.glob("*.deb"))
    if len(files) != 1:
        raise CorpusError(
            f"apt-get left no file of {DEBIAN_PACKAGE}; run `apt-get update` and try again."
        )
    _run(["dpkg", "-x", str(files[0]), str(folder / "unpacked")], folder)
    return folder / "unpacked"


def _run(command: list[str], folder: Path) -> None:
    remedy = (
        "check the network and apt's sources, or put public-domain novels as .txt files into "
        f"{prose_folder()} yourself."
    )
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except FileNotFoundError:
        raise CorpusError(f"This needs {command[0]}, as on Debian or Ubuntu; {remedy}") from None
    except subprocess.TimeoutExpired:
        raise CorpusError(f"{command[0]} did not end within {_FETCH_SECONDS} s; {remedy}") from None
    if process.returncode:
        problem = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise CorpusError(f"{command[0]} could not fetch {DEBIAN_PACKAGE} ({problem}); {remedy}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    try:
        fetch_prose()
    except ContextCliffError as error:
        sys.exit(str(error))
