"""Results with one answer a row: in a table, in JSON Lines, or in an array of one JSON object.

`FORMATS` names each tool's fields; the first row of a file shows whose it is. Sources:

- lm-evaluation-harness: `samples_<task>_<time>.jsonl`, a line for each filter of each document
- RULER (arXiv 2404.06654): `scripts/pred/call_api.py`; LLMTest_NeedleInAHaystack: needlehaystack
  0.1.0, one file an answer; kvpress 0.5: `evaluation/evaluate.py`, `predictions.csv`
- BABILong (arXiv 2406.10149): `babilong/metrics.py`; results in `babilong_evals/<org>/<model>/`
- HELMET (arXiv 2410.02694): `eval.py`, one JSON file per task and length
- LongBench (arXiv 2308.14508, 2412.15204): `pred.py`, `eval.py`, `result.py`
- promptfoo 0.121: `-o results.json` or `.jsonl`; deepeval 4.3: `.deepeval/.latest_test_run.json`
- Langfuse: its API as the SDKs 3.15 and 5.0 type it; exports of its pages
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextcliff_dagster.contracts import ScoreFileError
from contextcliff_dagster.corpora.benchmarks import babilong, longbench
from contextcliff_dagster.corpora.benchmarks.item import Item
from contextcliff_dagster.score_files.columns import stem
from contextcliff_dagster.score_files.logs.answers import (
    Answer,
    Log,
    UnusableLogError,
    digest,
    figure,
    first_of,
    listed,
    longest_text,
    mapping,
    name_of,
    number,
    prompt_text,
    texts_of,
)
from contextcliff_dagster.score_files.logs.members import rows_of
from contextcliff_dagster.scoring.normalize import is_unspaced
from contextcliff_dagster.scoring.parse import ParsedAnswer
from contextcliff_dagster.scoring.scorers import RULE, scorer_of
from contextcliff_dagster.user_files import read_file

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """How the rows of one tool are read; names of fields are separated by spaces.

    Attributes:
        marks, needed: a row with so many of these fields is the tool's.
        fields: our name -> the row's fields, the first that has a value; ``a.b`` is b in object a.
        derived: values under our names that take more than a field, given the fields' values; None
            for a row without an answer.
        log: what is true of a log, by its path and its first row or JSON value.
        arrays: those that hold the rows of one JSON object.
        stem: pattern of the file's name without its ending.
    """

    tool: str
    marks: str
    needed: int
    fields: Mapping[str, str]
    derived: Callable[[Row, Row, Log], Row | None]
    log: Callable[[Path, Row], Row]
    arrays: str = ""
    stem: str = ""

    def has(self, row: Any) -> bool:
        """Return whether a row is the tool's, and not one of a plain table."""
        is_plain = not isinstance(row, dict) or "length_tokens" in row
        return not is_plain and len(row.keys() & self.marks.split()) >= self.needed

    def found(self, row: Row) -> dict[str, Any]:
        """Return the row's values under our names."""
        return {name: first_of(row, *names.split()) for name, names in self.fields.items()}

    def rows(self, value: Any) -> list[Any]:
        """Return the rows in a JSON value: the items of its arrays, or itself."""
        names = [] if self.has(value) or not isinstance(value, dict) else self.arrays.split()
        return [row for name in names for row in listed(first_of(value, name))] or [value]


def read_rows(path: Path, first: Any) -> Log | None:
    """Return the log in a file whose ``first`` row or JSON value is of a known tool, else None.

    Raises:
        UnusableLogError: the tool keeps the answers in another file.
    """
    for form in FORMATS:
        if form.has(form.rows(first)[0]) and re.match(form.stem, stem(path)):
            no_text = f"{form.tool} leaves the documents out of its results"
            log = Log(path, form.tool, **{"no_text": no_text, **form.log(path, first)})
            rows = (row for value in rows_of(path) for row in form.rows(value))
            found = (_answer(form, row, n, log) for n, row in enumerate(rows) if form.has(row))
            log.answers = filter(None, found)
            return log
    row = LANGFUSE.rows(first)[0]
    for marks, why in _OTHER_FILES.items():
        if isinstance(row, dict) and row.keys() >= {*marks.split()}:
            raise UnusableLogError(f"{path} {why}.")
    return None


