"""Write the JSON Schemas of the result files from their declarations: `make schemas`."""

from __future__ import annotations

import json
from pathlib import Path

from contextcliff_dagster.contracts.extensions import extensions, load_address
from contextcliff_dagster.contracts.results import RESULT_FILES, ResultFile
from contextcliff_dagster.store import PACKAGE


def schemas() -> dict[Path, ResultFile]:
    """Each result file by the path of its schema; of an experiment what it says of one model."""
    found = {PACKAGE / "schemas" / f"{file.name}.schema.json": file for file in RESULT_FILES}
    for name, one in extensions().items():
        if one.result is not None and one.folder is not None:
            title = f"ContextCliff {name} result of one model"
            file = ResultFile(name, load_address(one.result), title)
            found[one.folder / "result.schema.json"] = file
    return found


def schema_text(file: ResultFile) -> str:
    """The schema of ``file`` as it is committed."""
    return json.dumps(file.schema(), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for path, file in schemas().items():
        path.write_text(schema_text(file), encoding="utf-8")


if __name__ == "__main__":
    main()
