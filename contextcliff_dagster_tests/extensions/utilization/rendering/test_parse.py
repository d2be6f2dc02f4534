"""Every record comes back from every document, and what is no document is named by its line."""

from __future__ import annotations

import random
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    SCHEMAS,
    BenchmarkName,
)
from contextcliff_dagster.extensions.utilization.benchmarks.sizes import (
    SMALLEST,
    generate,
    parameters_for,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    Format,
    Order,
    Verbosity,
    all_templates,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import (
    detect,
    markdown_cells,
    parse,
    permutation,
    render,
)
from contextcliff_dagster_tests.extensions.utilization.records import a_record, some_data

VERBOSITIES: tuple[Verbosity, ...] = get_args(Verbosity)
ORDERS: tuple[Order, ...] = get_args(Order)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_record_comes_back_from_each_of_1000_seeds(benchmark: BenchmarkName) -> None:
    for seed in range(1000):
        draw = random.Random(seed)
        data = some_data(benchmark, draw, records=3)
        # Prose each time, every verbosity and order within 6 seeds; the others by turns.
        verbosity, order = VERBOSITIES[seed % 3], ORDERS[seed // 3 % 2]
        expected = [data.records[index] for index in permutation(data, order)]
        for format in ("prose", FORMATS[seed // 6 % 4]):
            text = render(data, format, verbosity, order).text
            found = parse(text, benchmark)
            assert found == expected, (seed, format)
            assert [list(one) for one in found] == [list(one) for one in expected]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_record_of_1000_generated_documents_comes_back(benchmark: BenchmarkName) -> None:
    parameters = parameters_for(benchmark, SMALLEST[benchmark])
    for seed in range(1000):
        data = generate(benchmark, seed, parameters)
        text = render(data, "prose", VERBOSITIES[seed % 3]).text
        assert parse(text, benchmark) == list(data.records), seed


@given(st.randoms(use_true_random=False), st.sampled_from(BENCHMARKS))
def test_every_format_verbosity_and_order_is_recognised(
    draw: random.Random, benchmark: BenchmarkName
) -> None:
    data = some_data(benchmark, draw, records=4)
    for format in FORMATS:
        for verbosity in VERBOSITIES:
            for order in ORDERS:
                text = render(data, format, verbosity, order).text
                expected = [data.records[index] for index in permutation(data, order)]
                assert detect(text.partition("\n")[0], benchmark) == format
                assert parse(text, benchmark) == parse(text, benchmark, format) == expected


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_no_sentence_says_two_different_records(benchmark: BenchmarkName) -> None:
    known = [(re.compile(one.pattern), one) for one in all_templates(benchmark)]
    draw = random.Random(5)
    for spec in SCHEMAS[benchmark]:
        for _ in range(60):
            record = a_record(benchmark, spec, draw)
            for template in (one for _, one in known if one.spec == spec):
                sentence = template.write(record)
                readings = [
                    other.read(match.groups())
                    for pattern, other in known
                    if (match := pattern.fullmatch(sentence))
                ]
                assert readings
                assert all(reading == record for reading in readings), sentence


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_sentences_of_different_records_differ(benchmark: BenchmarkName) -> None:
    said: dict[str, object] = {}
    draw = random.Random(6)
    for spec in SCHEMAS[benchmark]:
        for _ in range(200):
            record = a_record(benchmark, spec, draw)
            for template in all_templates(benchmark):
                if template.spec == spec:
                    assert said.setdefault(template.write(record), record) == record


def test_empty_lines_and_line_ends_of_windows_are_passed_over() -> None:
    data = some_data("network", random.Random(1), records=5)
    for format in FORMATS:
        lines = render(data, format).text.split("\n")
        assert parse("\n" + "\r\n\r\n".join(lines) + "\r\n", "network") == list(data.records)
    assert parse("\n \n", "network") == []


@pytest.mark.parametrize(
    ("benchmark", "format", "text", "said"),
    [
        ("network", "prose", "Node 1 exists.\nNode 02 exists.", "line 2 is not a record"),
        ("network", "prose", "Node 1 was here.", "no sentence of this benchmark reads like this"),
        (
            *("warehouse", "prose"),
            "At 00:00:00 on February 30th, 2024, Warehouse 1 sold 2 units of SKU-0001.",
            "line 1 is not a record",
        ),
        (
            *("warehouse", "prose"),
            "At 00:00:00 on February 2th, 2024, Warehouse 1 sold 2 units of SKU-0001.",
            "there is no such day: on February 2th, 2024",
        ),
        (
            *("warehouse", "prose"),
            "At 00:00:00 on February 2nd, 2024, Warehouse 1 sold 1 units of SKU-0001.",
            "no sentence",
        ),
        ("constraints", "prose", "The color of Entity 1 is Oslo.", "color cannot be 'Oslo'"),
        ("constraints", "prose", "Entity 1 has an blue accent.", "no sentence"),
        ("network", "jsonl", '{"type":"node","id":"N-0001"}\n{"type"', "line 2 .* not JSON: "),
        ("network", "jsonl", '["node"]', "it is not a JSON object"),
        ("network", "jsonl", '{"type":"node"}', "no record type has these keys"),
        ("network", "jsonl", '{"type":"knot","id":"N-0001"}', "no record type has these keys"),
        ("network", "jsonl", '{"type":"node","id":"N-1"}', "id cannot be 'N-1'"),
        ("network", "jsonl", '{"type":["node"],"id":"N-0001"}', "no record type"),
        (
            *("constraints", "jsonl"),
            '{"type":"fact","entity":"E-0001","attr":"rating","value":"7"}',
            "rating cannot be '7'",
        ),
        ("network", "csv", "type,id\nnode,N-0001", "line 1 is not a header"),
        (
            *("network", "csv"),
            "type,id,from,to,weight,ts,action,value\nnode,N-0001",
            "line 2 .* it has 2 cells, the header 8",
        ),
        (
            *("network", "csv"),
            "y,i,f,o,w,t,a,v\nedge,,N-0001,N-0002,heavy,,,",
            "weight cannot be 'heavy'",
        ),
        (
            *("network", "markdown"),
            "| y | i | f | o | w | t | a | v |\n| --- |\nnode N-0001",
            "line 3 .* not a Markdown table row",
        ),
    ],
)
def test_the_line_that_cannot_be_read_is_named(
    benchmark: BenchmarkName, format: Format, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        parse(text, benchmark, format)
    assert "\n" not in str(raised.value)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'"):
        parse("<a/>", "network", "xml")


def test_bars_and_backslashes_in_cells_come_back() -> None:
    assert markdown_cells(r"| a\|b | c\\ | \\\| |  |") == ["a|b", "c\\", "\\|", ""]
    with pytest.raises(ValueError, match="not a Markdown table row"):
        markdown_cells(r"| a \|")