def _answer(form: Format, row: Row, place: int, log: Log) -> Answer | None:
    found = form.found(row)
    if (derived := form.derived(row, found, log)) is None:
        return None
    found |= derived
    prompt, context = prompt_text(found.get("prompt")), prompt_text(found.get("context"))
    is_document = context is not None and (prompt is None or context in prompt)
    length = figure(found.get("length")) or 0
    scores = {name: figure(score) for name, score in mapping(found.get("scores")).items()}
    output, depth = found.get("output"), figure(found.get("depth_percent"))
    name = name_of(found.get("example")) or (digest(prompt)[:16] if prompt else None)
    if found.get("own_text"):  # each row has
        name = name or f"{place}/{depth}"
        found["document"] = f"{log.task}/{log.size}/{name}"
    return Answer(
        # Every size has texts of its own.
        example=f"{log.size:g}/{name}" if log.size and name else name,
        scores={name: score for name, score in scores.items() if score is not None},
        output=output if isinstance(output, str | None) else json.dumps(output),
        variant=found.get("variant", ""),
        accepted=texts_of(found.get("accepted")),
        rule=found.get("rule"),
        text=context if is_document else prompt,
        of_prompt=not is_document,
        document=name_of(found.get("document")),
        model=name_of(found.get("model")),
        task=name_of(found.get("task")),
        evidence_position=depth / 100 if depth is not None and 0 <= depth <= 100 else None,
        length=length if length > 0 else log.size if log.length_kind == "sizes" else None,
        prompt_tokens=length if length > 0 and log.length_kind == "prompt tokens" else None,
        completion_tokens=figure(found.get("completion")),
        error=found.get("error"),
        finished_at=name_of(found.get("finished_at")),
    )


_NO_SCORES = frozenset({
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash", "schema_version",
})  # fmt: skip
_SAMPLES = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[^_]*\.jsonl")


def _harness_log(path: Path, first: Row) -> Row:
    # The file of results next to it names the model.
    time = path.name.split(".jsonl")[0].rpartition("_")[2]
    results = [path.parent / f"results_{time}.json"]
    if not results[0].is_file():
        results = sorted(path.parent.glob("results_*.json"))
    model = None
    with suppress(OSError, ValueError, RecursionError):
        run = mapping(json.loads(read_file(results[0]))) if len(results) == 1 else {}
        model = name_of(first_of(run, "model_name", "config.model_name"))
    match = _SAMPLES.match(path.name)
    return {"model": model, "task": match["task"] if match else None, "no_text": ""}


def _harness(row: Row, found: Row, log: Log) -> Row:
    document, reply, request = mapping(row.get("doc")), found["output"], row.get("arguments")
    for _ in range(2):
        reply = reply[0] if isinstance(reply, list) and reply else reply
    if isinstance(request, dict):  # since 0.4.5: gen_args_0: {arg_0: prompt, arg_1: ...}
        request = first_of(request, "gen_args_0.arg_0")
    while isinstance(request, list) and request:
        request = request[0]
    variant = "" if (name := name_of(row.get("filter")) or "") == "none" else name
    scores = _harness_scores(row, document)
    return {
        "variant": variant,
        "scores": {f"{k},{variant}" if variant else k: v for k, v in scores.items()},
        "output": reply if isinstance(reply, str) else None,
        "accepted": texts_of(document.get("answers")) or row.get("target"),
        "context": (context := longest_text(document)),
        "prompt": request if context is None and isinstance(request, str) else None,
    }


def _harness_scores(row: Row, document: Row) -> dict[str, float]:
    metrics = row.get("metrics")
    names = metrics if isinstance(metrics, list) else [n for n in row if n not in _NO_SCORES]
    scores = {str(n): value for n in names if (value := number(row.get(n))) is not None}
    if not scores or not all(name.isdigit() for name in scores):
        return scores
    # RULER's tasks have a score per length, named by it: -1 in all but the document's own.
    score = scores.get(str(document.get("max_length")), -1)
    return {"ruler": score} if score >= 0 else {}


_ERROR = "that ended in an error"
_MANUFACTURED = (
    "{} a chosen size: these lengths are manufactured, and the result says little about documents "
    "of natural length."
)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}


def size_of(name: Any) -> int | None:
    """Return the tokens in a name such as 4096 or 4K (4,096); None for a year or another name."""
    match = re.fullmatch(r"(\d+)([km]?)", str(name).lower())
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    return size if size >= 100 and not 1900 <= size <= 2100 else None


