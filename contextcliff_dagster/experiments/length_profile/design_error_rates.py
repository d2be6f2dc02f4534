"""Error rates of a study's design: kept next to it, and quoted by its report while they hold.

`<study>/calibration.json` holds for the sample, the tolerance, the confidence and the code that
were simulated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextcliff_dagster.contracts import SCHEMA_VERSION, ContextCliffError
from contextcliff_dagster.experiments.length_profile.profile_files import version_of
from contextcliff_dagster.experiments.length_profile.simulated_design import frozen_sample
from contextcliff_dagster.store import PACKAGE, Store, write_json
from contextcliff_dagster.studies import Study

if TYPE_CHECKING:
    from contextcliff_dagster.analysis.design.error_rates import Calibration
    from contextcliff_dagster.analysis.records.settings import AnalysisSettings
    from contextcliff_dagster.contracts.results import Cliffs
    from contextcliff_dagster.experiments.length_profile.simulated_design import DesignBasis
    from contextcliff_dagster.sampling.manifest import Manifest

_NEARLY = 0.1
"""Of the simulated examples: so many more or fewer may have been scored."""


def as_result(
    basis: DesignBasis, calibration: Calibration, settings: AnalysisSettings, study: str | None
) -> dict[str, Any]:
    """The JSON object: what was simulated, with what, and what came of it."""
    from contextcliff_dagster.analysis.design.error_rates import describe

    return {
        "schema_version": SCHEMA_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "study": study,
        "design": describe(basis.plan),
        "sources": basis.sources,
        "tolerance": settings.tolerance,
        "confidence": settings.confidence,
        "chance": settings.chance,
        **asdict(calibration),
        "versions": versions(),
    }


def keep(store: Store, study: Study, result: Mapping[str, Any]) -> Path:
    """Write ``result`` next to the study.

    Raises:
        StoreError: it cannot be written.
    """
    path = store.calibration_file(study.name)
    write_json(path, result)
    return path


def quoted(study: Study, store: Store, manifest: Manifest, cliffs: Sequence[Cliffs]) -> list[str]:
    """The sentence about this design's error rates, where it was simulated as it was measured."""
    from contextcliff_dagster.reporting.design_error_rates import quote

    try:
        result = json.loads(store.calibration_file(study.name).read_bytes())
        return [quote(result)] if _holds(result, study, manifest, cliffs) else []
    except (OSError, ValueError, KeyError, TypeError, StopIteration, ContextCliffError):
        return []  # none, or a damaged one: the report does without


def _holds(
    result: Mapping[str, Any], study: Study, manifest: Manifest, cliffs: Sequence[Cliffs]
) -> bool:
    from contextcliff_dagster.analysis.design.error_rates import Plan, describe
    from contextcliff_dagster.analysis.design.simulation import Design

    design, analysis = result["design"], study.analysis
    settings = [result["versions"], result["tolerance"], result["confidence"]]
    own = [versions(), analysis.tolerance, analysis.confidence]
    if [*settings, result.get("chance", 0.0)] != [*own, analysis.chance]:
        return False
    same = Design(
        bins=study.bins.count,
        per_bin=design["per_bin"],
        questions=(1, study.sampling.questions_per_document),
        pool=None,
        binary=design["binary"],
        replicates=study.prompt.replicates,
    )
    sample, stretched = frozen_sample(manifest, same.per_bin)
    if stretched or describe(Plan(same, 0.5, sample))["sha256"] != design["sha256"]:
        return False
    examples = design["examples"]
    return all(abs(of.n - examples) <= _NEARLY * examples for of in cliffs)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """What the rates hold for: the program, and the code of its analysis by hash."""
    digest = hashlib.sha256()
    for path in sorted((PACKAGE / "analysis").rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    program = version_of("contextcliff-dagster") or "unknown"
    return {"contextcliff-dagster": program, "analysis": digest.hexdigest()[:16]}
