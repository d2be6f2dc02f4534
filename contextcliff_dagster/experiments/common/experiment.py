"""The base of every experiment: one way to ask, to judge and to report, on shared machinery.

An experiment defines what is asked and what follows from the answers. Asking (ledger, budget,
resume, top-up, devices), the tables, the Dagster assets with their partitions, checks and code
versions, the jobs, the command line, the report and the archive come from `experiments.common` and
`defs`, the same for all. To add one: a folder here, and its line in `studies.experiment_table`.
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


def write_results(run: StudyRun, experiment: Experiment, results: Sequence[Any]) -> None:
    """Write ``results`` for `Experiment.write_results`, with the version of the method."""
    write_json(
        run.store.results_file(run.study.name, run.campaign, experiment.name),
        {
            "experiment": experiment.name,
            "version": experiment.version,
            "study": run.study.name,
            "campaign": run.campaign,
            "results": [to_json(result) for result in results],
        },
    )


def read_results(run: StudyRun, experiment: Experiment, kind: type[Any] | None = None) -> list[Any]:
    """Return the results of `write_results` as values of ``kind``, else ``experiment.result``.

    Raises:
        StoreError: there is none, it is damaged, or another version of the method wrote it.
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
"""The steps from calls to report that each experiment has, in order."""


@dataclass(frozen=True)
class Source:
    """Samples to ask, and columns that tell their rows from other sources' rows.

    ``columns``: name -> value, the same for every row; declared in the experiment's tables.
    ``follow_up``: the call that rests on the answer to one (`inference.requests.call_plan`), where
    examples are conversations; rows then come in the order of the steps. ``steps``: calls of a
    whole conversation, for the estimate. ``recipe``: None is the experiment's.
    """

    samples: SampleSource
    columns: Mapping[str, str] = field(default_factory=dict)
    follow_up: FollowUp | None = None
    steps: int = 1
    recipe: Recipe | None = None