def _matched(output: Any, accepted: list[str], task: Any) -> dict[str, float]:
    """Return RULER's score: the share of accepted answers in the output, or whether one is."""
    if output is None or not accepted:
        return {}
    inside = [answer.lower() in str(output).lower() for answer in accepted]
    is_question = re.search(r"(?:^|_)qa(?:_|$)", str(task)) is not None
    return {"ruler": float(any(inside)) if is_question else sum(inside) / len(inside)}


def ruler_log(path: Path, first: Row) -> Row:
    """Return what is true of a file of RULER's: size and model are its folders' names."""
    # <model>/synthetic/<size>/pred/<task>.jsonl
    folder = path.resolve().parent
    folder = folder.parent if folder.name == "pred" else folder
    size = size_of(folder.name)
    above = folder.parents[1] if folder.parent.name == "synthetic" else folder.parent
    has_length = (figure(first.get("length")) or 0) > 0
    return {
        "model": above.name if size else None,
        "task": re.sub(r"-\d+$", "", stem(path)),
        "size": size,
        "length_kind": "prompt tokens" if has_length else "sizes",
        "is_scaled": True,
        "notes": [_MANUFACTURED.format("RULER fills its texts up to")],
        "no_text": "length, input and a size as the folder's name are missing",
        "remedy": "name the folder by the size, such as 4096/pred/niah_single_1.jsonl",
    }


def _ruler(row: Row, found: Row, log: Log) -> Row:
    return {"scores": _matched(found["output"], texts_of(found["accepted"]), log.task)}


_NEEDLES = {
    "length_kind": "sizes",
    "is_scaled": True,
    "notes": [
        _MANUFACTURED.format("A haystack is cut to"),
        "Its scores of 1 to 10 are read as 0 to 1.",
    ],
    "no_text": "context_length is missing, or with --tokenizer the text (context)",
    "remedy": "leave --tokenizer out, or run the test again, which writes context_length",
}


def _needle(row: Row, found: Row, log: Log) -> Row:
    place = [row.get(name) for name in ("context_length", "depth_percent", "needle")]
    score = figure(row.get("score"))
    if (score is not None and not 1 <= score <= 10) or repr(row.get("score")) == "1.0":
        raise ScoreFileError(
            f"{log.path}: the score {score:g} is none of the {log.tool}'s whole numbers of 1 to "
            "10; read such files as tables, with --columns length_tokens=context_length."
        )
    scores = {} if score is None else {"score": (score - 1) / 9}
    return {"scores": scores, "example": digest(str(place))[:16]}


_RUN = ("dataset", "data_dir", "model", "press_name", "compression_ratio")
_SIZED_BY = {"ruler": "data_dir", "needle_in_haystack": "max_context_length"}
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def _kvpress_log(path: Path, first: Row) -> Row:
    import yaml

    parts = path.resolve().parent.name.split("__")
    run: dict[str, Any] = dict(zip(_RUN, parts, strict=False)) if len(parts) > 4 else {}
    with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        run |= mapping(yaml.safe_load(read_file(path.with_name("config.yaml"))))
    dataset, press = str(run.get("dataset")), str(run.get("press_name") or "no_press")
    variant = "" if press == "no_press" else f" {press} {run.get('compression_ratio')}"
    model = str(run.get("model") or "").replace("--", "/")
    return {
        "model": f"{model}{variant}".strip() or None,
        "task": dataset,
        "length_kind": "sizes",
        "size": size_of(run.get(_SIZED_BY.get(dataset, ""))),
        "is_scaled": True,
        "notes": [_MANUFACTURED.format("The texts are filled up to")],
        "no_text": "contexts are not in predictions.csv, and config.yaml has a size (data_dir) "
        "only of ruler, or max_context_length of needle_in_haystack",
    }


def _kvpress(row: Row, found: Row, log: Log) -> Row:
    accepted = texts_of(found["accepted"])
    if len(accepted) == 1 and accepted[0].startswith("["):  # as NumPy prints it: ['a' 'b']
        accepted = [one or other for one, other in _QUOTED.findall(accepted[0])] or accepted
    output = found["output"] or ""
    scores = _matched(output, accepted, found["task"]) if log.task == "ruler" else {}
    return {"output": output, "accepted": accepted, "scores": scores, "own_text": True}


_NO_QUESTION = (
    "The file has no column 'question', which BABILong's own rule needs: words named in the "
    "question do not count as answers."
)
_BABILONG = r"(qa\d{1,2})_(\d+)([kM])(?:_|$)"


