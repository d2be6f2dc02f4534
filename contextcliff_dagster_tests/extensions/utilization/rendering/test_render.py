"""How records are written down: the design document's forms, exact positions, one order for all."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.extensions.utilization.benchmarks.data import (
    BENCHMARKS,
    DOMAINS,
    Benchmark,
)
from contextcliff_dagster.extensions.utilization.rendering.sentences import (
    FORMATS,
    all_templates,
    templates,
)
from contextcliff_dagster.extensions.utilization.rendering.structured import (
    parse,
    permutation,
    render,
)
from contextcliff_dagster_tests.extensions.utilization.records import make_record, some_data

SALE = make_record("warehouse", "sale", ts=1704067200, warehouse="WH-0042", sku="SKU-0017", qty=-3)
OUT = make_record(
    *("warehouse", "transfer_out"),
    ts=1704067845,
    warehouse="WH-0089",
    sku="SKU-0017",
    qty=-12,
    dest="WH-0042",
)
EQ = make_record("constraints", "eq", e1="E-0042", a1="color", e2="E-0189", a2="color")
NEQ = make_record("constraints", "neq", entity="E-0042", attr="color", value="purple")
IMPL = make_record(
    *("constraints", "impl"),
    if_entity="E-0042",
    if_attr="color",
    if_value="blue",
    then_entity="E-0100",
    then_attr="rating",
    then_value=7,
)
NODE = make_record("network", "node", id="N-0042")
EDGE = make_record("network", "edge", from_="N-0042", to="N-0189", weight=47)
SET = make_record("network", "set", ts=1704067200, from_="N-0042", to="N-0189", value=23)


def data_of(benchmark: str, *records: object) -> Benchmark:
    return Benchmark(benchmark, 1, {}, records, ())


@pytest.mark.parametrize(
    ("benchmark", "record", "line"),
    [
        (
            "warehouse",
            SALE,
            '{"ts":1704067200,"warehouse":"WH-0042","sku":"SKU-0017","action":"sale","qty":-3}',
        ),
        (
            "warehouse",
            OUT,
            '{"ts":1704067845,"warehouse":"WH-0089","sku":"SKU-0017","action":"transfer_out",'
            '"qty":-12,"dest":"WH-0042"}',
        ),
        ("constraints", EQ, '{"type":"eq","e1":"E-0042","a1":"color","e2":"E-0189","a2":"color"}'),
        ("network", EDGE, '{"type":"edge","from":"N-0042","to":"N-0189","weight":47}'),
        (
            "network",
            SET,
            '{"type":"event","ts":1704067200,"from":"N-0042","to":"N-0189","action":"set",'
            '"value":23}',
        ),
    ],
)
def test_json_lines_are_those_of_the_design_document(
    benchmark: str, record: object, line: str
) -> None:
    assert render(data_of(benchmark, record), "jsonl").text == line


@pytest.mark.parametrize(
    ("benchmark", "name", "record", "sentence"),
    [
        (
            *("warehouse", "sale", SALE),
            "At 00:00:00 on January 1st, 2024, Warehouse 42 sold 3 units of SKU-0017.",
        ),
        (
            *("warehouse", "transfer_out", OUT),
            "At 00:10:45 on January 1st, 2024, Warehouse 89 transferred 12 units of SKU-0017 to "
            "Warehouse 42.",
        ),
        ("constraints", "eq", EQ, "Entity 42 and Entity 189 have the same color."),
        ("constraints", "neq", NEQ, "Entity 42 is not purple."),
        (
            *("constraints", "impl", IMPL),
            "If Entity 42 is blue, then Entity 100 has a rating of 7.",
        ),
        ("network", "node", NODE, "Node 42 exists in the network."),
        (
            *("network", "edge", EDGE),
            "There is a connection from Node 42 to Node 189 with initial weight 47.",
        ),
        (
            *("network", "set", SET),
            "At 00:00:00 on January 1st, 2024, the connection from Node 42 to Node 189 was updated "
            "to weight 23.",
        ),
    ],
)
def test_the_first_sentence_of_a_type_is_the_design_documents(
    benchmark: str, name: str, record: dict[str, object], sentence: str
) -> None:
    assert templates(benchmark)[name, "standard"][0].write(record) == sentence


def test_prose_minds_number_sign_ordinals_and_articles() -> None:
    def first(name: str, benchmark: str = "warehouse", **values: object) -> str:
        template = templates(benchmark)[name, "standard"][0]
        return template.write(make_record(benchmark, name, **values))

    where = {"warehouse": "WH-0007", "sku": "SKU-0001"}
    assert first("sale", ts=0, qty=-1, **where).endswith("Warehouse 7 sold 1 unit of SKU-0001.")
    adjusted = [first("adjustment", ts=0, qty=quantity, **where) for quantity in (-1, 4, 0)]
    assert [text.partition(" was ")[2] for text in adjusted] == [
        "reduced by 1 unit in an adjustment.",
        "increased by 4 units in an adjustment.",
        "left unchanged in an adjustment.",
    ]
    days = [first("sale", ts=day * 86_400, qty=-2, **where).split()[4] for day in range(31)]
    assert days[:4] == ["1st,", "2nd,", "3rd,", "4th,"]
    assert days[10:13] == ["11th,", "12th,", "13th,"]
    assert [days[20], days[21], days[22], days[30]] == ["21st,", "22nd,", "23rd,", "31st,"]
    for value, words in (("orange", "an orange"), ("blue", "a blue")):
        said = first("fact", "constraints", entity="E-0001", attr="accent", value=value)
        assert said == f"Entity 1 has {words} accent."
    said = first("fact", "constraints", entity="E-0001", attr="fit", value="xlarge")
    assert said == "Entity 1 has an xlarge fit."


def test_every_attribute_is_worded_so_that_no_two_sound_alike() -> None:
    (template, *_) = templates("constraints")["fact", "standard"]
    facts = [
        make_record("constraints", "fact", entity="E-0001", attr=attribute, value=value)
        for attribute, domain in DOMAINS.items()
        for value in domain
    ]
    assert len({template.write(fact) for fact in facts}) == len(facts) == 80


def test_tables_have_one_header_and_empty_cells() -> None:
    data = data_of("warehouse", SALE, OUT)
    assert render(data, "csv").text.split("\n") == [
        "ts,warehouse,sku,action,qty,dest,source",
        "1704067200,WH-0042,SKU-0017,sale,-3,,",
        "1704067845,WH-0089,SKU-0017,transfer_out,-12,WH-0042,",
    ]
    assert render(data, "markdown", "terse").text.split("\n") == [
        "| t | w | s | a | q | d | o |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 1704067200 | WH-0042 | SKU-0017 | sale | -3 |  |  |",
        "| 1704067845 | WH-0089 | SKU-0017 | transfer_out | -12 | WH-0042 |  |",
    ]


def test_verbosity_changes_the_keys_and_leaves_the_values() -> None:
    data = data_of("warehouse", SALE)
    written = [
        json.loads(render(data, "jsonl", verbosity).text)
        for verbosity in ("standard", "terse", "descriptive")
    ]
    assert [list(one) for one in written[1:]] == [
        ["t", "w", "s", "a", "q"],
        [
            *("timestamp", "warehouse_identifier", "stock_keeping_unit"),
            *("action_performed", "quantity_change"),
        ],
    ]
    assert len({tuple(one.values()) for one in written}) == 1


@given(st.randoms(use_true_random=False), st.sampled_from(BENCHMARKS))
def test_starts_are_where_each_record_begins(draw: random.Random, benchmark: str) -> None:
    data = some_data(benchmark, draw, records=5)
    for format in FORMATS:
        for order in ("chronological", "shuffled"):
            text, starts = render(data, format, order=order)
            header = "\n".join(text.split("\n")[: {"csv": 1, "markdown": 2}.get(format, 0)])
            for record, start in zip(data.records, starts, strict=True):
                line = text[start:].partition("\n")[0]
                assert parse(f"{header}\n{line}", data.name) == [record]


def test_the_shuffle_is_one_permutation_for_all_formats_and_keeps_each_line() -> None:
    data = some_data("warehouse", random.Random(3), records=40)
    order = permutation(data, "shuffled")
    assert order != sorted(order) == list(range(len(data.records)))
    for format in FORMATS:
        plain, shuffled = (
            render(data, format, order=one).text.split("\n")
            for one in ("chronological", "shuffled")
        )
        header = len(plain) - len(order)
        assert shuffled[header:] == [plain[header:][index] for index in order]


def test_sentences_vary_by_seed_and_not_by_what_a_record_holds() -> None:
    sales = [{**SALE, "qty": -quantity} for quantity in range(1, 401)]
    other = [{**SALE, "sku": "SKU-0001", "qty": -2}] * 400

    def drawn(records: list[dict[str, object]], seed: int) -> list[str]:
        data = Benchmark("warehouse", seed, {}, tuple(records), ())
        sentences = render(data, "prose").text.split("\n")
        known = templates("warehouse")["sale", "standard"]
        return [
            next(one.sentence for one in known if one.write(record) == sentence)
            for record, sentence in zip(records, sentences, strict=True)
        ]

    assert drawn(sales, 1) == drawn(other, 1) != drawn(sales, 2)
    counts = Counter(drawn(sales, 1))
    assert len(counts) == 4
    assert min(counts.values()) > 60


def test_the_same_seed_writes_the_same_bytes_everywhere() -> None:
    data = Benchmark("warehouse", 42, {}, (SALE, OUT) * 50, ())
    text = render(data, "prose", order="shuffled").text
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "b5d2c80e4dcd0816"


def test_all_types_have_as_many_sentences() -> None:
    for benchmark in BENCHMARKS:
        sizes = Counter(
            (template.spec.name, template.verbosity) for template in all_templates(benchmark)
        )
        for (_, verbosity), size in sizes.items():
            assert size == {"standard": 4, "terse": 1, "descriptive": 2}[verbosity]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"qty": "3"}, "qty cannot be '3'"),
        ({"qty": True}, "qty cannot be True"),
        ({"ts": -1}, "ts cannot be -1"),
        ({"warehouse": "WH-42"}, "warehouse cannot be 'WH-42'"),
        ({"sku": "SKU-00017"}, "sku cannot be 'SKU-00017'"),
        ({"action": "gift"}, "the warehouse benchmark has no record"),
        ({"dest": "WH-0001"}, "the fields of a record of type sale are ts, warehouse"),
    ],
)
def test_an_impossible_record_is_refused(change: dict[str, object], said: str) -> None:
    for format in FORMATS:
        with pytest.raises(ValueError, match=said):
            render(data_of("warehouse", {**SALE, **change}), format)


def test_an_unknown_way_of_writing_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; choose one of jsonl, prose"):
        render(data_of("warehouse", SALE), "xml")
    with pytest.raises(ValueError, match="unknown verbosity 'long'"):
        render(data_of("warehouse", SALE), "prose", "long")
