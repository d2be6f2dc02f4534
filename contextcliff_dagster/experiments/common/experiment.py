"""The base class of experiments.

An experiment defines its questions and the analysis of the answers. Measuring (ledger, budget,
resume, top-up, devices), the tables, the Dagster assets with their partitions, checks and code
versions, the jobs, the command line, the report and the archive come from `experiments.common` and
`defs`. To add an experiment, add a folder here and a line in `studies.experiment_table`.
"""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, StoreError, Table
from contextcliff_dagster.contracts.results import ResultError, from_json, to_json
from contextcliff_dagster.experiments.common.outcomes import (
    Alarm,
    Analysis,
    CheckOutcome,
    CheckSpec,
)
from contextcliff_dagster.scoring import SCORER_VERSION
from contextcliff_dagster.store import slug, write_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from contextcliff_dagster.experiments.common.documents import KeptDocuments
    from contextcliff_dagster.experiments.common.study_run import StudyRun
    from contextcliff_dagster.inference.models.models_file import ModelEntry
    from contextcliff_dagster.inference.requests.call_plan import FollowUp
    from contextcliff_dagster.inference.requests.recipe import Recipe
    from contextcliff_dagster.reporting.report_files import ReportFiles
    from contextcliff_dagster.reporting.sections import Section
    from contextcliff_dagster.sampling.manifest import SampleSource
    from contextcliff_dagster.studies import Study


def read_results(run: StudyRun, experiment: Experiment, kind: type[Any] | None = None) -> list[Any]:
    """Return the stored results as values of ``kind`` (default ``experiment.result``).

    Raises:
        StoreError: no result exists, it is damaged, or another version of the method wrote it.
    """
    path = run.store.results_file(run.study.name, run.campaign, experiment.name)
    again = f"run `contextcliff report {run.study.name}`"
    try:
        kept = json.loads(path.read_bytes())
        if kept["version"] != experiment.version:
            raise StoreError(
                f"{path} was written by version {kept['version']} of {experiment.name} (here: "
                f"{experiment.version}); {again}."
            )
        kind = kind or experiment.result
        if kind is dict:
            return list(kept["results"])
        return [from_json(kind, result) for result in kept["results"]]
    except FileNotFoundError:
        raise StoreError(
            f"Study {run.study.name!r} has no result of {experiment.name} in campaign "
            f"{run.campaign} yet; {again}."
        ) from None
    except ResultError as error:
        raise StoreError(f"{path} cannot be read: {error}; {again}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error}); delete it and {again}.") from error


__all__ = ["Alarm", "Analysis", "CheckOutcome", "CheckSpec", "Experiment", "Rows", "Source", "Step"]

Rows = list[dict[str, Any]]
Step = Literal["predictions", "records", "result", "report"]
"""Steps of each experiment, from calls to report, in order."""


@dataclass(frozen=True)
class Source:
    """Samples to ask, and columns that distinguish their rows from other sources' rows.

    ``columns``: name -> value, the same for every row; declared in the experiment's tables.
    ``follow_up``: builds the next call from an answer (`inference.requests.call_plan`), if examples
    are conversations; rows then come in the order of the steps. ``steps``: calls per conversation,
    for the estimate. ``recipe``: None means the experiment's recipe.
    """

    samples: SampleSource
    columns: Mapping[str, str] = field(default_factory=dict)
    follow_up: FollowUp | None = None
    steps: int = 1
    recipe: Recipe | None = None


