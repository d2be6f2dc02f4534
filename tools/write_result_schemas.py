"""Write the JSON Schemas of the result files from their declarations: `make schemas`."""

from __future__ import annotations

import json
from pathlib import Path

from contextcliff_dagster.contracts.extensions import extensions, load_address
from contextcliff_dagster.contracts.results import RESULT_FILES, ResultFile
from contextcliff_dagster.store import PACKAGE


def schemas() -> dict[Path, ResultFile]:
    """Return schema path -> result file, for the core and for each extension with results."""
    files = {PACKAGE / "schemas" / f"{file.name}.schema.json": file for file in RESULT_FILES}
    for name, extension in extensions().items():
        if extension.result is not None and extension.folder is not None:
            title = f"ContextCliff {name} result of one model"
            file = ResultFile(name, load_address(extension.result), title)
            files[extension.folder / "result.schema.json"] = file
    return files


def schema_text(file: ResultFile) -> str:
    """Return the schema of ``file`` as the text to commit."""
    return json.dumps(file.schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for path, file in schemas().items():
        path.write_text(schema_text(file), encoding="utf-8")


if __name__ == "__main__":
    main()