class Experiment(ABC):
    """One way to ask and judge. Subclasses set the class attributes and override what differs.

    Attributes:
        name: key in a study file, and the beginning of its assets' names; a slug.
        version: of the method. Raise it when the same answers would give another result: what was
            made before is then stale in Dagster.
        section: type of the key's value, anything that pydantic validates; a false value (empty)
            is not asking for it. None: there is no such key.
        example: of the key's value, for docs/studies.md.
        makes_documents: whether it generates what it asks about, so that a study needs no corpus.
        documents: how these are kept in the store, in assets of their own; None: they are not.
        host: name of the experiment with whose records these are judged and reported, if any: no
            result and no report of its own; it hands over what `contribution` returns.
        dimension: Dagster's name for the partition dimension next to ``model``; later in the
            alphabet, so that a range of partitions goes model by model.
        result: dataclass of a result (as those of `contracts.results`); dict: JSON objects.
        predictions, records: the tables that it fills; the files lie at
            ``<study>/<table>/campaign=<c>/model=<m>/bin=<cell>/``.
        result_op: name of the Dagster op of the result, where that has several assets.
        description, records_description, result_descriptions: of its predictions, its records and
            (by asset) its results, in the UI.
        checks: which must hold before a result is believed.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    section: ClassVar[Any] = dict[str, Any]
    example: ClassVar[Any] = None
    makes_documents: ClassVar[bool] = False
    documents: ClassVar[KeptDocuments | None] = None
    host: ClassVar[str | None] = None
    dimension: ClassVar[str] = "part"
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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        name = getattr(cls, "name", None)
        if name is not None and slug(name) != name:
            raise TypeError(f"{cls.__name__}.name {name!r} is no slug: letters, digits, _ and -")
        if cls.dimension <= "model":
            raise TypeError(f"{cls.__name__}.dimension {cls.dimension!r} must sort after 'model'")

    def asset_names(self, step: Step) -> tuple[str, ...]:
        """Return the names of the assets of ``step``, below the study's; usually one."""
        if step == "report":
            return ("report",)
        if self.host is not None and step != "predictions":
            return ()
        return (f"{self.name}_{step}",)

    def document_assets(self) -> tuple[str, ...]:
        """Return the names of the assets of `documents` and their list; none without."""
        return (f"{self.name}_documents", f"{self.name}_manifest") if self.documents else ()

    def op_of_result(self) -> str:
        """Return the op that makes the result's assets: `result_op`, else the first one's name."""
        return self.result_op or next(iter(self.asset_names("result")), "")

    def is_asked(self, study: Study) -> bool:
        """Return whether ``study`` asks for this experiment."""
        return self.name in study.sections

    def cells(self, study: Study) -> tuple[str, ...]:
        """Return the partition keys of `dimension`, fixed by the study file alone; slugs."""
        raise NotImplementedError

    def samples_per_cell(self, study: Study) -> int:
        """Return how many examples a cell has when it is fully measured."""
        return study.sampling.samples_per_bin

    def not_asked(self, entry: ModelEntry) -> str | None:
        """Return why a model is not asked, a clause for people; None: it is."""
        return None

    def recipe(self, study: Study) -> Recipe:
        """Return the prompt around each document."""
        return study.recipe()

    def sources(self, run: StudyRun) -> Sequence[Source]:
        """Return the samples by cell, in the order in which they are asked."""
        raise NotImplementedError

    def expected_sources(self, run: StudyRun) -> Sequence[Source]:
        """Return `sources` for an estimate, with expected lengths of documents not made yet."""
        from contextcliff_dagster.experiments.common.measurement import sources_of

        return sources_of(run, self)

    def known_sources(self, run: StudyRun) -> Sequence[Source]:
        """Return all sources that may have answers, even if the study no longer asks them."""
        return self.sources(run)

    def score(self, run: StudyRun, source: Source, rows: Rows) -> Rows:
        """Return rows of `records` for prediction rows of one source; any number per row."""
        from contextcliff_dagster.experiments.common.records import score_by_answers

        return score_by_answers(self, run, source, rows)

    def merged_cells(self, run: StudyRun) -> Mapping[str, str | None]:
        """Return cell -> the cell that took its examples, where one had too few."""
        return {}

    def score_campaign(self, run: StudyRun) -> pa.Table:
        """Write the records of all answers in the campaign, and return them.

        Raises:
            StoreError: a table is damaged or cannot be written; nothing is answered yet.
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
            StoreError: there are none, or a table is damaged.
        """
        from contextcliff_dagster.experiments.common.records import read_record_table

        return read_record_table(self.records, run.study, run.store, run.campaign)

    def read_records(self, run: StudyRun) -> pd.DataFrame:
        """Return the records of the campaign as a data frame; raises like `read_record_table`."""
        records: pd.DataFrame = self.read_record_table(run).to_pandas()
        return records

    def check_records(self, run: StudyRun, records: pa.Table) -> Sequence[CheckOutcome]:
        """Return the outcomes of the `checks` with ``of="records"``: here `RECORD_CHECKS`."""
        from contextcliff_dagster.experiments.common.records import (
            RECORD_CHECKS,
            check_records,
        )

        return check_records(run.study, records) if {*RECORD_CHECKS} <= {*self.checks} else ()

    def analyse(
        self, run: StudyRun, records: pd.DataFrame, contributions: Mapping[str, Experiment]
    ) -> Analysis:
        """Return the analysis of the records; no call is made. ``contributions``: the experiments
        that this one is host to, by name."""
        raise NotImplementedError

    def write_results(self, run: StudyRun, analysis: Analysis) -> None:
        """Write the results; `read_results` reads them back."""

        write_results(run, self, analysis.results)

    def read_results(self, run: StudyRun) -> Sequence[Any]:
        """Return the results of the campaign as written.

        Raises:
            StoreError: there are none, or they are damaged.
        """

        return read_results(run, self)

    def contribution(self, run: StudyRun, model: str) -> Any:
        """Return the contribution to the host's analysis of one model; None if nothing is known."""
        return None

    def overview(self, result: Any) -> Mapping[str, Any]:
        """Return a result as one row of the UI's table, column -> scalar; empty: its first scalar
        fields."""
        return {}

    def headline(self, result: Any) -> Sequence[str]:
        """Return a result in sentences, the first the answer; none where there are none."""
        return getattr(result, "headline", ())

    def sections(self, run: StudyRun, results: Sequence[Any]) -> Sequence[Section]:
        """Return the sections of the report, as data."""
        return ()

    def has_page(self, study: Study) -> bool:
        """Return whether the study's report is a page of this experiment (`write_report`); else its
        `sections` go into the page of another, or into a plain one."""
        return False

    def write_report(self, run: StudyRun, others: Sequence[Section]) -> ReportFiles:
        """Write the study's report, with the sections of ``others``; requires `has_page`."""
        raise NotImplementedError

    def depends_on(self, study: Study, step: Step) -> Mapping[str, Any]:
        """Return the parts of ``study`` that determine the output of ``step``, JSON-ready.

        Together with `version` they are the asset's code version: an edit of one of them turns the
        asset stale in Dagster, an edit of anything else does not. What an earlier step depends on
        need not be repeated.
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