class Experiment(ABC):
    """Base class of experiments: subclasses set class attributes and override methods.

    Attributes:
        name: key in a study file, and prefix of its assets' names; a slug.
        version: version of the method. Raise it if the same answers would give another result:
            earlier results are then stale in Dagster.
        section: type of the key's value, anything that pydantic validates; an empty value does not
            ask for the experiment. None: there is no key.
        example: example of the key's value, for docs/studies.md.
        makes_documents: whether it generates its documents, so that a study needs no corpus.
        documents: how these are stored, in separate assets; None: they are not stored.
        host: name of the experiment that judges and reports these records, if any. A guest has no
            result or report; its host uses the value of `contribution`.
        by_bins: whether its cells are the length bins of the study's sample.
        result: dataclass of a result (as in `contracts.results`); dict: JSON objects.
        predictions, records: tables that it fills; their files are at
            ``<study>/<table>/campaign=<c>/model=<m>/bin=<cell>/``.
        result_op: name of the Dagster op of the result, if it has several assets.
        description, records_description, result_descriptions: UI descriptions of its predictions,
            its records and (by asset) its results.
        checks: conditions that its results must meet.
        writes_page: whether it writes the report page of a study without a corpus.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    section: ClassVar[Any] = dict[str, Any]
    example: ClassVar[Any] = None
    makes_documents: ClassVar[bool] = False
    documents: ClassVar[KeptDocuments | None] = None
    host: ClassVar[str | None] = None
    by_bins: ClassVar[bool] = False
    predictions: ClassVar[Table] = PREDICTIONS
    records: ClassVar[Table] = EVAL_RECORDS
    result: ClassVar[type[Any]] = dict
    result_op: ClassVar[str | None] = None
    description: ClassVar[str] = ""
    records_description: ClassVar[str] = (
        "Every prediction scored: exact match, token F1, containment, and why it failed."
    )
    result_descriptions: ClassVar[Mapping[str, str]] = {}
    checks: ClassVar[Sequence[CheckSpec]] = ()
    writes_page: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = getattr(cls, "name", None)
        if name is not None and slug(name) != name:
            raise TypeError(f"{cls.__name__}.name {name!r} must be letters, digits, _ and -")

    def asset_names(self, step: Step) -> tuple[str, ...]:
        """Return the names of the assets of ``step``, without the study's name; usually one."""
        if step == "report":
            return ("report",)
        if self.host is not None and step != "predictions":
            return ()
        return (f"{self.name}_{step}",)

    def document_assets(self) -> tuple[str, ...]:
        """Return the names of the assets of `documents` and their list; empty without documents."""
        return (f"{self.name}_documents", f"{self.name}_manifest") if self.documents else ()

    def op_of_result(self) -> str:
        """Return the op of the result's assets: `result_op`, or else the first asset's name."""
        return self.result_op or next(iter(self.asset_names("result")), "")

    def is_asked(self, study: Study) -> bool:
        """Return whether ``study`` requests this experiment."""
        return self.name in study.sections

    def cells(self, study: Study) -> tuple[str, ...]:
        """Return the cells of each model, fixed by the study file alone; slugs."""
        if not self.by_bins:
            raise NotImplementedError
        return study.bin_keys

    def samples_per_cell(self, study: Study) -> int:
        """Return the number of examples in a fully measured cell."""
        return study.sampling.samples_per_bin

    def before_first_call(self, run: StudyRun) -> Sequence[str]:
        """Return sentences on work that a study waits for before its first call, and its cost."""
        return ()

    def not_asked(self, entry: ModelEntry) -> str | None:
        """Return why a model is not asked, as a clause for people; None if it is asked."""
        return None

    def recipe(self, study: Study) -> Recipe:
        """Return the recipe of the prompt around each document."""
        return study.recipe()

    def sources(self, run: StudyRun) -> Sequence[Source]:
        """Return the samples by cell, in the order of asking."""
        raise NotImplementedError

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        """Return `sources` for an estimate, with expected lengths for missing documents."""
        from contextcliff_dagster.experiments.common.measurement import sources_of

        return sources_of(run, self)

    def known_sources(self, run: StudyRun) -> Sequence[Source]:
        """Return all sources that may have answers, even if the study no longer uses them."""
        return self.sources(run)

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        """Return `records` rows, any number for each of one or more prediction rows of a source."""
        from contextcliff_dagster.experiments.common.records import score_by_answers

        return score_by_answers(self, run, source, rows)

    def merged_cells(self, run: StudyRun) -> Mapping[str, str | None]:
        """Return cell -> the cell into which it was merged for lack of examples."""
        return {}

    def score_campaign(self, run: StudyRun) -> pa.Table:
        """Write and return the records of all answers in the campaign.

        Raises:
            StoreError: a table is damaged or cannot be written, or there are no answers yet.
        """
        from contextcliff_dagster.experiments.common.records import score_campaign
        from contextcliff_dagster.experiments.common.study_run import table_files

        score_campaign(run, self)
        if not table_files(run.store, self.records, run.study.name, run.campaign):
            failure = run.ledger.last_failure(run.study.name, run.campaign)
            why = f" (the last request: {failure})" if failure else ""
            raise StoreError(
                f"Study {run.study.name!r} has no answers in campaign {run.campaign} yet{why}; run "
                f"`contextcliff profile {run.study.name}`."
            )
        return self.read_record_table(run)

    def read_record_table(self, run: StudyRun) -> pa.Table:
        """Return the records of the campaign.

        Raises:
            StoreError: there are no records, or a table is damaged.
        """
        from contextcliff_dagster.experiments.common.records import read_record_table

        return read_record_table(self.records, run.study, run.store, run.campaign)

    def read_records(self, run: StudyRun) -> pd.DataFrame:
        """Return the records of the campaign as a data frame; raise like `read_record_table`."""
        records: pd.DataFrame = self.read_record_table(run).to_pandas()
        return records

    def check_records(self, run: StudyRun, records: pa.Table) -> Sequence[CheckOutcome]:
        """Return the outcomes of the `checks` with ``of="records"``, by default `RECORD_CHECKS`."""
        from contextcliff_dagster.experiments.common.records import RECORD_CHECKS, check_records

        return check_records(run.study, records) if {*RECORD_CHECKS} <= {*self.checks} else ()

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        """Return the analysis of the records, without calls. ``contributions``: guest experiments
        of this host, by name."""
        raise NotImplementedError

    def write_results(self, run: StudyRun, analysis: Analysis) -> None:
        """Write the results with the version of the method; `read_results` reads them back."""
        write_json(
            run.store.results_file(run.study.name, run.campaign, self.name),
            {
                "experiment": self.name,
                "version": self.version,
                "study": run.study.name,
                "campaign": run.campaign,
                "results": [to_json(result) for result in analysis.results],
            },
        )

    def read_results(self, run: StudyRun) -> Sequence[Any]:
        """Return the results of the campaign as written.

        Raises:
            StoreError: there are no results, or they are damaged.
        """

        return read_results(run, self)

    def check_results(self, run: StudyRun) -> Sequence[CheckOutcome]:
        """Return the outcomes of the `checks` with ``of="result"``; raise like `read_results`."""
        return ()

    def contribution(self, run: StudyRun, model: str) -> Any:
        """Return the contribution to the host's analysis of one model; None without data."""
        return None

    def overview(self, result: Any) -> Mapping[str, Any]:
        """Return a result as a row of the UI's table, column -> scalar; if empty, the UI shows its
        first scalar fields."""
        return {}

    def headline(self, result: Any) -> Sequence[str]:
        """Return a result in sentences, starting with the answer; empty if there are none."""
        return getattr(result, "headline", ())

    def sections(self, run: StudyRun, results: Sequence[Any]) -> Sequence[Section]:
        """Return the data of the report's sections."""
        return ()

    def has_page(self, study: Study) -> bool:
        """Return whether this experiment writes the study's report page (`write_report`); if not,
        its `sections` go into another experiment's page or a plain one."""
        return self.writes_page and not study.has_corpus

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        """Write the study's report, with the sections of ``others``; requires `has_page`."""
        raise NotImplementedError

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        """Return the parts of ``study`` that determine the output of ``step``, JSON-ready.

        Together with `version` they form the asset's code version: only an edit of these parts
        makes the asset stale in Dagster. Omit parts on which an earlier step depends.
        """
        if step == "predictions":
            recipe = {"recipe": self.recipe(study).hash}
            if self.section is None:
                return recipe
            asked = study.model_dump(mode="json", include={self.name}).get(self.name)
            return {"section": asked, **recipe}
        if step == "records":
            scoring = study.scoring.model_dump(mode="json", exclude_none=True)
            return {"scoring": scoring, "scorers": SCORER_VERSION}
        if step == "result":
            return {"analysis": study.analysis.model_dump(mode="json")}
        return {"description": study.description}