def _babilong_log(path: Path, first: Row) -> Row:
    task, size, unit = re.match(_BABILONG, stem(path)).groups()  # type: ignore[union-attr]
    folders = path.resolve().parents
    below = len(folders) > 2 and folders[2].name == "babilong_evals"
    return {
        "model": f"{folders[1].name}/{folders[0].name}" if below else None,
        "task": task,
        "size": int(size) * _UNITS[unit.lower()] or None,
        "length_kind": "sizes",
        "default_score": "contained",
        "is_scaled": True,
        "notes": [
            _MANUFACTURED.format("BABILong pads its texts to"),
            "Labels are matched as whole words; BABILong's script also finds them inside words "
            "(`one` in `none`).",
            *([] if "question" in first else [_NO_QUESTION]),
        ],
    }


def _babilong(row: Row, found: Row, log: Log) -> Row:
    target, output = found["accepted"], found["output"] or ""
    has_rule = target and "question" in row
    rule = babilong.published_rule(str(log.task), row["question"] or "") if has_rule else None
    right = rule and scorer_of({RULE: rule})(ParsedAnswer(output, output), [target]).f1
    return {
        "output": output,
        "scores": {"babilong": right},
        "own_text": True,
        "error": None if log.size else "at 0k, the facts without filler, whose length is not given",
    }


def _helmet_log(path: Path, first: Row) -> Row:
    run = mapping(first.get("args"))
    size = number(run.get("input_max_length"))
    here = f" (here {size:,.0f} tokens)" if size else ""
    return {
        "model": name_of(run.get("model_name_or_path")),
        "task": name_of(run.get("datasets")),
        "size": size,
        "score_names": {name for name in mapping(first.get("metrics")) if name[-4:] != "_len"},
        "notes": [_MANUFACTURED.format(f"HELMET cuts its inputs or pads them to{here}")],
    }


def _helmet(row: Row, found: Row, log: Log) -> Row:
    no_scores = " ".join(HELMET.fields.values()).split()
    scores = {name: number(value) for name, value in row.items() if name not in no_scores}
    return {"scores": scores, "example": first_of(found, "example", "question")}


_KEPT_CHARACTERS = 1_000
_FIRST_LINE_ONLY = ("trec", "triviaqa", "samsum", "lsht")
_CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")
_CUT = (
    "LongBench cuts prompts beyond a model's limit in the middle and does not say which: a fall "
    "at the longest ones may be the cut."
)


def _length_unit(row: Row, task: str) -> str:
    """Return the unit of LongBench's ``length``: characters for Chinese, else words."""
    is_known = task in longbench.NATURAL or task in longbench.MANUFACTURED
    text = "" if is_known or task in longbench.NOT_SCORED else "".join(texts_of(row.get("answers")))
    return "characters" if task in _CHINESE or any(map(is_unspaced, text)) else "words"


def _longbench_log(path: Path, first: Row) -> Row:
    task = stem(path).removesuffix("_e")  # LongBench-E
    return {
        "model": path.parent.name if path.parent.parent.name in ("pred", "pred_e") else None,
        "task": task,
        "length_kind": _length_unit(first, task),
        # LongBench splits Chinese into words; here characters are compared.
        "own_rule": task not in longbench.NOT_SCORED and task != "multifieldqa_zh",
        "notes": [_CUT],
    }


def _longbench(row: Row, found: Row, log: Log) -> Row:
    task = str(found["dataset"] or log.task).removesuffix("_e")
    if task != log.task and _length_unit(row, task) != (unit := log.length_kind):
        return {"error": f"whose lengths do not count {unit} as the first one's does"}
    output = found["output"]
    if isinstance(output, str) and task in _FIRST_LINE_ONLY:
        output = output.lstrip("\n").split("\n")[0]
    rule = longbench.published_rule(task, Item(row, task))
    return {"output": output, "context": longest_text(row), "rule": rule}


def _longbench_2(row: Row, found: Row, log: Log) -> Row:
    context = longest_text(row)
    # Of that length it was cut; a file that keeps the whole document has other lengths.
    is_cut = context is None or len(context) <= _KEPT_CHARACTERS
    scores, output = {"judge": row.get("judge")}, name_of(found["output"]) or ""
    return {"scores": scores, "output": output, "context": None if is_cut else context}


_PROMPTFOO = {
    "main_score": "score",
    "no_text": "response.tokenUsage.prompt and prompt.raw are missing",
    "remedy": "return tokenUsage from the provider, and write JSON (-o results.json)",
}


