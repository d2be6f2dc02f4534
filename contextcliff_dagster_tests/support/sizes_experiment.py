"""An experiment of twenty lines: does the share of right answers depend on how many records there
are? `EXPERIMENTS` gets one line for it, and nothing else knows it."""

from __future__ import annotations

from contextcliff_dagster.contracts import EVAL_RECORDS, PREDICTIONS, Table
from contextcliff_dagster.experiments.common.documents import GeneratedSamples, Made
from contextcliff_dagster.experiments.common.experiment import Analysis, Experiment, Source
from contextcliff_dagster.reference.warehouse_documents import generate_ledger
from contextcliff_dagster.reporting.sections import DataTable, Paragraph, Section


def _make(cell):
    for seed in range(4):
        made = generate_ledger(seed, int(cell[1:]))
        yield Made(made.text, made.questions[0].question, made.questions[0].answers)


class Sizes(Experiment):
    name, section, dimension, makes_documents = "sizes", tuple[int, ...], "records", True
    predictions = Table("sizes_predictions", "Answers by size.", PREDICTIONS.columns)
    records = Table("sizes_records", "Scored answers by size.", EVAL_RECORDS.columns)

    def cells(self, study):
        return tuple(f"r{size:03d}" for size in study.sections["sizes"])

    def sources(self, run):
        return [Source(GeneratedSamples(_make, len))]

    def analyse(self, run, records, contributions):
        means = records.groupby(["model", "bin"], sort=True)["score"].agg(["mean", "size"])
        return Analysis(
            [
                {"model": m, "size": b, "mean": r["mean"], "n": int(r["size"])}
                for (m, b), r in means.iterrows()
            ]
        )

    def sections(self, run, results):
        rows = [[r["model"], r["size"], r["mean"], r["n"]] for r in results]
        return [
            Section(
                "Right answers by size",
                [Paragraph("Lengths are made."), DataTable(("model", "size", "mean", "n"), rows)],
            )
        ]


SIZES = Sizes()
