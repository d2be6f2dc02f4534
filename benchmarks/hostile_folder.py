"""Reading of 200 mixed files, 40 of them broken or hostile, within a minute on 2 workers.

The good ones (PDF, DOCX, EPUB, HTML, Markdown, text in several encodings, source code; from a
paragraph to a book) are written with words that occur once each and must come back with all of
them in order. Run: ``python benchmarks/hostile_folder.py [WORKERS]``; exits with 1 if a file is not
accounted for, a good one is not read whole, or it takes longer than 60 s.
"""

from __future__ import annotations

import re
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contextcliff_dagster.corpora.extraction import Extracted, Limits, Unusable, extract_all
from contextcliff_dagster_tests.support.files import document_files as made
from contextcliff_dagster_tests.support.files.hostile_files import write_hostile

LIMIT_S = 60.0
FILES = 200


def good_file(number: int) -> tuple[str, bytes, list[str]]:
    """Return name, content and words of one file of 30 to 60,000 words."""
    words = made.words(int(30 * 10 ** (number % 12 * 0.3)), first=number)
    lines = made.paragraphs(words, 10)
    text = "\n".join(lines)
    contents = [
        ("pdf", lambda: made.pdf([lines[i : i + 60] for i in range(0, len(lines), 60)])),
        ("docx", lambda: made.docx("".join(made.paragraph(made.run(line)) for line in lines))),
        ("epub", lambda: made.epub([made.xhtml(f"<p>{p}</p>") for p in lines])),
        ("html", lambda: f"<!doctype html><p>{'<p>'.join(lines)}".encode()),
        ("md", lambda: ("# Title\n\n" + text).encode("utf-8-sig")),
        ("txt", lambda: ("é\r\n" + text).encode("utf-16" if number % 2 else "cp1252")),
        ("py", lambda: ("'''\n" + text + "\n'''\n").encode()),
    ]
    ending, write = contents[number % 7]
    return f"good{number}.{ending}", write(), words


def main(workers: int | None = 2) -> int:
    errors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hostile = write_hostile(folder)
        known: dict[Path, list[str]] = {}
        for number in range(FILES - len(hostile)):
            file, content, words = good_file(number)
            (folder / file).write_bytes(content)
            known[folder / file] = words
        paths = sorted(folder.iterdir(), key=lambda path: hash_of(path.name))
        size = sum(path.stat().st_size for path in paths if path.name != "huge.txt") / 1e6
        print(f"{len(paths)} files, {len(hostile)} of them broken or hostile, {size:,.0f} MB")
        start = time.perf_counter()
        results = list(extract_all(paths, Limits(workers=workers)))
        took = time.perf_counter() - start
    errors += [] if [r.path for r in results] == paths else ["files are missing, or out of order"]
    for result in results:
        if result.path in known:
            words_read = re.findall(r"\w+", result.text) if isinstance(result, Extracted) else []
            wanted = known[result.path]
            ours = set(wanted)
            if [word for word in words_read if word in ours] != wanted:
                errors.append(f"{result.path.name} was not read whole: {str(result)[:200]}")
        elif isinstance(result, Unusable):
            print(f"  {result.path.name:17} {result.reason}", flush=True)
    count = Counter(r.kind if isinstance(r, Extracted) else "unusable" for r in results)
    print(", ".join(f"{kind} {n}" for kind, n in count.most_common()))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"{took:.1f} s on {workers} workers (limit {LIMIT_S:g} s), {cpu:.1f} s of CPU in them")
    errors += [] if took <= LIMIT_S else [f"took {took:.1f} s"]
    print("\n".join(errors) or "every file is accounted for, every good one read whole")
    return 1 if errors else 0


def hash_of(name: str) -> int:
    """Return a sort key that mixes the files in the same order every run."""
    return sum(ord(letter) * 31**at for at, letter in enumerate(name[::-1])) % 9973


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