def _promptfoo(row: Row, found: Row, log: Log) -> Row:
    # A failed assertion has an error, too, and a grading result.
    reason, graded = row.get("failureReason"), row.get("gradingResult")
    failed = reason == 2 or (reason is None and row.get("error") and not graded)
    own = {name: row.get(name) for name in ("score", "success")}
    return {
        "scores": {**mapping(row.get("namedScores")), **own},
        "error": _ERROR if failed else None,
        "context": longest_text(mapping(row.get("vars"))),
    }


def _deepeval_log(path: Path, first: Row) -> Row:
    run = first_of(first, "hyperparameters", "testRunData.hyperparameters")
    return {
        "model": name_of(mapping(run).get("model")),
        "no_text": "inputTokenCount and input are missing",
        "remedy": "give each test case its whole prompt as input",
    }


def _deepeval(row: Row, found: Row, log: Log) -> Row:
    scores = {}
    for metric in map(mapping, listed(found["metrics"])):
        score, least = figure(metric.get("score")), figure(metric.get("threshold"))
        # Where success contradicts this, less is better, as of toxicity.
        is_upward = least is None or metric.get("success") in (None, (score or 0) >= least)
        if is_upward and not metric.get("error"):
            scores[str(metric.get("name"))] = score
    retrieved = "\n".join(texts_of(found["retrieved"]))
    if len(retrieved) > len(str(found["prompt"] or "")):
        return {"scores": scores, "prompt": None, "context": retrieved}
    return {"scores": scores}


_USAGE = ("usage.input", "usage.promptTokens", "promptTokens", "inputTokens", "inputUsage")
_NO_COLUMNS = ("input", "output", "metadata", "tags", "traceTags", "comments", "observations")


def _tokens(row: Row) -> float | None:
    """Return the prompt's tokens, cached ones included, of a Langfuse observation or trace."""
    counts = mapping(row.get("usageDetails")).items()
    total = sum(figure(count) or 0 for name, count in counts if name.startswith("input"))
    is_tokens = first_of(row, "usage.unit", "unit") in (None, "TOKENS")
    return (total or figure(first_of(row, *_USAGE)) or None) if is_tokens else None


def _langfuse_log(path: Path, first: Row) -> Row:
    """Join the scores of the same file, or of files next to it that are called so."""
    scores = [] if LANGFUSE.has(first) else [*listed(mapping(first).get("scores"))]
    for file in sorted(path.parent.glob("*[sS]core*")):
        with suppress(ScoreFileError, OSError):
            if file != path:
                scores += [score for value in rows_of(file) for score in LANGFUSE.rows(value)]
    joined: dict[str, list[Row]] = defaultdict(list)
    for score in map(mapping, scores):
        joined[str(first_of(score, "observationId", "subject.id", "traceId"))].append(score)
    last: dict[str, tuple[str, str]] = {}
    for value in rows_of(path) if joined else ():
        for row in filter(_tokens, map(mapping, LANGFUSE.rows(value))):
            if isinstance(trace := row.get("traceId"), str):  # a trace's score is its last call's
                begun = (str(row.get("startTime")), str(row.get("id")))
                last[trace] = max(last.get(trace, begun), begun)
    for trace, (_, call) in last.items():
        joined[call] += joined.pop(trace, [])
    return {
        "joined": joined,
        "no_text": "usageDetails.input, usage.input and input are missing",
        "remedy": "export observations, which have them",
    }


def _langfuse(row: Row, found: Row, log: Log) -> Row | None:
    if "traceId" in row and row.get("type", "GENERATION") != "GENERATION":
        return None  # a span, an event, a tool
    calls = [call for call in map(mapping, listed(row.get("observations"))) if _tokens(call)]
    last = max(calls, key=lambda call: str(call.get("startTime")), default=row)
    call = {**row, **last}
    scores: dict[str, list[Any]] = defaultdict(list)
    joined = log.joined.get(str(row.get("id")), ())
    for score in map(mapping, [*listed(row.get("scores")), *joined]):
        if score.get("dataType", "NUMERIC") in ("NUMERIC", "BOOLEAN"):
            scores[str(score.get("name"))].append(figure(score.get("value")))
    for name, column in row.items():  # an export has a column for each score, with its values
        if isinstance(column, list) and name not in (*_NO_COLUMNS, "scores"):
            scores[name] += map(number, column)
    means = {n: sum(v) / len(v) for n, v in scores.items() if v and None not in v}
    return {
        **LANGFUSE.found(call),
        "length": _tokens(call),
        "example": None if "traceId" in call else row.get("id"),  # an export sums up its calls
        "scores": means,
        "error": _ERROR if call.get("level") == "ERROR" else None,
    }


