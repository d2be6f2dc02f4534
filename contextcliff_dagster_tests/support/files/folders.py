"""Folders as users have them, written anew for each test."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from contextcliff_dagster.corpora.folder import FolderCorpus
from contextcliff_dagster_tests.support.files.scripts import prose


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def library(folder: Path, documents: int = 40) -> Path:
    """Prose of many lengths under names with blanks and accents, nested, with a table of questions.

    Each question asks for a number that occurs in one document alone.
    """
    rows = ["document,question,answers"]
    for number in range(documents):
        sub = ("", "Verträge 2024/", "合同/2023/", "with blanks/")[number % 4]
        name = f"{sub}Bericht {number:02d}.{'md' if number % 3 else 'txt'}"
        script = "chinese" if number % 8 == 2 else "english"
        text = prose(script, sentences=5 + number * 4, seed=number)
        text = f"# Bericht {number}\n\nThe reference number is {7000 + number}.\n\n{text}"
        write(folder / name, text)
        rows.append(f'{name},"What is the reference number?",{7000 + number}')
    write(folder / "questions.csv", "\n".join(rows) + "\n")
    return folder


def hostile(folder: Path) -> dict[str, str]:
    """A folder in which little is what it seems, next to a secret; each file's fate by name."""
    home = folder / "docs"
    good = prose("english", sentences=30)
    fates = {}

    def put(name: str, content: str | bytes, fate: str) -> None:
        write(home / name, content)
        fates[name] = fate

    put("a good one.txt", good, "used")
    put("käse und brot.md", prose("german", sentences=30), "used")
    put("deep/" * 30 + "leaf.txt", prose("russian", sentences=30), "used")
    put("copy.txt", good, "duplicate")
    put("nothing.txt", b"", "empty")
    put("blank.md", " \n\t\n", "empty")
    put("bytes.txt", bytes(range(256)) * 40, "unreadable")
    put("broken.pdf", b"%PDF-1.7\nnothing that belongs into one", "unreadable")
    put("short.txt", "A short note on the harbour.", "too_short")
    put("monotonous.txt", "All work and no play makes Jack a dull boy. " * 100, "no_question")
    put("~$report.docx", b"\x05Ada", "ignored")
    put("Thumbs.db", b"\xd0\xcf\x11\xe0", "ignored")
    put(".hidden.txt", good, "hidden")
    for name in (".git/config", "node_modules/left-pad/index.js", "env/pyvenv.cfg"):
        write(home / name, prose("english", sentences=30, seed=7))
    fates |= {".git/": "hidden", "node_modules/": "ignored", "env/": "ignored"}
    write(
        folder / "secret.txt", "The password is open sesame, as everybody here knows by now.\n" * 9
    )
    (home / "out.txt").symlink_to(folder / "secret.txt")
    (home / "up").symlink_to(folder)
    (home / "self").symlink_to(home)
    (home / "loop.txt").symlink_to(home / "loop.txt")
    (home / "gone.txt").symlink_to(home / "nowhere.txt")
    (home / "again.txt").symlink_to(home / "a good one.txt")
    fates |= {"out.txt": "link_out", "up": "link_out", "self": "link", "loop.txt": "link"}
    fates |= {"gone.txt": "link", "again.txt": "link"}
    os.mkfifo(home / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(home)  # a socket's path may be 107 bytes long
        try:
            listening.bind("socket.txt")
        finally:
            os.chdir(before)
    fates |= {"pipe.txt": "not_a_file", "socket.txt": "not_a_file"}
    return fates


def recall_of(folder: Path, **options: Any) -> FolderCorpus:
    return FolderCorpus({"path": str(folder), "questions": "recall", **options})
