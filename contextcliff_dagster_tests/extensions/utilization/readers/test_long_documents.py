"""Two million tokens: read in full, once for all questions."""

from __future__ import annotations

import asyncio
import time

import pytest

from contextcliff_dagster.extensions.utilization.benchmarks.data import BENCHMARKS, BenchmarkName
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import generate, parameters_for
from contextcliff_dagster.extensions.utilization.prompts import TEMPLATES, asked
from contextcliff_dagster.extensions.utilization.rendering.sentences import FORMATS
from contextcliff_dagster.extensions.utilization.rendering.structured import render
from contextcliff_dagster.inference.engines.base import Decoding, open_engine
from contextcliff_dagster.inference.models.models_file import get_model
from contextcliff_dagster.inference.requests.recipe import Recipe, SharedText

RECORDS = {"warehouse": 60_000, "constraints": 74_000, "network": 66_000}
MOST_CPU_S = 20.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_perfect_reader_reads_two_million_tokens(name: BenchmarkName) -> None:
    data = generate(name, 1, parameters_for(name, RECORDS[name]))
    recipe = Recipe(template=TEMPLATES["after", "off"])

    async def read(text: str) -> list[tuple[str, int, float]]:
        engine = open_engine(get_model("reader-perfect"))
        await engine.start()
        shared, answers = SharedText(text), []
        for one in data.questions:
            began = time.process_time()
            prompt = recipe.render(shared, asked(one.text, one.form, "off"))
            *pieces, last = [delta async for delta in engine.stream(prompt, Decoding(64))]
            answer = "".join(piece.text for piece in pieces)
            assert last.usage is not None
            assert last.usage.prompt_tokens is not None
            answers.append((answer, last.usage.prompt_tokens, time.process_time() - began))
        await engine.stop()
        return answers

    for format in FORMATS[:2]:
        answers = asyncio.run(read(render(data, format).text))
        assert [answer for answer, _, _ in answers] == [one.answer for one in data.questions]
        assert all(seconds <= MOST_CPU_S for _, _, seconds in answers)
        assert format != "jsonl" or answers[0][1] > 1_900_000