HELMET = Format(
    "HELMET", "input_len output_len", 2,
    {"prompt": "input_text", "output": "output", "accepted": "answer answers",
     "length": "input_len", "completion": "output_len", "question": "question",
     "example": "id _id qid question_id"},
    _helmet, _helmet_log, arrays="data",
)  # fmt: skip
LANGFUSE = Format(
    "Langfuse", "traceId startTime usageDetails usage modelParameters level parentObservationId "
    "promptTokens inputUsage observations timestamp htmlPath observationCount inputTokens", 3,
    {"prompt": "input", "output": "output", "model": "model providedModelName",
     "completion": "usageDetails.output usage.output outputUsage",
     "document": "metadata.document_id", "finished_at": "endTime"},
    _langfuse, _langfuse_log, arrays="data traces observations",
)  # fmt: skip
FORMATS = (
    Format("lm-evaluation-harness", "doc_id doc arguments resps filtered_resps filter", 2,
           {"example": "doc_hash doc_id", "output": "filtered_resps"}, _harness, _harness_log),
    Format("RULER", "pred outputs", 2,
           {"prompt": "input", "output": "pred", "accepted": "outputs", "length": "length",
            "example": "index"},
           _ruler, ruler_log),
    Format("LLMTest_NeedleInAHaystack", "context_length depth_percent needle model_response", 3,
           {"context": "context", "length": "context_length", "depth_percent": "depth_percent",
            "model": "model", "finished_at": "test_timestamp_utc"},
           _needle, lambda path, first: _NEEDLES),
    Format("kvpress", "predicted_answer compression_ratio max_new_tokens answer_prefix", 2,
           {"output": "predicted_answer", "accepted": "answer answers needle", "task": "task",
            "depth_percent": "needle_depth", "example": "_id"},
           _kvpress, _kvpress_log),
    Format("BABILong", "target output", 2, {"output": "output", "accepted": "target"},
           _babilong, _babilong_log, stem=_BABILONG),
    HELMET,
    Format("LongBench v2", "judge pred answer", 3,
           {"example": "_id", "output": "pred", "accepted": "answer"},
           _longbench_2, lambda path, first: {"model": stem(path), "notes": [_CUT]}),
    Format("LongBench", "pred answers", 2,
           {"example": "_id", "output": "pred", "accepted": "answers", "length": "length",
            "dataset": "dataset"},
           _longbench, _longbench_log),
    Format("promptfoo", "success score provider vars gradingResult latencyMs promptIdx", 4,
           {"prompt": "prompt.raw prompt", "output": "response.output",
            "length": "response.tokenUsage.prompt tokenUsage.prompt",
            "completion": "response.tokenUsage.completion",
            "model": "provider.label provider.id provider",
            "document": "metadata.document_id vars.document_id"},
           _promptfoo, lambda path, first: _PROMPTFOO, arrays="results.results results"),
    Format("deepeval", "metricsData metrics_data", 1,
           {"prompt": "input", "output": "actualOutput actual_output",
            "accepted": "expectedOutput expected_output", "metrics": "metricsData metrics_data",
            "retrieved": "retrievalContext retrieval_context context", "length": "inputTokenCount",
            "completion": "outputTokenCount", "document": "metadata.document_id"},
           _deepeval, _deepeval_log, arrays="testCases testRunData.testCases test_results"),
    LANGFUSE,
)  # fmt: skip

TOOLS = ("inspect_ai", "OpenCompass", "HELM", *(form.tool for form in FORMATS))
"""All tools whose results are read."""
_OTHER_FILES = {
    "Status Score Comment": "is promptfoo's CSV, which has neither prompts nor token counts: write "
    "JSON instead (promptfoo eval -o results.json)",
    "name source value timestamp": "holds Langfuse's scores without lengths: name the observations "
    "or traces, next to this file, whose name contains 'score'",
    **dict.fromkeys(
        ("results model_name", "results configs"),
        "is a file of results of lm-evaluation-harness, which has no single answers: name the "
        "samples_*.jsonl next to it (written with --log_samples)",
    ),
    **dict.fromkeys(
        ("name count sum", "input references", "name scenario_spec", "instance_id predicted_text"),
        "belongs to a run of HELM and does not have its scores by answer: name the "
        "per_instance_stats.json next to it",
    ),
}
"""Fields of files without single answers -> what to read instead."""
