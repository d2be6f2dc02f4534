"""Every task of a benchmark that is read here scores as its published rule does.

The rules are written here again, from the papers and their descriptions, on plain strings; records
are written in the published form, and answers go the whole way from corpus to evaluation record.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextcliff_dagster.contracts import Example
from contextcliff_dagster.corpora.benchmarks import longbench
from contextcliff_dagster.scoring.evaluate import ScoringRules, score_rows
from contextcliff_dagster.scoring.parse import parse_answer
from contextcliff_dagster.scoring.scorers import RULE, scorer_of
from contextcliff_dagster_tests.scoring.test_scripts import f1_of, mlqa_tokens
from contextcliff_dagster_tests.support.files.benchmark_files import read, write_json, write_lines

TEXT = "The harbour was closed in winter. " * 20
TREC = ["Description of a person", "Location", "Other location", "City", "Number of something"]
LSHT = ["农业、农村", "军事", "体育"]
Rule = Callable[[str, str], float]


def squad_f1(output: str, gold: str) -> float:
    def tokens(text: str) -> list[str]:
        plain = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", plain).split()

    return f1_of(tokens(output), tokens(gold))


def chinese_f1(output: str, gold: str) -> float:
    return f1_of(mlqa_tokens(output), mlqa_tokens(gold))


def right_numbers(output: str, gold: str) -> float:
    """LongBench: of all numbers in the output, those that are the accepted one."""
    counts = Counter(re.findall(r"\d+", output))
    (right, *_) = re.findall(r"\d+", gold)
    return counts[right] / counts.total() if counts else 0.0


def one_of_labels(labels: Sequence[str]) -> Rule:
    def share(output: str, gold: str) -> float:
        first = output.lstrip("\n").partition("\n")[0]
        found = {label for label in labels if first.find(label) >= 0}
        found -= {label for label in found if label != gold and gold.find(label) >= 0}
        return (gold in found) / len(found) if found else 0.0

    return share


def first_line_f1(output: str, gold: str) -> float:
    return squad_f1(output.lstrip("\n").partition("\n")[0], gold)


def hotpot_f1(output: str, gold: str) -> float:
    plain = [" ".join(one.lower().replace(".", "").split()) for one in (output, gold)]
    if plain[0] != plain[1] and set(plain) & {"yes", "no", "noanswer"}:
        return 0.0
    return squad_f1(output, gold)


def letter(output: str, gold: str) -> float:
    found = re.findall(r"\b([A-D])\b", output)
    return float(found == [gold])


def lines_after_mark(count: int | None) -> Rule:
    def equal(output: str, gold: str) -> float:
        lines = re.split(r"\[Answer\]|\[答案\]", output)[-1].strip().lower().split("\n")
        return float(gold.lower() in [" ".join(line.split()) for line in lines][:count])

    return equal


def babi_label(question: str, labels: Sequence[str]) -> Rule:
    """As published: labels are found inside words, too."""

    def alone(output: str, gold: str) -> float:
        sentence = re.split(r"[.]|<context>|<example>", output.lower())[0]
        named = {one for one in labels if one in sentence and one not in question.lower()}
        return float(named == (set(gold.split(",")) if len(gold) > 3 else {gold}))

    return alone


def leval_letters(output: str, gold: str) -> float:
    given = set(re.findall(r"(?<![a-z])[A-D](?![a-z])", output))
    return 1.0 if given == set(gold) else 0.25 if given and given < set(gold) else 0.0


def leval_judgement(output: str, gold: str) -> float:
    words = re.findall("true|false", output.lower().partition("[fact:")[0])
    return float(words[:1] == [gold.lower()])


def leval_math(output: str, gold: str) -> float:
    after = re.findall(r"The answer is (\S+)", output) or re.findall(r"\S*\d\S*", output)[-1:]
    return float([re.sub(r"\..*|\D", "", word) for word in after[:1]] == [gold])


def leval_topic(output: str, gold: str) -> float:
    return float(gold.lower().replace(" ", "") in output.lower().replace(" ", ""))


WORDS = ["in winter", "winter", "It was closed in the winter.", "summer", "a harbour", "yes", "no"]


def record_of(task: str, answers: list[str], **more: Any) -> dict[str, Any]:
    fields = {"input": "When?", "context": TEXT, "answers": answers, "length": 9, "language": "en"}
    return {**fields, "dataset": task, "all_classes": None, "_id": task, **more}


PASSAGES = ["Paragraph 15", "15", "Paragraph 20", "Paragraph 15 or Paragraph 20", "the last",
            "段落15", "Paragraphs 15, 15 and 3", "It is 150"]  # fmt: skip
CLASSES = ["Other location", "Location", "Type: Other location", "City", "City, Other location",
           "Other location\nCity", "location", "Number of something"]  # fmt: skip
LONGBENCH: dict[str, tuple[list[str], dict[str, Any], list[str], Rule]] = {
    **{
        task: (["in winter"], {}, WORDS, squad_f1)
        for task in ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
    },
    "multifieldqa_zh": (["厦门大学。"], {"language": "zh"},
        ["厦门大学", "在厦门大学举办。", "北京大学", "Xiamen 大学", "无"], chinese_f1),
    "triviaqa": (["winter"], {}, [*WORDS, "in winter\nPassage: summer"], first_line_f1),
    "trec": (["Other location"], {"all_classes": TREC}, CLASSES, one_of_labels(TREC)),
    "lsht": (["农业、农村"], {"all_classes": LSHT, "language": "zh"},
             [LSHT[0], f"类别：{LSHT[0]}", "军事", f"{LSHT[0]}，体育"], one_of_labels(LSHT)),
    "passage_count": (["15"], {"input": ""}, PASSAGES, right_numbers),
    "passage_retrieval_en": (["Paragraph 15"], {}, PASSAGES, right_numbers),
    "passage_retrieval_zh": (["段落15"], {"language": "zh"}, PASSAGES, right_numbers),
}  # fmt: skip


def scores_of(example: Example, output: str) -> dict[str, Any]:
    row = {"example_id": example.example_id, "raw_output": output, "finish_reason": "stop"}
    rules = ScoringRules(primary="f1")
    (record,) = score_rows([row], {example.example_id: example}, lambda _: TEXT, rules)
    return record


def check(example: Example, outputs: Sequence[str], rule: Rule, of: str = "f1") -> None:
    assert {rule(output, example.answers[0]) for output in outputs} > {0.0}, "no two scores"
    for output in outputs:
        record, expected = scores_of(example, output), rule(output, example.answers[0])
        assert record[of] == pytest.approx(expected), output
        assert record["em"] <= record["f1"], output
        assert record["failed"] == (record["em"] == 0.0), output


def test_every_task_of_longbench_is_there() -> None:
    assert set(LONGBENCH) == {*longbench.NATURAL, *longbench.MANUFACTURED}


@pytest.mark.parametrize("task", LONGBENCH)
def test_longbench(task: str, tmp_path: Path) -> None:
    answers, more, outputs, rule = LONGBENCH[task]
    path = write_lines(tmp_path / f"{task}.jsonl", [record_of(task, answers, **more)])
    (entry,) = read("longbench", path, allow_synthetic_length=True)
    check(entry.example, outputs, rule)


def test_another_paragraph_shares_nothing(tmp_path: Path) -> None:
    row = record_of("passage_retrieval_en", ["Paragraph 15"])
    path = write_lines(tmp_path / "a.jsonl", [row])
    (entry,) = read("longbench", path, allow_synthetic_length=True)
    assert scores_of(entry.example, "Paragraph 20")["f1"] == 0.0
    assert scores_of(entry.example, "Paragraph 15")["em"] == 1.0


def test_longbench_v2_and_quality(tmp_path: Path) -> None:
    options = {f"choice_{one}": f"it is {one.lower() * 2}" for one in "ABCD"}
    v2 = {"_id": "1", "question": "What?", "context": TEXT, "answer": "B", **options}
    (entry,) = read("longbench-v2", write_json(tmp_path / "v2.json", [v2]))
    said = ["The correct answer is (B)", "The correct answer is (C)", "B", "**B**", "A or B", "D."]
    check(entry.example, said, letter, of="em")
    question = {"question": "What?", "options": ["w", "x", "y", "z"], "gold_label": 3}
    article = {"article": TEXT, "article_id": "1", "questions": [question]}
    (entry,) = read("quality", write_lines(tmp_path / "quality.dev", [article]))
    check(entry.example, ["C", "(C) y", "A", "The answer is C", "The answer is D"], letter, "em")


@pytest.mark.parametrize(
    ("task", "rule"),
    [("T3", lines_after_mark(1)), ("T8", lines_after_mark(None)), ("T10", lines_after_mark(None)),
     ("T11", lines_after_mark(1))],
)  # fmt: skip
def test_longbench_pro(task: str, rule: Rule, tmp_path: Path) -> None:
    row = {"id": "1", "context": TEXT, "primary_task": f"{task}. QA", "answer": ["In  winter"],
           "question_nonthinking": "When?", "language": "English"}  # fmt: skip
    (entry,) = read("longbench-pro", write_json(tmp_path / "pro.json", [row]))
    example = Example("1", "d", "When?", ("In winter",), task, entry.example.metadata)
    check(example, ["[Answer]\nin winter", "[Answer] In  Winter", "[Answer]\nsummer\nin winter",
                    "in winter", "[答案]\nin winter", "[Answer]\nin the winter", "summer",
                    "[Answer]\nsummer\n[Answer]\nin winter\nsummer"], rule)  # fmt: skip


@pytest.mark.parametrize(
    ("task", "question", "target", "labels", "outputs"),
    [
        ("qa1", "Where is Mary?", "kitchen", "bathroom bedroom garden hallway kitchen office",
         ["kitchen", "Mary is in the kitchen. Before: garden.", "kitchen or garden", "garden"]),
        ("qa3", "Where was the milk before the office?", "garden",
         "bathroom bedroom garden hallway kitchen office",
         ["Before the office it was in the garden.", "the office", "garden, then kitchen"]),
        ("qa5", "Who gave the milk to Bill?", "Fred", "bill fred jeff mary apple football milk",
         ["Fred gave the milk to Bill.", "Jeff", "Fred and Jeff"]),
        ("qa7", "How many?", "two", "none one three two", ["two", "one", "Two or three", "none"]),
        ("qa8", "What is she carrying?", "apple,milk", "apple football milk nothing",
         ["apple, milk", "The milk and the apple.", "milk", "apple, milk and football"]),
        ("qa17", "Is it left?", "yes", "no yes", ["Yes.", "no", "yes and no"]),
    ],
)  # fmt: skip
def test_babilong(
    task: str, question: str, target: str, labels: str, outputs: list[str], tmp_path: Path
) -> None:
    row = {"input": TEXT, "question": question, "target": target}
    path = write_json(tmp_path / task / "4k.json", [row])
    (entry,) = read("babilong", path, allow_synthetic_length=True)
    asked = question.rstrip("?")
    check(entry.example, outputs, lambda output, gold: babi_label(asked, labels.split())(
        output, gold.lower()))  # fmt: skip


@pytest.mark.parametrize(
    ("target", "labels", "output", "here"),
    [
        ("none", "none one three two", "none", 1.0),
        ("none", "none one three two", "None of them", 1.0),
        ("no", "no yes", "I do not know", 0.0),
        ("yes", "no yes", "Yes, into another room", 1.0),
        ("kitchen", "bathroom kitchen office", "The kitchen, not the post-offices", 1.0),
        ("apple", "apple football milk", "a pineapple", 0.0),
    ],
)
def test_babilong_names_labels_as_whole_words(
    target: str, labels: str, output: str, here: float
) -> None:
    rule = {"name": "only_label", "labels": labels.split()}
    scores = scorer_of({RULE: rule})(parse_answer(output), [target])
    assert (scores.f1, babi_label("", labels.split())(output, target)) == (here, 1 - here)


@pytest.mark.parametrize(
    ("task", "gold", "outputs", "rule"),
    [
        ("coursera", "BD", ["BD", "B, D", "B and D", "B", "A", "ABD", "The answers are B and D.",
                            "B. text of it\nD. more of it", "C, D", "**BD**"], leval_letters),
        ("coursera", "C", ["C", "(C)", "A", "C. Answer questions"], leval_letters),
        ("quality", "(C) the third", ["C", "B", "(C) the third"],
         lambda output, _: leval_letters(output, "C")),
        ("tpo", "A", ["A", "D", "A."], leval_letters),
        ("sci_fi", "True [fact: False]", ["True", "False", "true.", "True [fact: False]",
                                          "False [fact: True]", "It is false"], leval_judgement),
        ("gsm100", "So it is 2 * 9 = 18.\nThe answer is 18", ["The answer is 18.", "18",
         "The answer is 8", "It is $18.00", "none"], lambda output, _: leval_math(output, "18")),
        ("topic_retrieval_longchat", "The role of art", ["The role of art", "the role of Art.",
         'The first topic was "The role of art in society".', "music"], leval_topic),
        ("natural_question", "in winter", WORDS, squad_f1),
    ],
)  # fmt: skip
def test_l_eval(task: str, gold: str, outputs: list[str], rule: Rule, tmp_path: Path) -> None:
    row = {"instructions": ["Which?"], "outputs": [gold], "input": TEXT, "evaluation": "exam"}
    path = write_lines(tmp_path / f"{task}.jsonl", [row])
    (entry,) = read("l-eval", path, allow_synthetic_length=True)
    check(entry.example, outputs, rule)


@pytest.mark.parametrize(
    ("task", "question", "gold", "answers"),
    [
        *(("natural_question", "Who?", gold, (gold,)) for gold in ("BBC", "AC/DC", "ADHD", "AC")),
        ("financial_qa", "Which?\nA. bonds\nB. cash", "B", ("B",)),
        ("financial_qa", "Which?\n(A) bonds (B) cash (C) debt", "AC", ("AC",)),
        ("coursera", "Which?", "B and D", ("BD",)),
        ("coursera", "Which?", "BED", ("BED",)),
    ],
)  # fmt: skip
def test_words_of_capitals_are_no_choices_in_l_eval(
    task: str, question: str, gold: str, answers: tuple[str, ...], tmp_path: Path
) -> None:
    row = {"instructions": [question], "outputs": [gold], "input": TEXT, "evaluation": "f1"}
    (entry,) = read("l-eval", write_lines(tmp_path / f"{task}.jsonl", [row]))
    assert entry.example.answers == answers
    chosen = "Answer with the letter" in entry.example.question
    assert chosen == (gold in ("B", "AC", "B and D") and question != "Who?")


def test_span_and_multi_hop_benchmarks(tmp_path: Path) -> None:
    span = {"text": "in winter", "answer_start": TEXT.index("in winter")}
    qas = [{"id": "1", "question": "When?", "answers": [span]}]
    squad = {"data": [{"title": "t", "paragraphs": [{"context": TEXT, "qas": qas}]}]}
    (entry,) = read("squad", write_json(tmp_path / "squad.json", squad))
    check(entry.example, WORDS, squad_f1)
    for kind in ("hotpotqa", "2wikimultihopqa"):
        for gold in ("yes", "in winter"):
            row = {"_id": "1", "question": "Was it?", "answer": gold, "type": "comparison",
                   "context": [["Harbour", [TEXT]]]}  # fmt: skip
            (entry,) = read(kind, write_json(tmp_path / "multi.json", [row]))
            check(entry.example, [*WORDS, "Yes, it was.", "yes."], hotpot_f1)
    paragraph = {"idx": 0, "title": "H", "paragraph_text": TEXT, "is_supporting": True}
    row = {"id": "1", "question": "When?", "answer": "in winter", "answer_aliases": [],
           "answerable": True, "question_decomposition": [{"paragraph_support_idx": 0}],
           "paragraphs": [paragraph]}  # fmt: skip
    (entry,) = read("musique", write_lines(tmp_path / "musique.jsonl", [row]))
    check(entry.example, WORDS, squad_f1)
    said = {"unanswerable": False, "extractive_spans": ["in winter"], "yes_no": None,
            "free_form_answer": "", "evidence": []}  # fmt: skip
    asked = {"question": "When?", "question_id": "1", "answers": [{"answer": said}]}
    text = [{"section_name": "One", "paragraphs": [TEXT]}]
    paper = {"title": "T", "abstract": "A", "full_text": text, "qas": [asked]}
    (entry,) = read("qasper", write_json(tmp_path / "qasper.json", {"1": paper}))
    check(entry.example, WORDS, squad_f1)


@given(
    st.lists(st.sampled_from([*TREC, "of", "or", ",", "\n", "location"]), max_size=6).map(" ".join)
)
def test_labels_in_any_reply_score_as_published(output: str) -> None:
    metadata = {RULE: {"name": "labels", "labels": TREC}}
    for gold in TREC:
        scores = scorer_of(metadata)(parse_answer(output), [gold])
        # The reply is read without white space around it.
        assert scores.f1 == pytest.approx(one_of_labels(TREC)(output.strip(), gold))
