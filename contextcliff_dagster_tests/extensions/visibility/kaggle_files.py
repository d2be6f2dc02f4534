"""Small files in the formats of the competitions, made here."""

from __future__ import annotations

import io
import zipfile

import numpy as np

from contextcliff_dagster.extensions.visibility.tasks.kaggle import Format

WORDS = "calm day rude fool kind tree idiot river".split()


def rows_of(format: Format, count: int = 60) -> list[list[str]]:
    """Rows of a format: an id, targets in the order of its file, learnable from the features."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        number = k % 3
        if format.text:
            words = rng.choice(WORDS, 8)
            text = '"' + ", ".join(words) + f'\n""{k}"" é"'
            labels = [str(int(WORDS[j % len(WORDS)] in words)) for j in range(6)]
            rows.append([f"{k:08x}", text, *labels])
            continue
        features = [f"{number + rng.normal(0, 0.3):.6f}" for _ in format.features]
        names = {"leaf": ("Acer_Opalus", "Quercus_Rubra", "Tilia_Oliveri")[number]}
        target = names.get(format.name, str(number + 1))
        rows.append([str(k), target, *features])
    return rows


def table_of(format: Format, count: int = 60) -> str:
    order = format.features + format.targets if format.text else format.targets + format.features
    lines = [",".join(["id", *order]), *(",".join(row) for row in rows_of(format, count))]
    return "\n".join(lines) + "\n"


def zipped(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)
    return packed.getvalue()
