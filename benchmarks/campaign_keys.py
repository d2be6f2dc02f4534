"""Cost of many partition keys in Dagster: models x bins x campaigns, all of them materialized.

    python benchmarks/campaign_keys.py [--models 50] [--bins 20] [--campaigns 52]

Prints seconds of the query behind the page of partitions, of a tick of `report_when_measured` that
begins anew and of one that finds nothing new, and of taking over campaigns from the ledger. The
events are written by Dagster's storage, without a call.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import dagster as dg

STUDY = """
name: wide
corpus: {{kind: reference, task: lookup, documents: 400, max_tokens: 200}}
tokenizer: reference
bins: {{count: {bins}}}
models: [{models}]
assets: {{campaigns: {campaigns}}}
"""
PAGE = """
query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionKeysByDimension { name partitionKeys }
  partitionStats { numMaterialized numFailed numPartitions numMaterializing }
  assetPartitionStatuses { ... on MultiPartitionStatuses { primaryDimensionName ranges {
    primaryDimStartKey primaryDimEndKey secondaryDim { ... on DefaultPartitionStatuses {
      materializedPartitions failedPartitions unmaterializedPartitions } } } } } } } }"""
STALE = """
query ($key: AssetKeyInput!, $keys: [String!]) { assetNodeOrError(assetKey: $key) {
  ... on AssetNode { staleStatusByPartition(partitions: $keys) } } }"""
MODEL = "  {name}: {{engine: reference, model_id: reference-short, revision: of-{name}}}\n"


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("models", 50), ("bins", 20), ("campaigns", 52)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        names = [f"m{number:02d}" for number in range(given.models)]
        (folder / "studies").mkdir()
        text = STUDY.format(bins=given.bins, models=", ".join(names), campaigns=given.campaigns)
        (folder / "studies" / "wide.yaml").write_text(text)
        models = "".join(MODEL.format(name=name) for name in names)
        (folder / "models.yaml").write_text(f"models:\n{models}")
        os.environ.update(
            CONTEXTCLIFF_HOME=str(folder / "store"),
            CONTEXTCLIFF_STUDIES=str(folder / "studies"),
            CONTEXTCLIFF_MODELS=str(folder / "models.yaml"),
        )
        figures([f"c{number:03d}" for number in range(given.campaigns)])


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.perf_counter(), time.process_time()
    yield
    print(
        f"{what}: {time.perf_counter() - began[0]:.2f} s, "
        f"{time.process_time() - began[1]:.2f} CPU s",
        flush=True,
    )


def figures(campaigns: list[str]) -> None:
    """Write the events, and print the cost of what reads them."""
    from contextcliff_dagster.defs.campaign_runs import keep_campaigns, report_job, report_sensor
    from contextcliff_dagster.defs.partitions import partition_key
    from contextcliff_dagster.defs.resources import default_resources
    from contextcliff_dagster.defs.studies import study_assets
    from contextcliff_dagster.experiments.common.study_run import begin_campaign
    from contextcliff_dagster.store import Store
    from contextcliff_dagster.studies import find_study
    from contextcliff_dagster_tests.support.graphql import ui_of
    from contextcliff_dagster_tests.support.ticks import sensor_tick

    study, store = find_study("wide"), Store.default()
    for campaign in campaigns:
        begin_campaign(store, study.name, campaign)
    with dg.instance_for_test() as instance:
        with timed(f"{len(campaigns)} campaigns taken over from the ledger"):
            keep_campaigns(instance, store, [study])
        with timed("the same, where none is new"):
            keep_campaigns(instance, store, [study])
        key = dg.AssetKey(["wide", "predictions"])
        cells = [(model, cell) for model in study.models for cell in study.bin_keys]
        for campaign in campaigns:
            for cell in cells:
                made = dg.AssetMaterialization(key, partition=partition_key(campaign, *cell))
                instance.report_runless_asset_event(made)
        print(f"{len(campaigns) * len(cells):,} keys")
        report, resources = report_job(study), default_resources()
        location = dg.Definitions(study_assets(study), jobs=[report], resources=resources)
        sensor, cursor = report_sensor([study], [report]), None
        for what in ("first look", "look that begins anew", "look at nothing new"):
            with timed(what):
                asked, cursor = sensor_tick(sensor, instance, location, resources, cursor)
            print(f"  {len(asked)} reports asked for")
        with ui_of(instance) as ui:
            ui.ask(PAGE, key={"path": ["wide", "cliffs"]})
            for _ in range(2):
                with timed("page of partitions: keys, states, counts"):
                    ui.ask(PAGE, key={"path": ["wide", "predictions"]})
            newest = [str(partition_key(campaigns[-1], *cell)) for cell in cells]
            with timed("stale status of one campaign"):
                ui.ask(STALE, key={"path": ["wide", "predictions"]}, keys=newest)


if __name__ == "__main__":
    main()
