"""Assets before the first call: raw corpus, length map, audit, manifest and cost estimate."""

# No `from __future__ import annotations` here: Dagster reads config and resources off the
# annotations of an asset and does not resolve strings.

import dagster as dg

from contextcliff_dagster.contracts import EXAMPLES, LENGTH_MAP, MANIFEST_EXAMPLES
from contextcliff_dagster.defs import checks
from contextcliff_dagster.defs.asset_specs import study_asset
from contextcliff_dagster.defs.partitions import tagged_run
from contextcliff_dagster.defs.resources import CampaignConfig, StoreResource, Watch
from contextcliff_dagster.defs.ui import calls
from contextcliff_dagster.defs.ui import sampling as show
from contextcliff_dagster.experiments.common import preparation as steps
from contextcliff_dagster.experiments.common.code_version import preparation_version
from contextcliff_dagster.experiments.common.measurement import estimate_cost
from contextcliff_dagster.experiments.lookup import asked_experiments
from contextcliff_dagster.sampling.manifest import stored_sha256
from contextcliff_dagster.step_progress import report_step
from contextcliff_dagster.studies import Study


class CorpusConfig(dg.Config):
    """Config of reading the corpus."""

    reread: bool = False
    """Whether to open the source even if a frozen manifest exists; a changed source is then sampled
    again."""


def preparation_assets(study: Study) -> list[dg.AssetsDefinition]:
    """Return `raw_corpus`, `length_map`, `distribution_audit` and `manifest` of ``study``."""

    @study_asset(
        study,
        "raw_corpus",
        "Questions over documents at their natural length, as the corpus adapter reads them.",
        kinds={"python", "parquet"},
        table=EXAMPLES,
        code_version=preparation_version(study, "raw_corpus"),
    )
    def raw_corpus(config: CorpusConfig, contextcliff_store: StoreResource) -> dg.MaterializeResult:
        report_step("reading the documents")
        corpus = steps.prepare_corpus(study, contextcliff_store.open(), reread=config.reread)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(corpus.fingerprint),
            metadata=show.corpus_metadata(corpus),
        )

    @study_asset(
        study,
        "length_map",
        f"Tokens of every example's document under `{study.tokenizer}`.",
        deps=["raw_corpus"],
        kinds={"python", "parquet"},
        table=LENGTH_MAP,
        code_version=preparation_version(study, "length_map"),
    )
    def length_map(contextcliff_store: StoreResource) -> dg.MaterializeResult:
        report_step("counting tokens of the documents")
        where = contextcliff_store.open()
        lengths = steps.prepare_length_map(study, where)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(steps.lengths_version(study, where, lengths)),
            metadata=show.length_metadata(lengths),
        )

    @study_asset(
        study,
        "distribution_audit",
        "Does the corpus support the study? Histogram, coverage, starved bins, a verdict.",
        deps=["length_map", "raw_corpus"],
        kinds={"python", "json"},
        code_version=preparation_version(study, "distribution_audit"),
        check_specs=checks.specs(study, "distribution_audit", checks.AUDIT),
    )
    def distribution_audit(contextcliff_store: StoreResource) -> dg.MaterializeResult:
        audit = steps.prepare_audit(study, contextcliff_store.open())
        return dg.MaterializeResult(
            metadata=show.audit_metadata(audit),
            check_results=checks.audit_results(study, audit),
        )

    @study_asset(
        study,
        "manifest",
        "The frozen, self-contained sample; once it exists the corpus may be deleted.",
        deps=["raw_corpus", "length_map", "distribution_audit"],
        kinds={"python", "parquet"},
        table=MANIFEST_EXAMPLES,
        code_version=preparation_version(study, "manifest"),
        check_specs=checks.specs(study, "manifest", checks.MANIFEST),
    )
    def manifest(contextcliff_store: StoreResource) -> dg.MaterializeResult:
        report_step("drawing the sample")
        where = contextcliff_store.open()
        frozen = steps.freeze_manifest(study, where)
        on_disk = stored_sha256(where.manifest_dir(study.name))
        return dg.MaterializeResult(
            # The hash: else an identical rerun would make everything downstream stale.
            data_version=dg.DataVersion(frozen.sha256),
            metadata=show.manifest_metadata(study, where, frozen),
            check_results=checks.manifest_results(study, frozen.sha256, on_disk),
        )

    return [raw_corpus, length_map, distribution_audit, manifest]


def cost_estimate_asset(study: Study) -> dg.AssetsDefinition:
    """Return `cost_estimate`: the remaining cost of all experiments of the study."""

    @study_asset(
        study,
        "cost_estimate",
        "Tokens, money and time of the calls not yet made, per model and bin.",
        deps=[
            *(["manifest"] if study.has_corpus else []),
            *(name for e in asked_experiments(study) for name in e.document_assets()[1:]),
        ],
        kinds={"python"},
        code_version=preparation_version(study, "cost_estimate"),
    )
    def cost_estimate(
        config: CampaignConfig,
        contextcliff_store: StoreResource,
        contextcliff_watch: dg.ResourceParam[Watch],
    ) -> dg.MaterializeResult:
        with tagged_run(study, contextcliff_store, config.campaign) as run:
            contextcliff_watch.estimate = estimate = estimate_cost(run, asked_experiments(study))
        return dg.MaterializeResult(metadata=calls.estimate_metadata(run.campaign, estimate))

    return cost_estimate
