"""The card as a page to read: MODEL_CARD.md."""

from __future__ import annotations

from contextcliff_dagster.reference.card import LevelCurve, ModelCard

_ABOUT = """\
A tiny Llama ({parameters:,} parameters) trained from scratch to look things up in warehouse
ledgers of up to {training_length:,} tokens. Its declared window is {window:,} tokens; its answers
hold up to about the training length and are lost beyond it. It exists to check an instrument that
measures where models stop being reliable, and for nothing else.
"""

_TRAINING = """\
## Training

{steps:,} steps, {tokens:,} document tokens, {questions:,} questions, {cpu:.0f} CPU seconds
({wall:.0f} s on the clock with {threads} thread{s} of a busy machine), seed {seed}, torch {torch}.
{ancestry} Loss on answer tokens only; Muon for the layers' matrices, AdamW for the rest, learning
rate {rate} with a linear decay over the last {decay:.0%} of the steps; lengths grew by 1.4 whenever
exact match at the longest was above {grow_above}.

**Warm start.** The weights begin random but for the attention matrices: the four heads of the first
layer begin by attending 1, 2, 3 and 4 tokens back, and in the second layer the key matrix begins
equal to the query matrix and the output matrix to the value matrix transposed. All are trained like
the other weights. Without the second layer's part, a trial run of the short model still gave fewer
than one answer in ten after 1,000 steps.
"""

_LIMITS = """\
## Limits

- It knows ledgers and their questions (`Find SKU-482?`; `Report` and `State` for `Find`) and
  nothing else: any other prompt is answered with noise.
- The curve holds for ledgers as `reference/warehouse_documents.py` generates them, asked by the
  default recipe of a study, greedy decoding, float32. Beyond the training length details matter:
  without the blank line that this recipe leaves before the question, the answers differ.
- Lengths are tokens of the document alone; blank line, question and chat template add 7 tokens.
- Documents never seen in training, but of the same kind: this is no claim about any other task.
"""


def _curve(curve: LevelCurve) -> str:
    two = curve.level == 2
    lines = [
        f"## Level {curve.level}: {'two hops' if two else 'lookup'}",
        "",
        f"Plateau {curve.plateau:.3f}; 30% of it is lost at **{curve.l70_tokens:,.0f} tokens** "
        f"(L70), half of it at {curve.l50_tokens:,.0f}.",
        "",
        "| document tokens | exact match | 95% interval | documents |"
        + (" mean distance of the two records, tokens |" if two else ""),
        "| ---: | ---: | :---: | ---: |" + (" ---: |" if two else ""),
    ]
    for point in curve.points:
        row = (
            f"| {point.length_tokens:,} | {point.exact_match:.3f} "
            f"| {point.low:.3f} to {point.high:.3f} | {point.n:,} |"
        )
        lines.append(row + (f" {point.inter_evidence_tokens:,.0f} |" if two else ""))
    return "\n".join(lines) + "\n"


def model_card_markdown(card: ModelCard) -> str:
    """The page for one model."""
    training, recipe = card.training, card.training["recipe"]
    ancestry = "Trained from its own start."
    if recipe["ancestor"]:
        ancestry = f"Continued from the finished `{recipe['ancestor']}`."
    parts = [
        f"# {card.name}\n",
        _ABOUT.format(
            parameters=card.parameters,
            training_length=card.training_length_tokens,
            window=card.window_tokens,
        ),
        *(_curve(curve) for curve in card.levels),
        "Exact match: every answer token and the end token right. Intervals: Wilson. Each document "
        "is fresh and asked once a level.\nThe loss points are read off the curve made "
        "non-increasing and interpolated in log length; the plateau is the mean over the\nlengths "
        "below 0.8 of the training length.\n",
        _TRAINING.format(
            steps=training["steps"],
            tokens=training["document_tokens"],
            questions=training["questions"],
            cpu=training["cpu_seconds"],
            wall=training["wall_seconds"],
            threads=training["threads"],
            s="" if training["threads"] == 1 else "s",
            seed=training["seed"],
            torch=training["torch"],
            ancestry=ancestry,
            rate=recipe["learning_rate"],
            decay=recipe["decay"],
            grow_above=recipe["grow_above"],
        ),
        _LIMITS,
    ]
    return "\n".join(parts)
